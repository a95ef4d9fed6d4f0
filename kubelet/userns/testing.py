"""Define a kubelet as the manager of user namespaces sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pkg.apimachinery import types

# LENGTH is the number of IDs of a pod, MAPPING_LENGTH the number of IDs of all pods.
LENGTH = 65536
MAPPING_LENGTH = LENGTH * 2000


@dataclass
class FakeUserNsPodsManager:
    """Imitate a kubelet whose pods have their directories below `root`."""

    root: Path
    # These pods have a directory; None means the directories on the disk.
    pods: list[str] | None = None
    handlers: dict[str, bool] = field(default_factory=dict)
    max_pods: int = 110
    mapping: tuple[int, int] = (LENGTH, MAPPING_LENGTH)
    list_error: OSError | None = None

    def handler_supports_user_namespaces(self, runtime_handler: str) -> bool:
        return self.handlers[runtime_handler]

    def get_pod_dir(self, pod_uid: types.UID) -> str:
        return str(self.root / pod_uid)

    def list_pods_from_disk(self) -> list[types.UID]:
        if self.list_error is not None:
            raise self.list_error
        names = self.pods if self.pods is not None else [entry.name for entry in self.root.iterdir()]
        return [types.UID(name) for name in names]

    def get_kubelet_mappings(self, ids_per_pod: int) -> tuple[int, int]:
        return self.mapping

    def get_max_pods(self) -> int:
        return self.max_pods
