"""Build the mounts of containers: devices, volumes, their sub-paths, and the managed hosts file.

Go: pkg/kubelet/kubelet_pods.go (makeBlockVolumes, makeMounts and what they call)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from pkg import klog
from pkg.api.core import v1
from pkg.volume import Attributes
from pkg.volume import util as volumeutil
from pkg.volume.util import subpath, volumepathhandler

if TYPE_CHECKING:
    from pkg.volume.util import hostutil as hostutil_module

ETC_HOSTS_PATH = "/etc/hosts"
MANAGED_HOSTS_HEADER = "# Kubernetes-managed hosts file.\n"
MANAGED_HOSTS_HEADER_WITH_HOST_NETWORK = "# Kubernetes-managed hosts file (host network).\n"


def make_block_volumes(
    container: v1.Container,
    pod_volumes: kubecontainer.VolumeMap,
    blkutil: volumepathhandler.BlockVolumePathHandler,
) -> list[kubecontainer.DeviceInfo]:
    """Return the container's devices that are volumes.

    Raise ValueError for a path that is not absolute, or for a missing volume, which should not happen.
    """
    devices: list[kubecontainer.DeviceInfo] = []
    for device in container.volume_devices:
        if not os.path.isabs(device.device_path):
            raise ValueError(f"error DevicePath `{device.device_path}` must be an absolute path")
        volume = pod_volumes.get(device.name)
        if volume is None or volume.block_volume_mapper is None:
            klog.error_s(
                None,
                "Block volume cannot be satisfied for container, because the volume is missing or the volume mapper "
                "is nil",
                containerName=container.name,
                device=device,
            )
            raise ValueError(f'cannot find volume "{device.name}" to pass into container "{container.name}"')
        path = os.path.join(*volume.block_volume_mapper.get_pod_device_map_path())
        if blkutil.is_symlink_exist(path):
            permissions = "r" if volume.read_only else "mrw"
            message = "Device will be attached to container in the corresponding path on host"
            klog.v(4).info_s(message, containerName=container.name, path=path)
            devices.append(kubecontainer.DeviceInfo(path, device.device_path, permissions))
    return devices


def make_mounts(
    pod: v1.Pod,
    pod_dir: str,
    container: v1.Container,
    host_name: str,
    host_domain: str,
    pod_ips: Sequence[str],
    pod_volumes: kubecontainer.VolumeMap,
    host_util: hostutil_module.HostUtils,
    subpather: subpath.Interface,
    expand_envs: list[kubecontainer.EnvVar],
    supports_rro: bool,
    image_volumes: dict[str, runtimeapi.ImageSpec],
) -> tuple[list[kubecontainer.Mount], Callable[[], None] | None]:
    """Return the container's mounts, the managed hosts file last, and a function to call after its creation.

    Raise ValueError or OSError if a volume is missing or a path is not allowed.
    """
    mounts: list[kubecontainer.Mount] = []
    cleanup_action: Callable[[], None] | None = None
    for index, mount in enumerate(container.volume_mounts):
        volume = pod_volumes.get(mount.name)
        if volume is None or volume.mounter is None:
            what = "because the volume is missing or the volume mounter (vol.Mounter) is nil"
            message = f"Mount cannot be satisfied for the container, {what}"
            klog.error_s(None, message, containerName=container.name, ok=volume is not None, volumeMounter=mount)
            raise ValueError(f'cannot find volume "{mount.name}" to mount into container "{container.name}"')
        sub_path = _sub_path(mount, expand_envs)
        image = image_volumes.get(mount.name)
        host_path = "" if image is not None else volumeutil.get_path(volume.mounter)
        if sub_path and image is None:
            target = subpath.Subpath(
                volume_mount_index=index,
                path=os.path.normpath(os.path.join(host_path, sub_path)),
                volume_name=volume.inner_volume_spec_name,
                volume_path=host_path,
                pod_dir=pod_dir,
                container_name=container.name,
            )
            host_path, cleanup_action = _prepare_sub_path(target, sub_path, mount, host_util, subpather)
        made = _make_mount(mount, volume, volume.mounter.get_attributes(), supports_rro)
        made.host_path = host_path
        if image is not None:
            made.image, made.image_sub_path = image, sub_path
        mounts.append(made)
    has_hosts_file = any(mount.mount_path == ETC_HOSTS_PATH for mount in container.volume_mounts)
    if should_mount_hosts_file(pod, pod_ips) and not has_hosts_file:
        hosts = make_hosts_mount(pod_dir, pod_ips, host_name, host_domain, pod.spec.host_aliases, pod.spec.host_network)
        mounts.append(hosts)
    return mounts, cleanup_action


def _make_mount(
    mount: v1.VolumeMount, volume: kubecontainer.VolumeInfo, attributes: Attributes, supports_rro: bool
) -> kubecontainer.Mount:
    """Return a mount without its source. A volume gets its SELinux label with its first mount."""
    relabel = attributes.managed and attributes.selinux_relabel and not volume.se_linux_labeled
    volume.se_linux_labeled = volume.se_linux_labeled or relabel
    return kubecontainer.Mount(
        name=mount.name,
        container_path=_absolute(mount.mount_path),
        read_only=mount.read_only or attributes.read_only,
        propagation=translate_mount_propagation(mount.mount_propagation),
        recursive_read_only=_recursive_read_only(mount, supports_rro),
        se_linux_relabel=relabel,
    )


def _sub_path(mount: v1.VolumeMount, expand_envs: list[kubecontainer.EnvVar]) -> str:
    sub_path = mount.sub_path
    if mount.sub_path_expr:
        sub_path = kubecontainer.expand_container_volume_mounts(mount, expand_envs)
    if os.path.isabs(sub_path):
        raise ValueError(f"error SubPath `{sub_path}` must not be an absolute path")
    if ".." in sub_path.split("/"):
        raise ValueError(f"unable to provision SubPath `{sub_path}`: must not contain '..'")
    return sub_path


def _prepare_sub_path(
    target: subpath.Subpath,
    sub_path: str,
    mount: v1.VolumeMount,
    host_util: hostutil_module.HostUtils,
    subpather: subpath.Interface,
) -> tuple[str, Callable[[], None] | None]:
    """Create the sub-path's directory if it is missing, and bind-mount it safely.

    A plain mount would be unsafe, because the pod may replace a directory by a link at any moment.
    """
    where = f'subPath for volumeMount "{mount.name}" of container "{target.container_name}"'
    if not _may_exist(target.path, host_util):
        # The directory gets the volume's own mode, so that the pod's fsGroup can write to it.
        mode = host_util.get_mode(target.volume_path)
        try:
            subpather.safe_make_dir(sub_path, target.volume_path, mode)
        except OSError as err:
            klog.error_s(err, "Failed to create subPath directory for volumeMount of the container", subPath=where)
            message = f"failed to create {where.replace('subPath', 'subPath directory', 1)}"
            raise ValueError(message + _what_the_user_may_know(err)) from err
    try:
        return subpather.prepare_safe_subpath(target)
    except OSError as err:
        klog.error_s(err, "Failed to prepare subPath for volumeMount of the container", subPath=where)
        raise ValueError(f"failed to prepare {where}" + _what_the_user_may_know(err)) from err


def _may_exist(path: str, host_util: hostutil_module.HostUtils) -> bool:
    try:
        return host_util.path_exists(path)
    except OSError as err:
        klog.error_s(
            err, "Could not determine if subPath exists, will not attempt to change its permissions", path=path
        )
        return True


def _what_the_user_may_know(err: OSError) -> str:
    """Return the reason why a sub-path is refused, without information about the host's files.

    For example, the user must not learn whether a link out of the volume leads to an existing file.

    DIVERGES (safer): the container's status says that the sub-path leads out of the volume.
    Go: pkg/kubelet/kubelet_pods.go, makeMounts: the status gives no reason.
    Why: the user, who cannot read the kubelet's log, can repair the link in the volume.
    Test: kubelet_mounts_test.py:test_sub_path_that_is_a_link_out_of_the_volume_tells_nothing_of_the_host
    """
    return ": the sub-path leads out of the volume" if isinstance(err, subpath.NotWithinVolumeError) else ""


def _absolute(path: str) -> str:
    return path if os.path.isabs(path) else "/" + path


def should_mount_hosts_file(pod: v1.Pod, pod_ips: Sequence[str]) -> bool:
    """Report whether the pod gets a managed hosts file: it has an address, or it uses the host's network."""
    return bool(pod_ips) or pod.spec.host_network


def translate_mount_propagation(mode: str | None) -> runtimeapi.MountPropagation.ValueType:
    """Convert the API's mount propagation to the CRI's. Raise ValueError for an unknown value."""
    match mode:
        case None | v1.MOUNT_PROPAGATION_NONE:
            return runtimeapi.PROPAGATION_PRIVATE
        case v1.MOUNT_PROPAGATION_HOST_TO_CONTAINER:
            return runtimeapi.PROPAGATION_HOST_TO_CONTAINER
        case v1.MOUNT_PROPAGATION_BIDIRECTIONAL:
            return runtimeapi.PROPAGATION_BIDIRECTIONAL
    raise ValueError(f'invalid MountPropagation mode: "{mode}"')


def _recursive_read_only(mount: v1.VolumeMount, runtime_supports: bool) -> bool:
    try:
        return resolve_recursive_read_only(mount, runtime_supports)
    except ValueError as err:
        raise ValueError(f"failed to resolve recursive read-only mode: {err}") from err


def resolve_recursive_read_only(mount: v1.VolumeMount, runtime_supports: bool) -> bool:
    """Report whether the mount must be recursively read-only.

    Raise ValueError if a recursively read-only mount is required and impossible.
    """
    match mount.recursive_read_only:
        case None | v1.RECURSIVE_READ_ONLY_DISABLED:
            return False
    if not mount.read_only:
        raise ValueError(f'volume "{mount.name}" requested recursive read-only mode, but it is not read-only')
    if mount.mount_propagation not in (None, v1.MOUNT_PROPAGATION_NONE):
        raise ValueError(
            f'volume "{mount.name}" requested recursive read-only mode, but it is not compatible with propagation '
            f'"{mount.mount_propagation}"'
        )
    match mount.recursive_read_only:
        case v1.RECURSIVE_READ_ONLY_IF_POSSIBLE:
            return runtime_supports
        case v1.RECURSIVE_READ_ONLY_ENABLED if runtime_supports:
            return True
        case v1.RECURSIVE_READ_ONLY_ENABLED:
            raise ValueError(
                f'volume "{mount.name}" requested recursive read-only mode, but it is not supported by the runtime'
            )
    raise ValueError(f'unknown recursive read-only mode "{mount.recursive_read_only}"')


def get_etc_hosts_path(pod_dir: str) -> str:
    return os.path.join(pod_dir, "etc-hosts")


def make_hosts_mount(
    pod_dir: str,
    pod_ips: Sequence[str],
    host_name: str,
    host_domain: str,
    host_aliases: list[v1.HostAlias],
    use_host_network: bool,
) -> kubecontainer.Mount:
    """Write the pod's hosts file and return its mount. Raise OSError on failure."""
    path = get_etc_hosts_path(pod_dir)
    ensure_hosts_file(path, pod_ips, host_name, host_domain, host_aliases, use_host_network)
    return kubecontainer.Mount(
        name="k8s-managed-etc-hosts", container_path=ETC_HOSTS_PATH, host_path=path, se_linux_relabel=True
    )


def ensure_hosts_file(
    path: str,
    host_ips: Sequence[str],
    host_name: str,
    host_domain: str,
    host_aliases: list[v1.HostAlias],
    use_host_network: bool,
) -> None:
    """Write the hosts file, readable by all.

    An existing file is overwritten in place: it is bind-mounted, so its inode must stay the same.
    """
    if use_host_network:
        content = node_hosts_file_content(ETC_HOSTS_PATH, host_aliases)
    else:
        content = managed_hosts_file_content(host_ips, host_name, host_domain, host_aliases)
    Path(path).write_bytes(content)
    Path(path).chmod(0o644)


def node_hosts_file_content(path: str, host_aliases: list[v1.HostAlias]) -> bytes:
    """Return the content of the node's own hosts file with the pod's aliases added.

    DIVERGES (safer): a node without a hosts file counts as one without names of its own.
    Go: pkg/kubelet/kubelet_pods.go, nodeHostsFileContent: the function fails without the file.
    Why: on such a node no container of a pod on the host's network would start.
    Test: kubelet_mounts_test.py:test_node_without_a_hosts_file_has_no_names_of_its_own
    """
    try:
        own = Path(path).read_bytes()
    except FileNotFoundError:
        own = b""
    return MANAGED_HOSTS_HEADER_WITH_HOST_NETWORK.encode() + own + hosts_entries_from_host_aliases(host_aliases)


def managed_hosts_file_content(
    host_ips: Sequence[str], host_name: str, host_domain: str, host_aliases: list[v1.HostAlias]
) -> bytes:
    """Return the content of a hosts file with the loopback names, the pod's own name and its aliases."""
    lines = [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "fe00::0\tip6-mcastprefix",
        "fe00::1\tip6-allnodes",
        "fe00::2\tip6-allrouters",
    ]
    names = f"{host_name}.{host_domain}\t{host_name}" if host_domain else host_name
    lines += [f"{ip}\t{names}" for ip in host_ips]
    text = MANAGED_HOSTS_HEADER + "".join(f"{line}\n" for line in lines)
    return text.encode() + hosts_entries_from_host_aliases(host_aliases)


def hosts_entries_from_host_aliases(host_aliases: list[v1.HostAlias]) -> bytes:
    """Return the lines of the pod's hostAliases; empty if there are none."""
    if not host_aliases:
        return b""
    lines = ["\t".join([alias.ip, *alias.hostnames]) for alias in host_aliases]
    return "".join(f"{line}\n" for line in ["", "# Entries added by HostAliases.", *lines]).encode()
