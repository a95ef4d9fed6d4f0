"""Small types that many packages share.

Go: staging/src/k8s.io/apimachinery/pkg/types
"""

from __future__ import annotations

import enum


class PatchType(enum.StrEnum):
    """How a patch is written; the value is its content type.  Go: patch.go"""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC_MERGE = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"
