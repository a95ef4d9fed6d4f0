"""Test bit masks.

Go: pkg/kubelet/cm/topologymanager/bitmask/bitmask_test.go
"""

from __future__ import annotations

import pytest

from kubelet.cm.topologymanager.bitmask import BitMask, iterate_bit_masks


@pytest.mark.parametrize("bit", [-1, 64])
def test_numbers_without_a_bit(bit: int) -> None:
    with pytest.raises(ValueError, match="bit number must be in range 0-63"):
        BitMask(0, bit)


def test_operations() -> None:
    one, other = BitMask(0, 2), BitMask(2, 63)
    assert one & other == BitMask(2)
    assert one | other == BitMask(0, 2, 63)
    assert (one.get_bits(), other.get_bits(), BitMask().get_bits()) == ([0, 2], [2, 63], [])
    assert (one.count(), BitMask().count()) == (2, 0)
    assert hash(BitMask(2, 0)) == hash(one) and BitMask(0) != BitMask(1)
    assert repr(other) == "BitMask(2, 63)"


def test_questions() -> None:
    mask = BitMask(0, 3)
    assert [bit for bit in (-1, 0, 1, 2, 3, 64) if mask.is_set(bit)] == [0, 3]
    assert mask.any_set([1, 3]) and not mask.any_set([1, 2]) and not mask.any_set([])
    assert BitMask().is_empty() and not mask.is_empty()


@pytest.mark.parametrize(
    ("one", "other", "narrower"),
    [
        ([0], [0], False),
        ([0], [1], True),
        ([1], [0], False),
        ([5], [0, 1], True),
        ([0, 1], [5], False),
        ([0, 1], [0, 2], True),
        ([0, 1, 3], [0, 2, 3], True),
    ],
)
def test_is_narrower_than(one: list[int], other: list[int], narrower: bool) -> None:
    assert BitMask(*one).is_narrower_than(BitMask(*other)) == narrower


def test_is_less_and_greater_than() -> None:
    low, high = BitMask(0, 1), BitMask(2)
    assert low.is_less_than(high) and not high.is_less_than(low) and not low.is_less_than(low)
    assert high.is_greater_than(low) and not low.is_greater_than(high) and not low.is_greater_than(low)


@pytest.mark.parametrize(
    ("bits", "want"),
    [
        ([], "00"),
        ([0], "01"),
        ([1], "10"),
        ([0, 1], "11"),
        ([2], "100"),
        ([0, 2], "0101"),
        ([3], "1000"),
        ([7], "10000000"),
        ([63], "1" + "0" * 63),
        ([0, 62], "01" + "0" * 61 + "1"),
    ],
)
def test_str(bits: list[int], want: str) -> None:
    assert str(BitMask(*bits)) == want


@pytest.mark.parametrize("bits", [[], [0], [0, 1], list(range(4)), [1, 5, 9]])
def test_iterate_bit_masks(bits: list[int]) -> None:
    masks = list(iterate_bit_masks(bits))
    assert len(set(masks)) == len(masks) == 2 ** len(bits) - 1
    assert all(set(mask.get_bits()) <= set(bits) for mask in masks)
    assert [mask.count() for mask in masks] == sorted(mask.count() for mask in masks)
