"""Define the errors of all kinds of patches.

Go: k8s.io/apimachinery/pkg/util/mergepatch
"""

from pkg.apimachinery.util.mergepatch.errors import (
    BadArgTypeError,
    BadJSONDocError,
    BadPatchFormatError,
    BadPatchTypeError,
    NoListOfListsError,
    NoMergeKeyError,
    PatchError,
)

__all__ = [
    "BadArgTypeError",
    "BadJSONDocError",
    "BadPatchFormatError",
    "BadPatchTypeError",
    "NoListOfListsError",
    "NoMergeKeyError",
    "PatchError",
]
