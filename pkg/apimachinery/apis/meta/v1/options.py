"""Define the options of requests to the API server.

Go: k8s.io/apimachinery/pkg/apis/meta/v1/types.go
"""

from __future__ import annotations

import msgspec

RESOURCE_VERSION_MATCH_NOT_OLDER_THAN = "NotOlderThan"
RESOURCE_VERSION_MATCH_EXACT = "Exact"

# A bookmark with this annotation says that all objects which existed at the start of the watch were sent.
INITIAL_EVENTS_ANNOTATION_KEY = "k8s.io/initial-events-end"


class GetOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Hold the options of get; the resource version "0" allows any version that the server has in memory."""

    resource_version: str = ""


class ListOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Hold the options of list and watch."""

    label_selector: str = ""
    field_selector: str = ""
    watch: bool = False
    allow_watch_bookmarks: bool = False
    resource_version: str = ""
    resource_version_match: str = ""
    timeout_seconds: int | None = None
    limit: int = 0
    continue_: str = ""
    send_initial_events: bool | None = None


class CreateOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Hold the options of create."""

    dry_run: list[str] = []
    field_manager: str = ""
    field_validation: str = ""


class UpdateOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Hold the options of update."""

    dry_run: list[str] = []
    field_manager: str = ""
    field_validation: str = ""


class PatchOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Hold the options of patch."""

    dry_run: list[str] = []
    force: bool | None = None
    field_manager: str = ""
    field_validation: str = ""


__all__ = [
    "INITIAL_EVENTS_ANNOTATION_KEY",
    "RESOURCE_VERSION_MATCH_EXACT",
    "RESOURCE_VERSION_MATCH_NOT_OLDER_THAN",
    "CreateOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
]
