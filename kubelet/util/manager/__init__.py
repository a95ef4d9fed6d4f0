"""Fetch or watch the API objects that pods on this node refer to, for as long as a pod needs them.

Go: pkg/kubelet/util/manager
"""

from kubelet.util.manager.cache_based_manager import (
    CacheBasedManager,
    GetObjectFunc,
    GetObjectTTLFunc,
    ObjectKey,
    ObjectStore,
    get_object_ttl_from_node_func,
)
from kubelet.util.manager.manager import Manager, Store, visited_names
from kubelet.util.manager.watch_based_manager import ObjectCache, new_watch_based_manager

__all__ = [
    "CacheBasedManager",
    "GetObjectFunc",
    "GetObjectTTLFunc",
    "Manager",
    "ObjectCache",
    "ObjectKey",
    "ObjectStore",
    "Store",
    "get_object_ttl_from_node_func",
    "new_watch_based_manager",
    "visited_names",
]
