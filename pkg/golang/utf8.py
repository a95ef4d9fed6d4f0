"""Text that can be sent, or shown: bytes that were no UTF-8 when the text was read stand in it as lone surrogates.

Go: strings.ToValidUTF8
"""

from __future__ import annotations

import re

_REPLACEMENT = "\ufffd"
_SURROGATE = re.compile("[\ud800-\udfff]")


def to_valid_utf8(text: str) -> str:
    """The text with U+FFFD in place of each byte that was no UTF-8."""
    return _SURROGATE.sub(_REPLACEMENT, text)


def encode_valid_utf8(text: str) -> bytes:
    """to_valid_utf8 as bytes, as quick as encode for text that is valid."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return to_valid_utf8(text).encode()


def printable(text: str) -> str:
    """The text for messages and terminals: what others have written need not be text, and may control a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _REPLACEMENT for letter in text)
