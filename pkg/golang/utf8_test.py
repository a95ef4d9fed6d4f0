"""Test text that is valid UTF-8."""

from __future__ import annotations

import pytest

from pkg import golang


@pytest.mark.parametrize(
    ("text", "valid"),
    [("", ""), ("a\u00e9\U0001f600", "a\u00e9\U0001f600"), ("a\udcffb\udc80", "a\ufffdb\ufffd"), ("\ud800", "\ufffd")],
)
def test_what_was_no_utf8_is_replaced(text: str, valid: str) -> None:
    assert golang.to_valid_utf8(text) == valid
    assert golang.encode_valid_utf8(text) == valid.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a \u00e9\U0001f600", "a \u00e9\U0001f600"),
        ("a\x1b[2J\n\x9b\u202eb\udcff", "a\ufffd[2J" + "\ufffd" * 3 + "b\ufffd"),
    ],
)
def test_what_controls_a_terminal_is_replaced(text: str, shown: str) -> None:
    assert golang.printable(text) == shown
