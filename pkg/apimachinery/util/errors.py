"""Combine several errors into one.

Go: k8s.io/apimachinery/pkg/util/errors
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class Aggregate(ExceptionGroup[Exception]):
    """Combine errors, with a message in the form of Go's aggregate.

    A single message stays as it is; several form a list in brackets without duplicates.
    """

    def __new__(cls, errs: Sequence[Exception]) -> Aggregate:
        return super().__new__(cls, "errors", errs)

    def __str__(self) -> str:
        messages = list(dict.fromkeys(str(err) for err in self.exceptions))
        return messages[0] if len(messages) == 1 else "[" + ", ".join(messages) + "]"

    def derive(self, errs: Sequence[Exception], /) -> Aggregate:  # type: ignore[override]
        return Aggregate(errs)


def new_aggregate(errs: Iterable[Exception | None]) -> Aggregate | None:
    """Return the errors that are not None as one error, or None if there are none."""
    present = [err for err in errs if err is not None]
    return Aggregate(present) if present else None


@contextmanager
def collecting() -> Iterator[list[Exception]]:
    """Provide a list for errors, some of which the caller raises later, and empty the list at the end.

    An error's traceback refers to the frames that it passed through. If one of these frames still held the error in a
    list, the frames would stay in memory, with all their data, until the next garbage collection. Go has no
    counterpart.
    """
    errors: list[Exception] = []
    try:
        yield errors
    finally:
        errors.clear()
