"""Convert the parameters of a query into options.

Go: pkg/apis/core/v1/zz_generated.conversion.go, k8s.io/apimachinery/pkg/runtime/conversion.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pkg import golang
from pkg.api.core import v1
from pkg.golang import strconv

_ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)

_Query = Mapping[str, Sequence[str]]


def convert_url_values_to_pod_log_options(query: _Query) -> v1.PodLogOptions:
    """Return the options; raise ValueError that names the invalid parameter.

    The first of several parameters with the same name counts.
    """
    return v1.PodLogOptions(
        container=_first(query, "container") or "",
        follow=_bool(query, "follow"),
        previous=_bool(query, "previous"),
        since_seconds=_int64(query, "sinceSeconds"),
        since_time=_time(query, "sinceTime"),
        timestamps=_bool(query, "timestamps"),
        tail_lines=_int64(query, "tailLines"),
        limit_bytes=_int64(query, "limitBytes"),
        insecure_skip_tls_verify_backend=_bool(query, "insecureSkipTLSVerifyBackend"),
        stream=_first(query, "stream"),
    )


def _first(query: _Query, name: str) -> str | None:
    values = query.get(name)
    return values[0] if values else None


def _bool(query: _Query, name: str) -> bool:
    """Return False for "0", "false" and a missing parameter, and True otherwise, even for an empty value."""
    value = _first(query, name)
    return value is not None and value != "0" and value.lower() != "false"


def _int64(query: _Query, name: str) -> int | None:
    value = _first(query, name)
    if value is None:
        return None
    try:
        return strconv.parse_int(value)
    except strconv.NumError as err:
        raise ValueError(f"{name}: {err}") from err


def _time(query: _Query, name: str) -> datetime | None:
    value = _first(query, name)
    if value is None:
        return None
    if value in ("", "null"):
        return _ZERO_TIME
    try:
        return golang.parse_rfc3339(value)
    except ValueError as err:
        raise ValueError(f"{name}: {err}") from err
