"""Test the expansion of references.

Go: third_party/forked/golang/expansion/expand_test.go
"""

from __future__ import annotations

import pytest

from pkg.util import expansion

LIMIT = 1000
VARIABLES = {"A": "a", "B": "$(A)", "EMPTY": "", "$x": "dollar", "a$(b": "odd", "\n": "line"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain", "plain"),
        ("$(A)", "a"),
        ("-$(A)-$(A)-", "-a-a-"),
        ("$(B)", "$(A)"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(EMPTY)x", "x"),
        ("$$", "$"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$a"),
        ("$$$$(A)", "$$(A)"),
        ("$", "$"),
        ("a$", "a$"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$(A$$", "$(A$"),
        ("$(A)$(", "a$("),
        ("$()", "$()"),
        ("$($x)", "dollar"),
        ("$(a$(b)", "odd"),
        (")$(", ")$("),
        ("$(\n)", "line"),
        ("$\u00e4$(A)", "$\u00e4a"),
    ],
)
def test_expand(text: str, expected: str) -> None:
    assert expansion.expand(text, expansion.mapping_func_for(VARIABLES), LIMIT) == expected


def test_first_mapping_counts() -> None:
    mapping = expansion.mapping_func_for({"A": "first"}, {"A": "second", "B": "second"})
    assert expansion.expand("$(A) $(B)", mapping, LIMIT) == "first second"


@pytest.mark.parametrize("letter", ["x", "\u00e4"])
def test_limit_counts_bytes(letter: str) -> None:
    size = len(letter.encode())
    mapping = expansion.mapping_func_for({"A": letter * (LIMIT // size)})
    assert len(expansion.expand("$(A)", mapping, LIMIT).encode()) == LIMIT
    with pytest.raises(expansion.TooLongError, match="has more than 1000 bytes"):
        expansion.expand("$(A)!", mapping, LIMIT)


@pytest.mark.parametrize("text", ["$(" * 500_000, ")" + "$(" * 500_000, "$" * 1_000_000, "$(A)" * 250_000])
def test_long_text_takes_no_more_steps_than_it_has_letters(text: str) -> None:
    """Expanding a long text ends in reasonable time."""
    expansion.expand(text, expansion.mapping_func_for({"A": "a"}), 2_000_000)
