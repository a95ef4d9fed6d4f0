"""Test sets of processors.

Go: k8s.io/utils/cpuset/cpuset_test.go
"""

from __future__ import annotations

import pytest

from pkg.utils import cpuset


def test_operations_make_sets_of_the_same_kind() -> None:
    one, other = cpuset.new(0, 1, 2), cpuset.new(2, 3)
    made = {
        "union": (one.union(other, [7]), "0-3,7"),
        "|": (one | other, "0-3"),
        "intersection": (one.intersection(other), "2"),
        "&": (one & other, "2"),
        "difference": (one.difference(other), "0-1"),
        "-": (one - other, "0-1"),
    }
    for name, (got, want) in made.items():
        assert (name, type(got), str(got)) == (name, cpuset.CPUSet, want)


def test_questions() -> None:
    one = cpuset.new(5, 3, 4)
    assert one.list() == [3, 4, 5]
    assert one == cpuset.new(3, 4, 5) and hash(one) == hash(cpuset.new(4, 5, 3))
    assert one <= cpuset.new(1, 3, 4, 5) and not one <= cpuset.new(3, 4)
    assert 3 in one and 1 not in one and len(one) == 3
    assert cpuset.new().is_empty() and not one.is_empty()


@pytest.mark.parametrize(
    ("text", "cpus", "canonical"),
    [
        ("", [], ""),
        ("5", [5], "5"),
        ("1,2,3,4,5", [1, 2, 3, 4, 5], "1-5"),
        ("1-5", [1, 2, 3, 4, 5], "1-5"),
        ("1-2,3-5", [1, 2, 3, 4, 5], "1-5"),
        ("5,4,3,2,1", [1, 2, 3, 4, 5], "1-5"),
        ("3-6,1-5", [1, 2, 3, 4, 5, 6], "1-6"),
        ("3-3,5-5", [3, 5], "3,5"),
        ("34,46-48", [34, 46, 47, 48], "34,46-48"),
    ],
)
def test_parse_and_string(text: str, cpus: list[int], canonical: str) -> None:
    got = cpuset.parse(text)
    assert (got, str(got)) == (cpuset.new(*cpus), canonical)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("nonnumeric", 'strconv.Atoi: parsing "nonnumeric": invalid syntax'),
        ("non-numeric", 'strconv.Atoi: parsing "non": invalid syntax'),
        ("no,numbers", 'strconv.Atoi: parsing "no": invalid syntax'),
        ("0-a", 'strconv.Atoi: parsing "a": invalid syntax'),
        ("a-0", 'strconv.Atoi: parsing "a": invalid syntax'),
        ("0,a", 'strconv.Atoi: parsing "a": invalid syntax'),
        ("1-2,a,3-5", 'strconv.Atoi: parsing "a": invalid syntax'),
        ("0,", 'strconv.Atoi: parsing "": invalid syntax'),
        ("0--3", 'invalid range "0--3" (0 > -3)'),
        ("5-3", 'invalid range "5-3" (5 > 3)'),
        ("0-9999999999", 'invalid CPU number "0-9999999999" (there are at most 65536 CPUs)'),
        (" 1", 'strconv.Atoi: parsing " 1": invalid syntax'),
        ("1_0", 'strconv.Atoi: parsing "1_0": invalid syntax'),
    ],
)
def test_parse_what_is_no_list(text: str, want: str) -> None:
    with pytest.raises(ValueError) as err:
        cpuset.parse(text)
    assert str(err.value) == want
