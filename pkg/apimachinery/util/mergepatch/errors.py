"""The errors of merging.

Go: k8s.io/apimachinery/pkg/util/mergepatch/errors.go
"""

from __future__ import annotations


class PatchError(ValueError):
    """A patch that cannot be made or applied; the base of the others."""


class BadJSONDocError(PatchError):
    """The document or the patch is no JSON object."""

    def __init__(self, reason: str = "not an object") -> None:
        super().__init__(f"invalid JSON document: {reason}")


class NoListOfListsError(PatchError):
    """A list that is to be merged has lists as elements."""

    def __init__(self) -> None:
        super().__init__("lists of lists are not supported")


class BadPatchFormatError(PatchError):
    """A directive that is not written as its kind is."""

    def __init__(self, directive: str, reason: str = "expected a list of scalars") -> None:
        super().__init__(f"invalid {directive} in the patch: {reason}")


class BadPatchTypeError(PatchError):
    """A `$patch` directive that nobody knows."""

    def __init__(self, directive: object, where: object) -> None:
        super().__init__(f"unknown $patch type {directive!r} in {where}")


class NoMergeKeyError(PatchError):
    """An element of a merging list does not say which one it is."""

    def __init__(self, element: object, merge_key: str) -> None:
        super().__init__(f"{element} has no {merge_key!r}, by which its list is merged")


class BadArgTypeError(PatchError):
    """A value that is not of the type its field has."""

    def __init__(self, expected: str, actual: object) -> None:
        super().__init__(f"expected {expected}, got {type(actual).__name__}: {actual!r}")
