"""Parse numbers from external text exactly as Go does.

Python's int and float also accept white space, digits of other scripts, and underscores where Go rejects them. int
accepts numbers of any width, and raises an error of its own for more than 4,300 digits.

Go: internal/strconv/atoi.go, internal/strconv/atof.go
"""

from __future__ import annotations

import json
import re

_DIGITS = {2: "[01]+", 8: "[0-7]+", 10: "[0-9]+", 16: "[0-9a-fA-F]+"}
_PREFIXES = {"0b": 2, "0o": 8, "0x": 16}
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[+-]?(?:inf(?:inity)?)|nan", re.IGNORECASE | re.ASCII)
# One underscore may stand between digits, or between a base's prefix and its digits. The repetition is possessive,
# because backtracking in a long text would take more than a hundred bytes for each digit.
_UNDERSCORES = re.compile(r"(?:0[box]|[0-9a-f])(?:_?[0-9a-f])*+", re.IGNORECASE | re.ASCII)
# No 64-bit number has more digits, in any base.
_MAX_DIGITS = 64
# A message quotes this many characters of invalid text.
_QUOTED = 100


class NumError(ValueError):
    """Signal that text is not a number, or not one of the requested width. The message is Go's."""

    def __init__(self, function: str, text: str, reason: str) -> None:
        quoted = json.dumps(text if len(text) <= _QUOTED else text[:_QUOTED] + "...", ensure_ascii=False)
        super().__init__(f"strconv.{function}: parsing {quoted}: {reason}")


def parse_int(text: str, base: int = 10, bits: int = 64) -> int:
    """Parse a signed integer. Raise NumError if that fails.

    With base 0, the text may have Go's prefixes, a leading 0 for octal, and underscores.
    """
    return _signed("ParseInt", text, base, bits)


def atoi(text: str) -> int:
    """Parse a signed decimal number of 64 bits. Only the message differs from that of parse_int."""
    return _signed("Atoi", text, 10, 64)


def parse_uint(text: str, base: int = 10, bits: int = 64) -> int:
    """Parse an integer without a sign, otherwise as parse_int does."""
    value = _magnitude("ParseUint", text, text, base)
    if value >= 1 << bits:
        raise NumError("ParseUint", text, "value out of range")
    return value


def parse_float(text: str) -> float:
    """Parse a decimal number, "inf" or "nan". Raise NumError if that fails or the number is too large for a float."""
    if _FLOAT.fullmatch(text) is None:
        if _SPECIAL_FLOAT.fullmatch(text) is None:
            raise NumError("ParseFloat", text, "invalid syntax")
        return float(text)
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise NumError("ParseFloat", text, "value out of range")
    return value


def _signed(function: str, text: str, base: int, bits: int) -> int:
    sign = text[:1] if text[:1] in ("+", "-") else ""
    magnitude = _magnitude(function, text, text[len(sign) :], base)
    value = -magnitude if sign == "-" else magnitude
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise NumError(function, text, "value out of range")
    return value


def _magnitude(function: str, text: str, digits: str, base: int) -> int:
    if base == 0:
        base, digits = _without_prefix(digits)
    if re.fullmatch(_DIGITS[base], digits) is None:
        raise NumError(function, text, "invalid syntax")
    digits = digits.lstrip("0") or "0"
    if len(digits) > _MAX_DIGITS:
        raise NumError(function, text, "value out of range")
    return int(digits, base)


def _without_prefix(digits: str) -> tuple[int, str]:
    """Return the base of a number and its digits. For an invalid number, the returned digits are invalid too."""
    plain = digits.replace("_", "") if _UNDERSCORES.fullmatch(digits) else digits
    prefix = plain[:2].lower()
    if prefix in _PREFIXES:
        return _PREFIXES[prefix], plain[2:]
    if plain[:1] == "0" and len(plain) > 1:
        return 8, plain[1:]
    return 10, plain
