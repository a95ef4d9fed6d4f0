"""Parse times from external text as Go does.

Go: time/format_rfc3339.go, time/format.go
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_MIN = datetime.min.replace(tzinfo=UTC)
_MAX = datetime.max.replace(tzinfo=UTC)
_MICROSECOND_DIGITS = 6
_MAX_OFFSET_HOURS, _MAX_OFFSET_MINUTES = 24, 60
# The calendar repeats after this many years, so this leap year represents the year 0.
_CYCLE = 400
_QUOTED = 100


def parse_rfc3339(text: str) -> datetime:
    """Return the time in UTC, truncated to microseconds. Raise ValueError if the text is not an RFC 3339 time.

    A time that Python's datetime cannot represent, before the year 1 or after 9999, becomes the first or the last
    datetime.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        quoted = text if len(text) <= _QUOTED else text[:_QUOTED] + "..."
        raise ValueError(f'cannot parse "{quoted}" as a time of the form "2006-01-02T15:04:05Z07:00"')
    year = int(match[1])
    micros = int((match[7] or "")[:_MICROSECOND_DIGITS].ljust(_MICROSECOND_DIGITS, "0"))
    try:
        # Go accepts the year 0.
        month, day, hour, minute, second = (int(match[i]) for i in range(2, 7))
        local = datetime(year or _CYCLE, month, day, hour, minute, second, micros, UTC)
    except ValueError as err:
        raise ValueError(f'cannot parse "{text[:_QUOTED]}" as a time: {err}') from err
    offset = _offset(text, match)
    if year == 0:
        return _MIN
    try:
        return local - offset
    except OverflowError:
        return _MIN if offset > timedelta() else _MAX


def _offset(text: str, match: re.Match[str]) -> timedelta:
    if match[8] is None:
        return timedelta()
    hours, minutes = int(match[9]), int(match[10])
    if hours > _MAX_OFFSET_HOURS or minutes > _MAX_OFFSET_MINUTES:
        raise ValueError(f'cannot parse "{text[:_QUOTED]}" as a time: time zone offset out of range')
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if match[8] == "-" else offset
