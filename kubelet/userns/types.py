"""Define what the manager of user namespaces needs from the kubelet.

Go: pkg/kubelet/userns/types.go
"""

from __future__ import annotations

from typing import Protocol

from pkg.apimachinery import types


class UserNsPodsManager(Protocol):
    """Define the manager's queries to the kubelet.

    Go: userNsPodsManager
    """

    def handler_supports_user_namespaces(self, runtime_handler: str) -> bool:
        """Report whether a runtime handler supports user namespaces. Raise LookupError for an unknown handler."""
        ...

    def get_pod_dir(self, pod_uid: types.UID) -> str: ...

    def list_pods_from_disk(self) -> list[types.UID]:
        """List the UIDs of the pods that have a directory. Raise OSError."""
        ...

    def get_kubelet_mappings(self, ids_per_pod: int) -> tuple[int, int]:
        """Return the first ID and the number of IDs for pods. Raise ValueError or OSError."""
        ...

    def get_max_pods(self) -> int: ...
