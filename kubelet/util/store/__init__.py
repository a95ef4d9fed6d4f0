"""Store small data by key across restarts.

Go: pkg/kubelet/util/store
"""

from kubelet.util.store.filestore import (
    FileStore,
)
from kubelet.util.store.store import (
    ErrKeyNotFound,
    Store,
    validate_key,
)

__all__ = [
    "ErrKeyNotFound",
    "FileStore",
    "Store",
    "validate_key",
]
