"""Moments as objects carry them."""

from __future__ import annotations

import datetime


def timestamp(moment: datetime.datetime | None = None) -> str:
    """A moment (now) as objects carry it."""
    moment = moment or datetime.datetime.now(datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
