"""Times as they are written in queries.

Go: k8s.io/apimachinery/pkg/apis/meta/v1/time.go
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)


def parse_rfc3339(text: str) -> datetime:
    """In UTC, cut to microseconds. Raises ValueError, for a time before the year 1 or after 9999 in UTC as well."""
    if _RFC3339.fullmatch(text) is None:
        raise ValueError(f'cannot parse "{text}" as a time of the form "2006-01-02T15:04:05Z07:00"')
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError as err:
        raise ValueError(f'time "{text}" is out of range') from err
