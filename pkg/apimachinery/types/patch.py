"""List the types of patches.

Go: k8s.io/apimachinery/pkg/types/patch.go
"""

from __future__ import annotations

import enum


class PatchType(enum.StrEnum):
    """List the types of patches; the value is the content type of the request."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC_MERGE = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"
