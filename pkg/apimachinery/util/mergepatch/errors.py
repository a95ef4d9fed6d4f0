"""Define the errors of merging.

Go: k8s.io/apimachinery/pkg/util/mergepatch/errors.go
"""

from __future__ import annotations


class PatchError(ValueError):
    """Signal that a patch cannot be made or applied; the other errors are subclasses."""


class BadJSONDocError(PatchError):
    """Signal that the document or the patch is not a JSON object."""

    def __init__(self, reason: str = "not an object") -> None:
        super().__init__(f"invalid JSON document: {reason}")


class NoListOfListsError(PatchError):
    """Signal that a list to be merged contains lists."""

    def __init__(self) -> None:
        super().__init__("lists of lists are not supported")


class BadPatchFormatError(PatchError):
    """Signal that a directive in the patch has the wrong form."""

    def __init__(self, directive: str, reason: str = "expected a list of scalars") -> None:
        super().__init__(f"invalid {directive} in the patch: {reason}")


class BadPatchTypeError(PatchError):
    """Signal an unknown `$patch` directive."""

    def __init__(self, directive: object, where: object) -> None:
        super().__init__(f"unknown $patch type {directive!r} in {where}")


class NoMergeKeyError(PatchError):
    """Signal that an element of a merged list lacks the merge key."""

    def __init__(self, element: object, merge_key: str) -> None:
        super().__init__(f"{element} lacks the merge key {merge_key!r}")


class BadArgTypeError(PatchError):
    """Signal that a value does not have the type of its field."""

    def __init__(self, expected: str, actual: object) -> None:
        super().__init__(f"expected {expected}, got {type(actual).__name__}: {actual!r}")
