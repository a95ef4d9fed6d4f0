"""Several errors as one.

Go: k8s.io/apimachinery/pkg/util/errors
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class Aggregate(ExceptionGroup[Exception]):
    """Reads as Go's aggregate does: one message as it is, more as a list in brackets, repetitions once."""

    def __new__(cls, errs: Sequence[Exception]) -> Aggregate:
        return super().__new__(cls, "errors", errs)

    def __str__(self) -> str:
        messages = list(dict.fromkeys(str(err) for err in self.exceptions))
        return messages[0] if len(messages) == 1 else "[" + ", ".join(messages) + "]"

    def derive(self, errs: Sequence[Exception], /) -> Aggregate:  # type: ignore[override]
        return Aggregate(errs)


def new_aggregate(errs: Iterable[Exception | None]) -> Aggregate | None:
    """The errors that are not None as one, or None if there are none."""
    present = [err for err in errs if err is not None]
    return Aggregate(present) if present else None


@contextmanager
def collecting() -> Iterator[list[Exception]]:
    """Gives a list for errors of which some are raised in the end, and empties the list then. No counterpart in Go.

    An error holds the frames that it passes. If one of these frames still held the error in a list, the frames would
    stay, with all data of their functions, until garbage is collected.
    """
    errors: list[Exception] = []
    try:
        yield errors
    finally:
        errors.clear()
