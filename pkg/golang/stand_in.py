"""What stands for an object that is not there yet. No counterpart in Go, which hands out the object half-built."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class StandIn(Generic[T]):
    """Stands for an object while its parts are made: they ask the object for things later, and it is made of them.

    What is asked of this one raises AttributeError, until it is told of the object; then the object answers. Asking is
    safe from any thread.
    """

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._whole: T | None = None

    def cast(self) -> T:
        """This one, as who asks it knows it."""
        return cast(T, self)

    def become(self, whole: T) -> None:
        """From now on the object answers."""
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        if self._whole is None:
            raise AttributeError(f"{name} was asked of a {self._kind.__name__} that is not whole")
        return getattr(self._whole, name)
