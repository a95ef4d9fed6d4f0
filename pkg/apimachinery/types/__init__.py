"""Define small types that many packages share.

Go: k8s.io/apimachinery/pkg/types
"""

from pkg.apimachinery.types.namespacedname import NamespacedName
from pkg.apimachinery.types.patch import PatchType
from pkg.apimachinery.types.uid import UID

__all__ = ["UID", "NamespacedName", "PatchType"]
