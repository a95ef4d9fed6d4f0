"""Represent the namespace and the name of an object.

Go: k8s.io/apimachinery/pkg/types/namespacedname.go
"""

from __future__ import annotations

from typing import NamedTuple


class NamespacedName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
