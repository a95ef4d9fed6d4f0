"""What the manager of user namespaces asks the kubelet.

Go: pkg/kubelet/userns/types.go
"""

from __future__ import annotations

from typing import Protocol

from pkg.apimachinery import types


class UserNsPodsManager(Protocol):
    """Implemented by the kubelet. Go: userNsPodsManager"""

    def handler_supports_user_namespaces(self, runtime_handler: str) -> bool:
        """Raises LookupError for a handler that the runtime does not have."""
        ...

    def get_pod_dir(self, pod_uid: types.UID) -> str: ...

    def list_pods_from_disk(self) -> list[types.UID]:
        """UIDs of the pods that have a directory. Raises OSError."""
        ...

    def get_kubelet_mappings(self, ids_per_pod: int) -> tuple[int, int]:
        """(first, number) of the ids that pods may get. Raises ValueError, OSError."""
        ...

    def get_max_pods(self) -> int: ...
