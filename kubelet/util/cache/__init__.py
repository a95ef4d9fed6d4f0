"""Cache values that expire.

Go: pkg/kubelet/util/cache
"""

from kubelet.util.cache.object_cache import (
    ObjectCache,
    T,
)

__all__ = [
    "ObjectCache",
    "T",
]
