"""Check the types of events, and generate their names.

Go: k8s.io/client-go/tools/record/util/util.go
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from pkg.api.core import v1
from pkg.apimachinery.api import validation

_EPOCH = datetime.fromtimestamp(0, UTC)


def validate_event_type(event_type: str) -> bool:
    return event_type in (v1.EVENT_TYPE_NORMAL, v1.EVENT_TYPE_WARNING)


def generate_event_name(ref_name: str, now: datetime) -> str:
    """Return `NAME.NANOSECONDS`, with the nanoseconds in hex, or a UUID if that is not a valid name."""
    name = f"{ref_name}.{(now - _EPOCH) // timedelta(microseconds=1) * 1000:x}"
    return str(uuid.uuid4()) if validation.name_is_dns_subdomain(name, False) else name
