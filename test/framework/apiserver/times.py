"""Convert the times in API objects."""

from __future__ import annotations

import datetime


def timestamp(moment: datetime.datetime | None = None) -> str:
    """Return a time, by default the present one, in the form that API objects have."""
    moment = moment or datetime.datetime.now(datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
