"""Represent a set of numbers from 0 to 63 with one bit for each.

Go: pkg/kubelet/cm/topologymanager/bitmask/bitmask.go
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

_BITS = 64


class BitMask:
    """Represent an immutable set of numbers, which is compared by value; & and | return new sets.

    Go's masks are changed in place, so Go has to copy them before each operation.
    """

    __slots__ = ("_mask",)

    def __init__(self, *bits: int) -> None:
        """Raise ValueError for a number outside 0 to 63."""
        mask = 0
        for bit in bits:
            if not 0 <= bit < _BITS:
                raise ValueError("bit number must be in range 0-63")
            mask |= 1 << bit
        self._mask = mask

    @classmethod
    def _of(cls, mask: int) -> BitMask:
        made = cls()
        made._mask = mask
        return made

    def __and__(self, other: BitMask) -> BitMask:
        return self._of(self._mask & other._mask)

    def __or__(self, other: BitMask) -> BitMask:
        return self._of(self._mask | other._mask)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BitMask) and self._mask == other._mask

    def __hash__(self) -> int:
        return hash(self._mask)

    def is_empty(self) -> bool:
        return self._mask == 0

    def is_set(self, bit: int) -> bool:
        return 0 <= bit < _BITS and bool(self._mask >> bit & 1)

    def any_set(self, bits: Iterable[int]) -> bool:
        return any(self.is_set(bit) for bit in bits)

    def is_narrower_than(self, other: BitMask) -> bool:
        """Report whether this mask has fewer bits, or equally many and a lower value."""
        mine, others = self.count(), other.count()
        return self._mask < other._mask if mine == others else mine < others

    def is_less_than(self, other: BitMask) -> bool:
        """Compare the masks as numbers."""
        return self._mask < other._mask

    def is_greater_than(self, other: BitMask) -> bool:
        return self._mask > other._mask

    def count(self) -> int:
        return self._mask.bit_count()

    def get_bits(self) -> list[int]:
        """List the numbers in ascending order."""
        return [bit for bit in range(self._mask.bit_length()) if self._mask >> bit & 1]

    def __str__(self) -> str:
        """Return the binary digits, padded to an even number of at least two."""
        # As in Go, a power of four is not padded: 4 is "100".
        width = next((shift + 2 for shift in range(_BITS - 2, 0, -2) if self._mask > 1 << shift), 2)
        return f"{self._mask:0{width}b}"

    def __repr__(self) -> str:
        return f"BitMask({', '.join(map(str, self.get_bits()))})"


def iterate_bit_masks(bits: Sequence[int]) -> Iterator[BitMask]:
    """Yield all masks of these bits except the empty one, masks with fewer bits first."""
    for size in range(1, len(bits) + 1):
        for chosen in itertools.combinations(bits, size):
            yield BitMask(*chosen)
