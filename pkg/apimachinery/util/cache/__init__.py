"""Provide caches whose entries expire.

Go: k8s.io/apimachinery/pkg/util/cache
"""

from pkg.apimachinery.util.cache.lruexpirecache import LRUExpireCache

__all__ = ["LRUExpireCache"]
