"""Define options that are sent as a query and not as an object, so the generated types lack them.

Go: k8s.io/api/core/v1/types.go
"""

from __future__ import annotations

import datetime

import msgspec


class PodLogOptions(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Describe the requested part of a container's log."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    since_seconds: int | None = None
    since_time: datetime.datetime | None = None
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    insecure_skip_tls_verify_backend: bool = msgspec.field(default=False, name="insecureSkipTLSVerifyBackend")
    # The value is "All", "Stdout" or "Stderr"; None means "All".
    stream: str | None = None
