"""Which volumes pods have.

Go: pkg/kubelet/volumemanager/cache/actual_state_of_world.go
"""

from __future__ import annotations

import threading

from pkg.volume.util.operationexecutor.simple_executor import MountedVolume


class ActualStateOfWorld:
    """Volumes by pod, certain ones and ones that may be there. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _volumes
        self._volumes: dict[tuple[str, str], MountedVolume] = {}

    def mark_volume_as_mounted(self, volume: MountedVolume) -> None:
        with self._lock:
            self._volumes[volume.pod_name, volume.volume_name] = volume

    def mark_volume_as_unmounted(self, pod_name: str, volume_name: str) -> None:
        with self._lock:
            self._volumes.pop((pod_name, volume_name), None)

    def is_volume_mounted(self, pod_name: str, volume_name: str) -> bool:
        """Whether the volume is surely set up for the pod."""
        with self._lock:
            volume = self._volumes.get((pod_name, volume_name))
            return volume is not None and not volume.uncertain

    def get_all_mounted_volumes(self) -> list[MountedVolume]:
        """All volumes, those that only may be there included."""
        with self._lock:
            return list(self._volumes.values())

    def get_mounted_volumes_for_pod(self, pod_name: str) -> list[MountedVolume]:
        with self._lock:
            return [v for (pod, _), v in self._volumes.items() if pod == pod_name and not v.uncertain]

    def get_possibly_mounted_volumes_for_pod(self, pod_name: str) -> list[MountedVolume]:
        with self._lock:
            return [v for (pod, _), v in self._volumes.items() if pod == pod_name]
