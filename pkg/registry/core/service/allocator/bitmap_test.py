import pytest

from pkg.registry.core.service import allocator


def test_allocate() -> None:
    bitmap = allocator.AllocationBitmap(20)
    taken = [bitmap.allocate_next() for _ in range(20)]
    assert sorted(number for number in taken if number is not None) == list(range(20))
    assert bitmap.allocate_next() is None
    assert bitmap.free() == 0
    assert all(bitmap.has(number) for number in range(20))
    assert not bitmap.has(20)


@pytest.mark.parametrize("released", [0, 7, 19])
def test_the_one_that_was_released_is_found_again(released: int) -> None:
    bitmap = allocator.AllocationBitmap(20)
    for number in range(20):
        assert bitmap.allocate(number)
    bitmap.release(released)
    assert not bitmap.has(released)
    assert bitmap.free() == 1
    assert bitmap.allocate_next() == released


def test_allocate_what_is_taken() -> None:
    bitmap = allocator.AllocationBitmap(2)
    assert bitmap.allocate(1)
    assert not bitmap.allocate(1)
    assert bitmap.free() == 1


@pytest.mark.parametrize("offset", [-1, 2, 3])
def test_allocate_out_of_range(offset: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        allocator.AllocationBitmap(2).allocate(offset)


def test_release_what_is_not_taken() -> None:
    bitmap = allocator.AllocationBitmap(2)
    bitmap.release(1)
    bitmap.release(5)
    assert bitmap.free() == 2
