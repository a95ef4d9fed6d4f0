"""Convert durations between Go's notation, "1m30s", and seconds as a float.

Go: time/format.go (ParseDuration), time/time.go (Duration.String)
"""

from __future__ import annotations

import re

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)([^\d.]*)", re.ASCII)
_MAX_NANOSECONDS = (1 << 63) - 1


def parse_duration(text: str) -> float:
    """Return the duration in seconds; raise ValueError in Go's words."""
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    seconds, pos = 0.0, 0
    for part in _PART.finditer(rest):
        if part.start() != pos:
            break
        number, unit = part.groups()
        if not unit:
            raise ValueError(f'time: missing unit in duration "{text}"')
        if unit not in _SECONDS:
            raise ValueError(f'time: unknown unit "{unit}" in duration "{text}"')
        seconds += float(number) * _SECONDS[unit]
        pos = part.end()
    if pos != len(rest) or not rest or seconds * 1e9 > _MAX_NANOSECONDS:
        raise ValueError(f'time: invalid duration "{text}"')
    # The result is rounded to whole nanoseconds, so that "100ms" is 0.1 without a rounding error of the sum.
    seconds = round(seconds * 1e9) / 1e9
    return -seconds if text[:1] == "-" else seconds


def format_duration(seconds: float) -> str:
    """Return the duration in Go's notation, exact to the nanosecond."""
    nanos = round(abs(seconds) * 1e9)
    sign = "-" if seconds < 0 and nanos else ""
    if nanos == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if nanos < size * 1000:
            return f"{sign}{_decimal(nanos, size)}{unit}"
    minutes, rest = divmod(nanos, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, 10**9)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    if hours:
        text = f"{hours}h{text}"
    return sign + text


def _decimal(value: int, size: int) -> str:
    whole, fraction = divmod(value, size)
    if not fraction:
        return str(whole)
    return f"{whole}.{str(fraction).rjust(len(str(size)) - 1, '0').rstrip('0')}"
