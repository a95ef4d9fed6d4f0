"""Define volume plugins, and find the plugin for a volume.

Go: pkg/volume/plugins.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from pkg import golang, klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.volume.util import hostutil, subpath
from pkg.volume.volume import (
    Attacher,
    BlockVolumeMapper,
    BlockVolumeUnmapper,
    Detacher,
    DeviceMounter,
    DeviceUnmounter,
    Mounter,
    Unmounter,
)

if TYPE_CHECKING:
    from pkg.api.authentication import v1 as authenticationv1
    from pkg.api.storage import v1 as storagev1
    from pkg.apimachinery.apis.meta import v1 as metav1
    from pkg.client_go import kubernetes
    from pkg.client_go.listers.storage import v1 as storagelisters
    from pkg.client_go.tools import cache, record


@dataclass(frozen=True, slots=True)
class Spec:
    """Describe a volume of a pod's spec, or a persistent volume."""

    volume: v1.Volume | None = None
    persistent_volume: v1.PersistentVolume | None = None
    read_only: bool = False
    # `migrated` says whether the volume was made for an in-tree plugin that Kubernetes has removed, and that a CSI
    # driver replaces.
    migrated: bool = False
    # `inline_volume_spec_for_csi_migration` says whether such a volume is inline in the pod's spec, without a claim or
    # a persistent volume in the API.
    inline_volume_spec_for_csi_migration: bool = False

    def name(self) -> str:
        """Return the volume's name in the pod's spec, or the name of the persistent volume."""
        if self.volume is not None:
            return self.volume.name
        return self.persistent_volume.metadata.name if self.persistent_volume is not None else ""


@dataclass(frozen=True, slots=True)
class ReconstructedVolume:
    """Hold what a volume's directory says about the volume."""

    spec: Spec
    # `selinux_mount_context` is the -o context= of the volume's mount, or "" if it was mounted without it.
    selinux_mount_context: str = ""


@dataclass(frozen=True, slots=True)
class NodeResizeOptions:
    """Hold what a plugin needs to expand a volume on the node."""

    volume_spec: Spec
    # `device_path` is the path of the device. A CSI driver may get a volume's handle instead.
    device_path: str
    # `device_mount_path` is the mount point of the volume: the node's global mount if it has one, otherwise the pod's.
    device_mount_path: str
    device_staging_path: str
    new_size: Quantity
    old_size: Quantity


class VolumeHost(Protocol):
    """Define what plugins need from the kubelet. Every method is safe from any thread.

    Go also has KubeletVolumeHost, because other programs load plugins too.
    """

    def get_plugin_dir(self, plugin_name: str) -> str:
        """Return the plugin's directory for data that belongs to no single pod. It may not exist yet."""
        ...

    def get_volume_device_plugin_dir(self, plugin_name: str) -> str: ...

    def get_pods_dir(self) -> str: ...

    def get_pod_volume_dir(self, pod_uid: types.UID, plugin_name: str, volume_name: str) -> str: ...

    def get_pod_plugin_dir(self, pod_uid: types.UID, plugin_name: str) -> str: ...

    def get_pod_volume_device_dir(self, pod_uid: types.UID, plugin_name: str) -> str: ...

    def get_kube_client(self) -> kubernetes.Interface | None:
        """Return the client, or None in standalone mode."""
        ...

    def new_wrapper_mounter(self, vol_name: str, spec: Spec, pod: v1.Pod) -> Mounter:
        """Return a mounter for spec on a volume `wrapped_<vol_name>`, for plugins that build on another plugin."""
        ...

    def new_wrapper_unmounter(self, vol_name: str, spec: Spec, pod_uid: types.UID) -> Unmounter: ...

    def get_mounter(self) -> mount_utils.Interface: ...

    def get_hostutil(self) -> hostutil.HostUtils: ...

    def get_subpather(self) -> subpath.Interface: ...

    def get_node_allocatable(self) -> dict[str, Quantity]: ...

    def get_allocated_pod(self, pod: v1.Pod) -> v1.Pod:
        """Return the pod with its allocated resources, which differ from its spec during a resize."""
        ...

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        """Return the secret. Raise an ApiError, for example if it does not exist, or any error of reading it."""
        ...

    def get_config_map(self, namespace: str, name: str) -> v1.ConfigMap: ...

    def get_service_account_token(
        self, namespace: str, name: str, request: authenticationv1.TokenRequest
    ) -> authenticationv1.TokenRequest: ...

    def delete_service_account_token(self, pod_uid: types.UID) -> None: ...

    def get_node_labels(self) -> dict[str, str]: ...

    def get_node_name(self) -> str: ...

    def get_attached_volumes_from_node_status(self) -> dict[str, str]:
        """Return the device paths by the volumes' unique names."""
        ...

    def get_event_recorder(self) -> record.EventRecorder: ...

    def set_kubelet_error(self, err: Exception | None) -> None:
        """Keep the node from being ready, for the given reason. None clears the reason."""
        ...

    def csi_driver_lister(self) -> storagelisters.CSIDriverLister | None:
        """Return the lister, or None in standalone mode."""
        ...

    def get_csi_driver_informer(self) -> cache.SharedIndexInformer[storagev1.CSIDriver] | None:
        """Return the informer that csi_driver_lister reads from, or None in standalone mode."""
        ...

    def wait_for_cache_sync(self, ctx: golang.Context) -> None:
        """Wait until csi_driver_lister knows all drivers. Raise TimeoutError or golang.Canceled."""
        ...

    def get_trust_anchors_by_name(self, name: str, allow_missing: bool) -> bytes: ...

    def get_trust_anchors_by_signer(
        self, signer_name: str, label_selector: metav1.LabelSelector | None, allow_missing: bool
    ) -> bytes: ...


class VolumePlugin(Protocol):
    """Define a plugin, which serves volumes of one kind."""

    def init(self, host: VolumeHost) -> None: ...

    def get_plugin_name(self) -> str: ...

    def get_volume_name(self, spec: Spec) -> str:
        """Return a name that is unique among the plugin's volumes. Raise ValueError for a spec of another kind."""
        ...

    def can_support(self, spec: Spec) -> bool: ...

    def requires_remount(self, spec: Spec) -> bool:
        """Report whether the volume's content changes, so that set_up must be called repeatedly."""
        ...

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Mounter:
        """Return a mounter. Raise any error that makes the volume unusable."""
        ...

    def new_unmounter(self, name: str, pod_uid: types.UID) -> Unmounter: ...

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        """Return what the directory says about its volume. Raise OSError or ValueError."""
        ...

    def supports_mount_option(self) -> bool: ...

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        """Report whether the volume may be mounted with -o context=."""
        ...


class DeviceMountableVolumePlugin(VolumePlugin, Protocol):
    """Define a plugin that mounts a volume once on the node before pods get it."""

    def new_device_mounter(self) -> DeviceMounter: ...

    def new_device_unmounter(self) -> DeviceUnmounter: ...

    def get_device_mount_refs(self, device_mount_path: str) -> list[str]:
        """List other mount points of what is mounted at the path. Raise OSError."""
        ...

    def can_device_mount(self, spec: Spec) -> bool: ...


class AttachableVolumePlugin(DeviceMountableVolumePlugin, Protocol):
    """Define a plugin whose volumes must be attached to the node first."""

    def new_attacher(self) -> Attacher: ...

    def new_detacher(self) -> Detacher: ...

    def can_attach(self, spec: Spec) -> bool: ...

    def verify_exhausted_resource(self, spec: Spec) -> bool:
        """Report whether an attachment failed because the node has reached its volume limit."""
        ...


class NodeExpandableVolumePlugin(VolumePlugin, Protocol):
    """Define a plugin that can expand a volume on the node."""

    def requires_fs_resize(self) -> bool: ...

    def node_expand(self, resize_options: NodeResizeOptions) -> bool:
        """Expand the volume. Report whether it was expanded.

        Raise the errors of Mounter.set_up, and types.InfeasibleError and others of that module.
        """
        ...


class BlockVolumePlugin(VolumePlugin, Protocol):
    """Define a plugin whose volumes pods can use as block devices."""

    def new_block_volume_mapper(self, spec: Spec, pod: v1.Pod) -> BlockVolumeMapper: ...

    def new_block_volume_unmapper(self, name: str, pod_uid: types.UID) -> BlockVolumeUnmapper: ...

    def construct_block_volume_spec(self, pod_uid: types.UID, volume_name: str, volume_path: str) -> Spec: ...


class RememberingVolumePlugin(VolumePlugin, Protocol):
    """Define a plugin that records its volumes on the node, so that they are found without a pod's directory."""

    def list_staged_volumes(self) -> list[Spec]:
        """List the volumes that are, or may be, staged on the node. Raise OSError."""
        ...

    def list_published_devices(self) -> list[tuple[str, str]]:
        """List the block volumes that pods have, or may have: the pod's UID and the volume's name. Raise OSError."""
        ...

    def is_staged_by_another_name(self, spec: Spec, staged: Spec) -> bool:
        """Report whether the volume is the one in list_staged_volumes that has another name."""
        ...


class PluginNotFoundError(ValueError):
    """Signal that no plugin, or more than one, supports the volume."""


class VolumePluginMgr:
    """Hold the plugins of this kubelet. After init_plugins, every method is safe from any thread."""

    def __init__(self) -> None:
        self._plugins: dict[str, VolumePlugin] = {}
        self.host: VolumeHost

    def init_plugins(self, plugins: list[VolumePlugin], host: VolumeHost) -> None:
        """Add the plugins. Raise ValueError if two have the same name."""
        self.host = host
        for plugin in plugins:
            name = plugin.get_plugin_name()
            if name in self._plugins:
                raise ValueError(f'volume plugin "{name}" was registered more than once')
            plugin.init(host)
            self._plugins[name] = plugin
            klog.v(1).info_s("Loaded volume plugin", pluginName=name)

    def find_plugin_by_spec(self, spec: Spec) -> VolumePlugin:
        """Return the plugin for the volume. Raise PluginNotFoundError if no plugin, or more than one, supports it."""
        matches = [plugin for plugin in self._plugins.values() if plugin.can_support(spec)]
        if not matches:
            raise PluginNotFoundError(f'no volume plugin matched for volume "{spec.name()}"')
        if len(matches) > 1:
            names = ",".join(plugin.get_plugin_name() for plugin in matches)
            raise PluginNotFoundError(f"multiple volume plugins matched: {names}")
        return matches[0]

    def find_plugin_by_name(self, name: str) -> VolumePlugin:
        """Return the plugin. Raise PluginNotFoundError if there is none with this name."""
        if name not in self._plugins:
            raise PluginNotFoundError(f'no volume plugin matched name: "{name}"')
        return self._plugins[name]

    def find_attachable_plugin_by_spec(self, spec: Spec) -> AttachableVolumePlugin | None:
        """Return the plugin, or None if the volume need not be attached.

        Raise ValueError if no single plugin supports the volume.
        """
        plugin: AttachableVolumePlugin | None = _can(self.find_plugin_by_spec(spec), "new_attacher")
        return plugin if plugin is not None and plugin.can_attach(spec) else None

    def find_attachable_plugin_by_name(self, name: str) -> AttachableVolumePlugin | None:
        """Return the plugin, or None if it attaches no volumes. Raise PluginNotFoundError if there is none."""
        return cast("AttachableVolumePlugin | None", _can(self.find_plugin_by_name(name), "new_attacher"))

    def find_device_mountable_plugin_by_spec(self, spec: Spec) -> DeviceMountableVolumePlugin | None:
        """Return the plugin, or None if the node need not mount the volume first.

        Raise ValueError if no single plugin supports the volume.
        """
        plugin: DeviceMountableVolumePlugin | None = _can(self.find_plugin_by_spec(spec), "new_device_mounter")
        return plugin if plugin is not None and plugin.can_device_mount(spec) else None

    def find_device_mountable_plugin_by_name(self, name: str) -> DeviceMountableVolumePlugin | None:
        return cast("DeviceMountableVolumePlugin | None", _can(self.find_plugin_by_name(name), "new_device_mounter"))

    def find_mapper_plugin_by_spec(self, spec: Spec) -> BlockVolumePlugin | None:
        """Return the plugin, or None if it has no block volumes.

        Raise ValueError if no single plugin supports the volume.
        """
        return cast("BlockVolumePlugin | None", _can(self.find_plugin_by_spec(spec), "new_block_volume_mapper"))

    def find_mapper_plugin_by_name(self, name: str) -> BlockVolumePlugin | None:
        return cast("BlockVolumePlugin | None", _can(self.find_plugin_by_name(name), "new_block_volume_mapper"))

    def find_node_expandable_plugin_by_spec(self, spec: Spec) -> NodeExpandableVolumePlugin | None:
        """Return the plugin, or None if it cannot expand volumes on the node.

        Raise ValueError if no single plugin supports the volume.
        """
        return cast("NodeExpandableVolumePlugin | None", _can(self.find_plugin_by_spec(spec), "node_expand"))

    def find_remembering_plugins(self) -> list[RememberingVolumePlugin]:
        found = [_can(plugin, "list_staged_volumes") for plugin in self._plugins.values()]
        return [plugin for plugin in found if plugin is not None]


def _can(plugin: VolumePlugin, method: str) -> Any:
    """Return the plugin if it has the method, which shows that it implements a wider interface; otherwise None."""
    return plugin if hasattr(plugin, method) else None
