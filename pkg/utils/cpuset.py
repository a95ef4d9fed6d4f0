"""Represent sets of processors, and read and write the kernel's notation for them.

Go: k8s.io/utils/cpuset
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable

# This limit is more than any kernel supports. Without a limit, a typo could fill the memory with numbers.
_MOST = 1 << 16
_NUMBER = re.compile(r"[+-]?[0-9]+")


class CPUSet(frozenset[int]):
    """Hold the numbers of processors. A set is immutable; its operations return a new CPUSet."""

    __slots__ = ()

    def is_empty(self) -> bool:
        return not self

    def union(self, *others: Iterable[int]) -> CPUSet:  # type: ignore[override]
        return CPUSet(frozenset.union(self, *others))

    def intersection(self, *others: Iterable[object]) -> CPUSet:
        return CPUSet(frozenset.intersection(self, *others))

    def difference(self, *others: Iterable[object]) -> CPUSet:
        return CPUSet(frozenset.difference(self, *others))

    def __or__(self, other: Iterable[int]) -> CPUSet:  # type: ignore[override]
        return self.union(other)

    def __and__(self, other: Iterable[object]) -> CPUSet:
        return self.intersection(other)

    def __sub__(self, other: Iterable[object]) -> CPUSet:
        return self.difference(other)

    def list(self) -> builtins.list[int]:
        """Return the numbers in ascending order."""
        return sorted(self)

    def __str__(self) -> str:
        """Return the kernel's notation, such as "0-3,8"; "" for an empty set."""
        ranges: builtins.list[tuple[int, int]] = []
        for cpu in sorted(self):
            if ranges and ranges[-1][1] == cpu - 1:
                ranges[-1] = (ranges[-1][0], cpu)
            else:
                ranges.append((cpu, cpu))
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)

    def __repr__(self) -> str:
        return f"CPUSet({str(self)!r})"


def new(*cpus: int) -> CPUSet:
    """Return the set of the given numbers."""
    return CPUSet(cpus)


def parse(text: str) -> CPUSet:
    """Parse a list in the kernel's notation. Raise ValueError."""
    cpus: list[int] = []
    for part in text.split(",") if text else ():
        first_text, dash, last_text = part.partition("-")
        first = _atoi(first_text)
        last = _atoi(last_text) if dash else first
        if first > last:
            raise ValueError(f'invalid range "{part}" ({first} > {last})')
        if last >= _MOST:
            raise ValueError(f'invalid CPU number "{part}" (there are at most {_MOST} CPUs)')
        cpus.extend(range(first, last + 1))
    return CPUSet(cpus)


def _atoi(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    return int(text)
