"""Represent quantities: exact amounts of CPU, memory and other resources, with the API's suffixes.

Go: k8s.io/apimachinery/pkg/api/resource/quantity.go
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache, total_ordering
from typing import Final

from pkg.golang import strconv


class Format(enum.StrEnum):
    """List the families of suffixes in which a quantity can be written."""

    DECIMAL_EXPONENT = "DecimalExponent"
    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"


NANO: Final = 10**9
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_MAX_NANOS: Final = (2**63 - 1) * NANO
_SYNTAX: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]+|)")
# A number with more than `_MAX_DIGITS` digits before the point exceeds the largest amount. Whatever the suffix is,
# further digits can only round up the last significant digit.
_MAX_DIGITS: Final = 64
# `_MAX_KEPT` is the longest text that the parser caches. A pod may contain many different numbers, each with a mebibyte
# of text.
_MAX_KEPT: Final = 64


class QuantityError(ValueError):
    """Signal that a text is not a quantity."""


@total_ordering
class Quantity:
    """Represent an amount, exact to 10⁻⁹, with its family of suffixes.

    Quantities are immutable, so threads can share them. Equality, order and hash use the amount: 1 equals 1000m.
    """

    __slots__ = ("_text", "format", "nanos")

    def __init__(self, nanos: int, format: Format = Format.DECIMAL_SI) -> None:
        self.nanos = nanos
        self.format = format
        self._text: str | None = None

    def value(self) -> int:
        """Return the amount in whole units, rounded away from zero."""
        return self.scaled_value(0)

    def milli_value(self) -> int:
        """Return the amount in thousandths, rounded away from zero."""
        return self.scaled_value(-3)

    def scaled_value(self, exponent: int) -> int:
        """Return the amount in units of 10^exponent, rounded away from zero."""
        shift = exponent + 9
        # The type checker does not know that the power is an int, because a negative exponent would give a float.
        power = int(10 ** abs(shift))
        if shift <= 0:
            return self.nanos * power
        magnitude = -(-abs(self.nanos) // power)
        return magnitude if self.nanos >= 0 else -magnitude

    def sign(self) -> int:
        return (self.nanos > 0) - (self.nanos < 0)

    def is_zero(self) -> bool:
        return self.nanos == 0

    def cmp(self, other: Quantity) -> int:
        """Return −1, 0 or 1 if self is less than, equal to or greater than other."""
        return (self.nanos > other.nanos) - (self.nanos < other.nanos)

    def add(self, other: Quantity) -> Quantity:
        """Return the sum, in the format of self, or of other if self is zero."""
        return Quantity(self.nanos + other.nanos, other.format if self.is_zero() else self.format)

    def sub(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, other.format if self.is_zero() else self.format)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __str__(self) -> str:
        if self._text is None:
            self._text = _canonical(self.nanos, self.format)
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __reduce__(self) -> tuple[type[Quantity], tuple[int, Format]]:
        return Quantity, (self.nanos, self.format)


def _canonical(nanos: int, format: Format) -> str:
    if nanos == 0:
        return "0"
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    if format is Format.BINARY_SI and (nanos < 1024 * NANO or nanos % NANO):
        format = Format.DECIMAL_SI
    if format is Format.BINARY_SI:
        number, suffix = nanos // NANO, ""
        for candidate, factor in _BINARY.items():
            if (nanos // NANO) % factor == 0:
                number, suffix = nanos // NANO // factor, candidate
        return f"{sign}{number}{suffix}"
    exponent = -9
    while exponent < 18 and nanos % 1000 == 0:
        nanos, exponent = nanos // 1000, exponent + 3
    if format is Format.DECIMAL_EXPONENT:
        return f"{sign}{nanos}" + (f"e{exponent}" if exponent else "")
    return f"{sign}{nanos}{_DECIMAL_SUFFIX[exponent]}"


def parse_quantity(text: str) -> Quantity:
    """Parse a quantity such as "100m", "1.5Gi" or "2e3".

    Fractions finer than 10⁻⁹ are rounded up, and amounts above 2⁶³−1 are capped. Raise QuantityError for anything else.
    """
    return _parse(text) if len(text) <= _MAX_KEPT else _parse.__wrapped__(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _SYNTAX.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise QuantityError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, whole, fraction, suffix = match[1], match[2].lstrip("0"), match[3] or "", match[4]
    if suffix in _BINARY:
        format, factor, exponent = Format.BINARY_SI, _BINARY[suffix], 0
    elif suffix[:1] in ("e", "E") and suffix != "E":
        format, factor, exponent = Format.DECIMAL_EXPONENT, 1, _exponent(suffix[1:])
    else:
        format, factor, exponent = Format.DECIMAL_SI, 1, _DECIMAL[suffix]
    digits, shift = _digits(whole, fraction, 9 + exponent)
    if not digits:
        nanos = 0
    elif shift > 40:
        nanos = _MAX_NANOS
    elif shift >= 0:
        nanos = digits * factor * 10**shift
    else:
        nanos = -(-digits * factor // 10 ** min(-shift, 400))
    nanos = min(nanos, _MAX_NANOS)
    return Quantity(-nanos if sign == "-" else nanos, format)


def _exponent(text: str) -> int:
    try:
        return strconv.parse_int(text)
    except strconv.NumError as err:
        raise QuantityError(f"unable to parse quantity's suffix: {err}") from err


def _digits(whole: str, fraction: str, shift: int) -> tuple[int, int]:
    """Return the number as digits × 10^shift, without digits that do not matter."""
    digits = (whole + fraction).lstrip("0")
    shift -= len(fraction)
    if len(digits) > _MAX_DIGITS:
        rest = digits[_MAX_DIGITS:]
        shift += len(rest) - 1
        digits = digits[:_MAX_DIGITS] + ("1" if rest.strip("0") else "0")
    return int(digits or "0"), shift


def must_parse(text: str) -> Quantity:
    """Parse a quantity that is a constant of this program."""
    return parse_quantity(text)


def new_quantity(value: int, format: Format = Format.DECIMAL_SI) -> Quantity:
    """Return a quantity of whole units."""
    return Quantity(value * NANO, format)


def new_milli_quantity(value: int, format: Format = Format.DECIMAL_SI) -> Quantity:
    """Return a quantity of thousandths."""
    return Quantity(value * 10**6, format)
