"""Which volumes pods want.

Go: pkg/kubelet/volumemanager/cache/desired_state_of_world.go
"""

from __future__ import annotations

import threading

from pkg.api.core import v1
from pkg.volume import Spec, VolumePluginMgr
from pkg.volume import util as volumeutil
from pkg.volume.util.operationexecutor.simple_executor import VolumeToMount

# Errors that are kept of one pod; more say nothing new.
MAX_POD_ERRORS = 10


class DesiredStateOfWorld:
    """Volumes by pod. Safe from any thread; everything handed out is a copy."""

    def __init__(self, plugins: VolumePluginMgr) -> None:
        self._plugins = plugins
        self._lock = threading.Lock()  # guards the two below
        self._volumes: dict[tuple[str, str], VolumeToMount] = {}
        self._pod_errors: dict[str, list[str]] = {}

    def add_pod_to_volume(self, pod_name: str, pod: v1.Pod, spec: Spec, outer_volume_spec_name: str) -> str:
        """Note that the pod wants the volume; the volume's unique name. Raises ValueError when no plugin fits."""
        plugin = self._plugins.find_plugin_by_spec(spec)
        volume_name = volumeutil.get_unique_volume_name_from_spec_with_pod(pod_name, plugin, spec)
        volume = VolumeToMount(volume_name, pod_name, spec, outer_volume_spec_name, pod, plugin.get_plugin_name())
        with self._lock:
            self._volumes[pod_name, volume_name] = volume
        return volume_name

    def delete_pod_from_volume(self, pod_name: str, volume_name: str) -> None:
        with self._lock:
            self._volumes.pop((pod_name, volume_name), None)
            if not any(pod == pod_name for pod, _ in self._volumes):
                self._pod_errors.pop(pod_name, None)

    def pod_exists_in_volume(self, pod_name: str, volume_name: str) -> bool:
        with self._lock:
            return (pod_name, volume_name) in self._volumes

    def get_volumes_to_mount(self) -> list[VolumeToMount]:
        with self._lock:
            return list(self._volumes.values())

    def get_volumes_of_pod(self, pod_name: str) -> list[VolumeToMount]:
        with self._lock:
            return [volume for (pod, _), volume in self._volumes.items() if pod == pod_name]

    def add_error_to_pod(self, pod_name: str, message: str) -> None:
        """Keep a fault for whoever waits for the pod's volumes."""
        with self._lock:
            errors = self._pod_errors.setdefault(pod_name, [])
            if message not in errors and len(errors) < MAX_POD_ERRORS:
                errors.append(message)

    def has_pod_errors(self, pod_name: str) -> bool:
        with self._lock:
            return pod_name in self._pod_errors

    def pop_pod_errors(self, pod_name: str) -> list[str]:
        with self._lock:
            return sorted(self._pod_errors.pop(pod_name, []))
