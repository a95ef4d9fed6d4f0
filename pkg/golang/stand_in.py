"""Provide a placeholder for an object that does not exist yet.

Go has no counterpart: it passes a pointer to the half-built object.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class StandIn(Generic[T]):
    """Represent an object while its parts are built; the parts need a reference to the object, which needs the parts.

    Reading an attribute raises AttributeError until `become` is called; then the placeholder forwards to the object.
    Attributes may be read from any thread.
    """

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._whole: T | None = None

    def cast(self) -> T:
        """Return this placeholder with the type of the object."""
        return cast(T, self)

    def become(self, whole: T) -> None:
        """Forward to the given object from now on."""
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        if self._whole is None:
            raise AttributeError(f"{name} was read from a {self._kind.__name__} that is not complete")
        return getattr(self._whole, name)
