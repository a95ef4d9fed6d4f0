"""Make text valid UTF-8 or printable.

Bytes that were not valid UTF-8 when the text was read are lone surrogates in the text.

Go: strings.ToValidUTF8
"""

from __future__ import annotations

import re

_REPLACEMENT = "\ufffd"
_SURROGATE = re.compile("[\ud800-\udfff]")


def to_valid_utf8(text: str) -> str:
    """Return the text with U+FFFD in place of each invalid byte."""
    return _SURROGATE.sub(_REPLACEMENT, text)


def encode_valid_utf8(text: str) -> bytes:
    """Return the bytes of to_valid_utf8(text); for valid text this is as fast as `encode`."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return to_valid_utf8(text).encode()


def printable(text: str) -> str:
    """Return the text for a message or a terminal, with U+FFFD in place of each character that is not printable.

    Text from others may contain control sequences of a terminal.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _REPLACEMENT for letter in text)
