"""Define the hard thresholds of a node whose configuration sets none.

Go: pkg/kubelet/eviction/defaults_linux.go
"""

from __future__ import annotations

DEFAULT_EVICTION_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
