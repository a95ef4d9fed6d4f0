"""Locate directories on disk, and answer queries from the rest of the process.

Go: pkg/kubelet/kubelet_getters.go
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubelet import kubeletconfig
from kubelet import types as kubetypes
from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.util import exec as utilexec

if TYPE_CHECKING:
    from kubelet import cadvisor as kubecadvisor
    from kubelet import cm, status, volumemanager
    from kubelet import container as kubecontainer
    from kubelet import pod as kubepod
    from kubelet.cadvisor.info import v1 as cadvisorapi
    from kubelet.cadvisor.info import v2 as cadvisorapiv2
    from kubelet.runtime import RuntimeState
    from pkg import golang, mount_utils

CSI_PLUGIN_NAME = "kubernetes.io/csi"

# Pods use the subordinate IDs of this user, which this program prints.
_KUBELET_USER = "kubelet"
_GETSUBIDS = "getsubids"
# A server that stores the subordinate IDs may take this long to respond, in seconds.
GETSUBIDS_TIMEOUT = 30.0


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletDirectories:
    """Locate directories on disk. Any thread may call these methods."""

    root_directory: str

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

    def get_volume_device_plugins_dir(self) -> str:
        return os.path.join(self.get_root_dir(), kubeletconfig.DEFAULT_KUBELET_PLUGINS_DIR_NAME)

    def get_volume_device_plugin_dir(self, plugin_name: str) -> str:
        """Return the directory in which the plugin keeps a bind mount of each device for each pod."""
        plugin_dir = os.path.join(self.get_volume_device_plugins_dir(), plugin_name)
        return os.path.join(plugin_dir, kubeletconfig.DEFAULT_KUBELET_VOLUME_DEVICES_DIR_NAME)

    def get_checkpoints_dir(self) -> str:
        return os.path.join(self.get_root_dir(), kubeletconfig.DEFAULT_KUBELET_CHECKPOINTS_DIR_NAME)

    def get_pod_dir(self, pod_uid: types.UID) -> str:
        return os.path.join(self.get_pods_dir(), pod_uid)

    def list_pods_from_disk(self) -> list[types.UID]:
        """Return the UIDs of the pods that have a directory. Raise OSError on failure."""
        return list_pods_from_disk(self.get_pods_dir())

    def get_pod_volume_subpaths_dir(self, pod_uid: types.UID) -> str:
        return os.path.join(self.get_pod_dir(pod_uid), kubeletconfig.DEFAULT_KUBELET_VOLUME_SUBPATHS_DIR_NAME)

    def get_pod_volumes_dir(self, pod_uid: types.UID) -> str:
        return os.path.join(self.get_pod_dir(pod_uid), kubeletconfig.DEFAULT_KUBELET_VOLUMES_DIR_NAME)

    def get_pod_volume_dir(self, pod_uid: types.UID, plugin_name: str, volume_name: str) -> str:
        return os.path.join(self.get_pod_volumes_dir(pod_uid), plugin_name, volume_name)

    def get_pod_volume_devices_dir(self, pod_uid: types.UID) -> str:
        return os.path.join(self.get_pod_dir(pod_uid), kubeletconfig.DEFAULT_KUBELET_VOLUME_DEVICES_DIR_NAME)

    def get_pod_volume_device_dir(self, pod_uid: types.UID, plugin_name: str) -> str:
        return os.path.join(self.get_pod_volume_devices_dir(pod_uid), plugin_name)

    def get_pod_plugins_dir(self, pod_uid: types.UID) -> str:
        return os.path.join(self.get_pod_dir(pod_uid), kubeletconfig.DEFAULT_KUBELET_PLUGINS_DIR_NAME)

    def get_pod_plugin_dir(self, pod_uid: types.UID, plugin_name: str) -> str:
        return os.path.join(self.get_pod_plugins_dir(pod_uid), plugin_name)

    def get_pod_container_dir(self, pod_uid: types.UID, container_name: str) -> str:
        containers = os.path.join(self.get_pod_dir(pod_uid), kubeletconfig.DEFAULT_KUBELET_CONTAINERS_DIR_NAME)
        return os.path.join(containers, container_name)

    def get_pod_resources_dir(self) -> str:
        return os.path.join(self.get_root_dir(), kubeletconfig.DEFAULT_KUBELET_POD_RESOURCES_DIR_NAME)

    def get_debug_socket(self) -> str:
        """Return the path of the socket on which the kubelet serves only root. Go has no counterpart."""
        return os.path.join(self.get_root_dir(), kubeletconfig.DEBUG_SOCKET_NAME)


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletGetters(KubeletDirectories):
    """Answer queries. Any thread may call these methods."""

    cadvisor: kubecadvisor.Interface
    mounter: mount_utils.Interface
    container_manager: cm.ContainerManager
    max_pods: int
    pod_manager: kubepod.Manager
    runtime_cache: kubecontainer.RuntimeCache
    runtime_state: RuntimeState
    container_runtime: kubecontainer.Runtime
    status_manager: status.Manager
    volume_manager: volumemanager.VolumeManager

    def handler_supports_user_namespaces(self, runtime_handler: str) -> bool:
        """Report whether the handler can create a pod's user namespace. Raise LookupError for an unknown handler."""
        handlers = self.runtime_state.runtime_handlers()
        if not handlers:
            # An old runtime does not list its handlers.
            return False
        for handler in handlers:
            if handler.name == runtime_handler:
                return handler.supports_user_namespaces
        raise LookupError(f'the handler "{runtime_handler}" is not known')

    def get_kubelet_mappings(self, ids_per_pod: int) -> tuple[int, int]:
        """Return the IDs for pods with a user namespace, as (first, number). Raise ValueError or OSError on failure."""
        return get_kubelet_mappings(ids_per_pod)

    def get_node_config(self) -> cm.NodeConfig:
        return self.container_manager.get_node_config()

    def get_pod_cgroup_root(self) -> str:
        """Return the cgroup above all pods, in the form of the cgroup driver."""
        return self.container_manager.get_pod_cgroup_root()

    def get_pod_by_cgroupfs(self, cgroupfs: str) -> v1.Pod | None:
        """Return the pod with the cgroup of that name, in the form of the cgroup driver.

        Go: kubelet_pods.go
        """
        uid = self.container_manager.new_pod_container_manager().is_pod_cgroup(cgroupfs)
        return None if uid is None else self.pod_manager.get_pod_by_uid(uid)

    def get_requested_containers_info(
        self, container_name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapi.ContainerInfo]:
        """Return a cgroup, with those below it if the options request them. Raise LookupError or OSError on failure."""
        return self.cadvisor.get_requested_containers_info(container_name, options)

    def get_version_info(self) -> cadvisorapi.VersionInfo:
        """Return the versions of the kernel and other software. Raise OSError on failure."""
        return self.cadvisor.version_info()

    def get_cached_machine_info(self) -> cadvisorapi.MachineInfo:
        """Return the machine's hardware data. Raise OSError on failure."""
        return self.cadvisor.machine_info()

    def get_max_pods(self) -> int:
        return self.max_pods

    def get_pods(self) -> list[v1.Pod]:
        """Return all pods that are bound to this node; static pods have the kubelet's own status."""
        return [self._with_known_status(pod) for pod in self.pod_manager.get_pods()]

    def _with_known_status(self, pod: v1.Pod) -> v1.Pod:
        if not kubetypes.is_static_pod(pod):
            return pod
        status = self.status_manager.get_pod_status(pod.metadata.uid)
        if status is None:
            return pod
        pod = v1.deepcopy(pod)
        pod.status = status
        return pod

    def get_running_pods(self, ctx: golang.Context) -> list[v1.Pod]:
        """Return the pods that run in the runtime, even if this kubelet did not start them."""
        return [pod.to_api_pod() for pod in self.runtime_cache.get_pods(ctx)]

    def get_pod_by_full_name(self, pod_full_name: str) -> v1.Pod | None:
        return self.pod_manager.get_pod_by_full_name(pod_full_name)

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        return self.pod_manager.get_pod_by_name(namespace, name)

    def get_runtime(self) -> kubecontainer.Runtime:
        return self.container_runtime

    def get_extra_supplemental_groups_for_pod(self, pod: v1.Pod) -> list[int]:
        """Return the supplemental groups that the pod's volumes require for its processes."""
        return self.volume_manager.get_extra_supplemental_groups_for_pod(pod)

    def get_pod_volume_path_list_from_disk(self, pod_uid: types.UID) -> list[str]:
        """Return every volume directory under the pod's directory. Raise OSError if a directory cannot be read."""
        volumes: list[str] = []
        for plugin_name, plugin_path in _list_dir(self.get_pod_volumes_dir(pod_uid)):
            paths = [path for _, path in _list_dir(plugin_path)]
            if plugin_name.replace("~", "/") == CSI_PLUGIN_NAME:
                # List the parent directory, because the mount itself may hang.
                paths = [below for path in paths for name, below in _list_dir(path) if name == "mount"]
            volumes += paths
        return volumes

    def get_mounted_volume_path_list_from_disk(self, pod_uid: types.UID) -> list[str]:
        """Return the pod's volume directories that are mount points, without touching any of them."""
        paths = self.get_pod_volume_path_list_from_disk(pod_uid)
        if not paths:
            return []
        mounted = {point.path for point in self.mounter.list()}
        root = self.get_pods_dir()
        # The kernel's list of mounts has no symbolic links in its paths.
        real_root = os.path.realpath(root)
        return [path for path in paths if real_root + path.removeprefix(root) in mounted]

    def get_pod_volume_subpath_list_from_disk(self, pod_uid: types.UID) -> list[str]:
        """Return every bind mount target of a subPath under the pod's directory: volume/container/index."""
        subpaths: list[str] = []
        for _, volume_path in _list_dir(self.get_pod_volume_subpaths_dir(pod_uid)):
            for _, container_path in _list_dir(volume_path):
                subpaths += [path for _, path in _list_dir(container_path)]
        return subpaths


def _list_dir(path: str) -> list[tuple[str, str]]:
    """Return the names and paths in a directory without touching the entries: one may be a mount that hangs."""
    try:
        return [(name, os.path.join(path, name)) for name in sorted(os.listdir(path))]
    except FileNotFoundError:
        klog.v(6).info_s("Path does not exist", path=path)
        return []


def list_pods_from_disk(pods_dir: str) -> list[types.UID]:
    """Return the UIDs of all pods that have a directory.

    Go: kubelet_pods.go, listPodsFromDisk
    """
    return sorted(types.UID(entry.name) for entry in os.scandir(pods_dir) if entry.is_dir(follow_symlinks=False))


def parse_get_sub_ids_output(output: str) -> tuple[int, int]:
    """Return the subordinate IDs as (first, number). Raise ValueError unless there is exactly one range.

    Go: kubelet_pods.go, parseGetSubIdsOutput
    """
    lines = output.strip("\n").split("\n")
    if len(lines) != 1:
        raise ValueError(f'error parsing line "{output}": it must contain only one line')
    # A line looks like "0: kubelet 65536 2147483648".
    parts = lines[0].split()
    if len(parts) != 4:
        raise ValueError(f'invalid line "{output}"')
    try:
        first, number = int(parts[2]), int(parts[3])
    except ValueError as err:
        raise ValueError(f'error parsing line "{output}": {err}') from err
    if not (0 <= first < 2**32 and 0 <= number < 2**32):
        raise ValueError(f'error parsing line "{output}": value out of range')
    return first, number


def get_kubelet_mappings(ids_per_pod: int) -> tuple[int, int]:
    """Return the IDs for pods with a user namespace, as (first, number).

    These are the subordinate IDs of the user kubelet, if there is such a user. Otherwise they are all IDs except the
    node's own, which are the first `ids_per_pod` ones.

    Raise ValueError or OSError if the user exists and its IDs are unknown, for example because a server stores them and
    does not respond.

    Go: kubelet_pods.go, getKubeletMappings
    """
    default = (ids_per_pod, 2**32 - ids_per_pod)
    try:
        pwd.getpwnam(_KUBELET_USER)
    except KeyError:
        klog.v(5).info_s("user namespaces: user not found, using default mappings", user=_KUBELET_USER)
        return default
    command = shutil.which(_GETSUBIDS)
    if command is None:
        klog.v(2).info_s("user namespaces: executable not found, using default mappings", executable=_GETSUBIDS)
        return default
    uids = _get_sub_ids([command, _KUBELET_USER], "uids")
    gids = _get_sub_ids([command, "-g", _KUBELET_USER], "gids")
    if uids != gids:
        raise ValueError(f'mismatched subuids and subgids for user "{_KUBELET_USER}"')
    klog.v(5).info_s("user namespaces: user found, using mappings from getsubids", user=_KUBELET_USER)
    return parse_get_sub_ids_output(uids)


def _get_sub_ids(command: list[str], what: str) -> str:
    prefix = f'error retrieving additional {what} for user "{_KUBELET_USER}"'
    try:
        done = utilexec.run_program(command, os.environ, subprocess.DEVNULL, GETSUBIDS_TIMEOUT, utilexec.MAX_OUTPUT)
    except utilexec.ProgramError as err:
        raise ValueError(f"{prefix}: {err}") from err
    if done.code != 0:
        detail = done.stderr.decode(errors="replace").strip() or f"exit status {done.code}"
        raise ValueError(f"{prefix}: {detail}")
    return done.stdout.decode(errors="replace")
