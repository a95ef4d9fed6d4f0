"""Where things are on disk, and what the rest of the process may ask the kubelet.

Go: pkg/kubelet/kubelet_getters.go
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kubelet import kubeletconfig
from kubelet import types as kubetypes
from kubelet.kubelet_struct import KubeletStruct
from pkg import klog
from pkg.api.core import v1

if TYPE_CHECKING:
    from kubelet import container as kubecontainer
    from pkg import golang

CSI_PLUGIN_NAME = "kubernetes.io/csi"


class KubeletGetters(KubeletStruct):
    """Paths and look-ups. Every method may be called from any thread."""

    def get_root_dir(self) -> str:
        return self.root_directory

    def get_pods_dir(self) -> str:
        return os.path.join(self.get_root_dir(), kubeletconfig.DEFAULT_KUBELET_PODS_DIR_NAME)

    def get_plugins_dir(self) -> str:
        return os.path.join(self.get_root_dir(), kubeletconfig.DEFAULT_KUBELET_PLUGINS_DIR_NAME)

    def get_plugins_registration_dir(self) -> str:
        return os.path.join(self.get_root_dir(), kubeletconfig.DEFAULT_KUBELET_PLUGINS_REGISTRATION_DIR_NAME)

    def get_plugin_dir(self, plugin_name: str) -> str:
        return os.path.join(self.get_plugins_dir(), plugin_name)

    def get_checkpoints_dir(self) -> str:
        return os.path.join(self.get_root_dir(), kubeletconfig.DEFAULT_KUBELET_CHECKPOINTS_DIR_NAME)

    def get_pod_dir(self, pod_uid: str) -> str:
        return os.path.join(self.get_pods_dir(), pod_uid)

    def get_pod_volume_subpaths_dir(self, pod_uid: str) -> str:
        return os.path.join(self.get_pod_dir(pod_uid), kubeletconfig.DEFAULT_KUBELET_VOLUME_SUBPATHS_DIR_NAME)

    def get_pod_volumes_dir(self, pod_uid: str) -> str:
        return os.path.join(self.get_pod_dir(pod_uid), kubeletconfig.DEFAULT_KUBELET_VOLUMES_DIR_NAME)

    def get_pod_volume_dir(self, pod_uid: str, plugin_name: str, volume_name: str) -> str:
        return os.path.join(self.get_pod_volumes_dir(pod_uid), plugin_name, volume_name)

    def get_pod_plugins_dir(self, pod_uid: str) -> str:
        return os.path.join(self.get_pod_dir(pod_uid), kubeletconfig.DEFAULT_KUBELET_PLUGINS_DIR_NAME)

    def get_pod_plugin_dir(self, pod_uid: str, plugin_name: str) -> str:
        return os.path.join(self.get_pod_plugins_dir(pod_uid), plugin_name)

    def get_pod_container_dir(self, pod_uid: str, container_name: str) -> str:
        containers = os.path.join(self.get_pod_dir(pod_uid), kubeletconfig.DEFAULT_KUBELET_CONTAINERS_DIR_NAME)
        return os.path.join(containers, container_name)

    def get_pod_resources_dir(self) -> str:
        return os.path.join(self.get_root_dir(), kubeletconfig.DEFAULT_KUBELET_POD_RESOURCES_DIR_NAME)

    def get_pods(self) -> list[v1.Pod]:
        """All pods bound to this node, static ones with the status the kubelet knows of them."""
        return [self._with_known_status(pod) for pod in self.pod_manager.get_pods()]

    def _with_known_status(self, pod: v1.Pod) -> v1.Pod:
        if not kubetypes.is_static_pod(pod):
            return pod
        status, found = self.status_manager.get_pod_status(pod.metadata.uid)
        if not found:
            return pod
        pod = v1.deepcopy(pod)
        pod.status = status
        return pod

    def get_running_pods(self, ctx: golang.Context) -> list[v1.Pod]:
        """Pods that have something running in the runtime, whoever started it."""
        return [pod.to_api_pod() for pod in self.runtime_cache.get_pods(ctx)]

    def get_pod_by_full_name(self, pod_full_name: str) -> v1.Pod | None:
        return self.pod_manager.get_pod_by_full_name(pod_full_name)

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        return self.pod_manager.get_pod_by_name(namespace, name)

    def get_runtime(self) -> kubecontainer.Runtime:
        return self.container_runtime

    def get_extra_supplemental_groups_for_pod(self, pod: v1.Pod) -> list[int]:
        """Groups that the pod's volumes ask its processes to be in."""
        return self.volume_manager.get_extra_supplemental_groups_for_pod(pod)

    def get_pod_volume_path_list_from_disk(self, pod_uid: str) -> list[str]:
        """Every volume directory under the pod's directory. Raises OSError when one cannot be read."""
        volumes: list[str] = []
        for plugin_name, plugin_path in _list_dir(self.get_pod_volumes_dir(pod_uid)):
            paths = [path for _, path in _list_dir(plugin_path)]
            if plugin_name.replace("~", "/") == CSI_PLUGIN_NAME:
                mounts = [os.path.join(path, "mount") for path in paths]
                paths = [path for path in mounts if os.path.lexists(path)]
            volumes += paths
        return volumes

    def get_mounted_volume_path_list_from_disk(self, pod_uid: str) -> list[str]:
        """Those of the pod's volume directories that are mount points."""
        paths = self.get_pod_volume_path_list_from_disk(pod_uid)
        return [path for path in paths if not self.mounter.is_likely_not_mount_point(path)]

    def get_pod_volume_subpath_list_from_disk(self, pod_uid: str) -> list[str]:
        """Every bind target of a subPath under the pod's directory: volume/container/index."""
        subpaths: list[str] = []
        for _, volume_path in _list_dir(self.get_pod_volume_subpaths_dir(pod_uid)):
            for _, container_path in _list_dir(volume_path):
                subpaths += [path for _, path in _list_dir(container_path)]
        return subpaths


def _list_dir(path: str) -> list[tuple[str, str]]:
    """Names and paths in a directory, without touching the entries: one may be a mount that hangs."""
    try:
        return [(name, os.path.join(path, name)) for name in sorted(os.listdir(path))]
    except FileNotFoundError:
        klog.v(6).info_s("Path does not exist", path=path)
        return []


def list_pods_from_disk(pods_dir: str) -> list[str]:
    """UIDs of all pods that have a directory.  Go: kubelet_pods.go, listPodsFromDisk"""
    return sorted(entry.name for entry in os.scandir(pods_dir) if entry.is_dir(follow_symlinks=False))
