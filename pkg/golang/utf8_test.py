"""Text that can be sent."""

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
