"""Test the validation of volumes' paths."""

import pytest

from pkg.volume import validation


@pytest.mark.parametrize("path", ["", "/a", "/a/..b", "a/b..", "..a/.b", "/..."])
def test_path_without_steps_back(path: str) -> None:
    validation.validate_path_no_backsteps(path)


@pytest.mark.parametrize("path", ["..", "/..", "../a", "/a/../b", "/a/.."])
def test_path_with_steps_back(path: str) -> None:
    with pytest.raises(ValueError, match=r"must not contain '\.\.'"):
        validation.validate_path_no_backsteps(path)
