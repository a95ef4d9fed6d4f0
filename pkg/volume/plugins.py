"""Volume plugins and how one is found for a volume.

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
    """A volume as a pod names it, or the persistent volume behind its claim."""

    volume: v1.Volume | None = None
    persistent_volume: v1.PersistentVolume | None = None
    read_only: bool = False
    # Whether it was made for a plugin that Kubernetes no longer has, and that its CSI driver stands in for.
    migrated: bool = False
    # Whether such a volume stands in the pod itself; no claim or object of the API is behind it.
    inline_volume_spec_for_csi_migration: bool = False

    def name(self) -> str:
        """The volume's name in the pod, or the persistent volume's own."""
        if self.volume is not None:
            return self.volume.name
        return self.persistent_volume.metadata.name if self.persistent_volume is not None else ""


@dataclass(frozen=True, slots=True)
class ReconstructedVolume:
    """What can be told of a volume from its directory alone."""

    spec: Spec
    # What it was mounted with as -o context=; "" if it was not.
    selinux_mount_context: str = ""


@dataclass(frozen=True, slots=True)
class NodeResizeOptions:
    """What a plugin must know to make a volume larger on the node."""

    volume_spec: Spec
    # Where the device is; a CSI driver may get a volume's id instead.
    device_path: str
    # Where the volume is mounted: the node's mount where there is one, the pod's otherwise.
    device_mount_path: str
    device_staging_path: str
    new_size: Quantity
    old_size: Quantity


class VolumeHost(Protocol):
    """What a plugin may ask of the kubelet. Safe from any thread.

    Go has VolumeHost and KubeletVolumeHost, as other programs load plugins too.
    """

    def get_plugin_dir(self, plugin_name: str) -> str:
        """Where the plugin may keep what is of no one pod; need not exist."""
        ...

    def get_volume_device_plugin_dir(self, plugin_name: str) -> str: ...

    def get_pods_dir(self) -> str: ...

    def get_pod_volume_dir(self, pod_uid: types.UID, plugin_name: str, volume_name: str) -> str: ...

    def get_pod_plugin_dir(self, pod_uid: types.UID, plugin_name: str) -> str: ...

    def get_pod_volume_device_dir(self, pod_uid: types.UID, plugin_name: str) -> str: ...

    def get_kube_client(self) -> kubernetes.Interface | None:
        """None standalone."""
        ...

    def new_wrapper_mounter(self, vol_name: str, spec: Spec, pod: v1.Pod) -> Mounter:
        """A mounter of the plugin for spec, for plugins that build on others, on a volume `wrapped_<vol_name>`."""
        ...

    def new_wrapper_unmounter(self, vol_name: str, spec: Spec, pod_uid: types.UID) -> Unmounter: ...

    def get_mounter(self) -> mount_utils.Interface: ...

    def get_hostutil(self) -> hostutil.HostUtils: ...

    def get_subpather(self) -> subpath.Interface: ...

    def get_node_allocatable(self) -> dict[str, Quantity]: ...

    def get_allocated_pod(self, pod: v1.Pod) -> v1.Pod:
        """The pod with the resources that it was given, which while it is resized are not those that it wants."""
        ...

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        """Raises an ApiError, not-found ones included, or whatever kept it from being read."""
        ...

    def get_config_map(self, namespace: str, name: str) -> v1.ConfigMap: ...

    def get_service_account_token(
        self, namespace: str, name: str, request: authenticationv1.TokenRequest
    ) -> authenticationv1.TokenRequest: ...

    def delete_service_account_token(self, pod_uid: types.UID) -> None: ...

    def get_node_labels(self) -> dict[str, str]: ...

    def get_node_name(self) -> str: ...

    def get_attached_volumes_from_node_status(self) -> dict[str, str]:
        """Device paths by the volumes' unique names."""
        ...

    def get_event_recorder(self) -> record.EventRecorder: ...

    def set_kubelet_error(self, err: Exception | None) -> None:
        """Keep the node from being ready, for the reason given; None takes it back."""
        ...

    def csi_driver_lister(self) -> storagelisters.CSIDriverLister | None:
        """None standalone."""
        ...

    def get_csi_driver_informer(self) -> cache.SharedIndexInformer[storagev1.CSIDriver] | None:
        """What csi_driver_lister reads; None standalone."""
        ...

    def wait_for_cache_sync(self, ctx: golang.Context) -> None:
        """Return when csi_driver_lister knows all drivers. Raises TimeoutError or golang.Canceled."""
        ...

    def get_trust_anchors_by_name(self, name: str, allow_missing: bool) -> bytes: ...

    def get_trust_anchors_by_signer(
        self, signer_name: str, label_selector: metav1.LabelSelector | None, allow_missing: bool
    ) -> bytes: ...


class VolumePlugin(Protocol):
    """Makes volumes of one kind."""

    def init(self, host: VolumeHost) -> None: ...

    def get_plugin_name(self) -> str: ...

    def get_volume_name(self, spec: Spec) -> str:
        """What tells this volume from others of the plugin. Raises ValueError for a spec of another kind."""
        ...

    def can_support(self, spec: Spec) -> bool: ...

    def requires_remount(self, spec: Spec) -> bool:
        """Whether the volume's content changes by itself and set_up must be called again and again."""
        ...

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Mounter:
        """Raises what makes the volume unusable."""
        ...

    def new_unmounter(self, name: str, pod_uid: types.UID) -> Unmounter: ...

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        """The volume that has this directory, as far as the directory tells. Raises OSError or ValueError."""
        ...

    def supports_mount_option(self) -> bool: ...

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        """Whether the volume may be mounted with -o context=."""
        ...


class DeviceMountableVolumePlugin(VolumePlugin, Protocol):
    """Mounts a volume once on the node before pods get it."""

    def new_device_mounter(self) -> DeviceMounter: ...

    def new_device_unmounter(self) -> DeviceUnmounter: ...

    def get_device_mount_refs(self, device_mount_path: str) -> list[str]:
        """Other places where what is mounted there is mounted too. Raises OSError."""
        ...

    def can_device_mount(self, spec: Spec) -> bool: ...


class AttachableVolumePlugin(DeviceMountableVolumePlugin, Protocol):
    """Its volumes must be attached to the node first."""

    def new_attacher(self) -> Attacher: ...

    def new_detacher(self) -> Detacher: ...

    def can_attach(self, spec: Spec) -> bool: ...

    def verify_exhausted_resource(self, spec: Spec) -> bool:
        """Whether an attachment failed because the node can have no more."""
        ...


class NodeExpandableVolumePlugin(VolumePlugin, Protocol):
    """Can make a volume larger on the node."""

    def requires_fs_resize(self) -> bool: ...

    def node_expand(self, resize_options: NodeResizeOptions) -> bool:
        """Whether it was resized. Raises as Mounter.set_up, and types.InfeasibleError and others of that module."""
        ...


class BlockVolumePlugin(VolumePlugin, Protocol):
    """Has volumes that pods can use as devices."""

    def new_block_volume_mapper(self, spec: Spec, pod: v1.Pod) -> BlockVolumeMapper: ...

    def new_block_volume_unmapper(self, name: str, pod_uid: types.UID) -> BlockVolumeUnmapper: ...

    def construct_block_volume_spec(self, pod_uid: types.UID, volume_name: str, volume_path: str) -> Spec: ...


class RememberingVolumePlugin(VolumePlugin, Protocol):
    """Keeps records on the node of what it has of volumes, by which they are found when no pod's directory tells."""

    def list_staged_volumes(self) -> list[Spec]:
        """The volumes that the node has, or may have, something of. Raises OSError."""
        ...

    def list_published_devices(self) -> list[tuple[str, str]]:
        """The block volumes that pods have, or may have: the pod's uid and the volume's name. Raises OSError."""
        ...

    def is_staged_by_another_name(self, spec: Spec, staged: Spec) -> bool:
        """Whether the volume is the one that list_staged_volumes tells of, by another name."""
        ...


class PluginNotFoundError(ValueError):
    """No plugin is there for the volume, or not just one."""


class VolumePluginMgr:
    """The plugins of this kubelet. Filled once; after that safe from any thread."""

    def __init__(self) -> None:
        self._plugins: dict[str, VolumePlugin] = {}
        self.host: VolumeHost

    def init_plugins(self, plugins: list[VolumePlugin], host: VolumeHost) -> None:
        """Add the plugins. Raises ValueError when two have one name."""
        self.host = host
        for plugin in plugins:
            name = plugin.get_plugin_name()
            if name in self._plugins:
                raise ValueError(f'volume plugin "{name}" was registered more than once')
            plugin.init(host)
            self._plugins[name] = plugin
            klog.v(1).info_s("Loaded volume plugin", pluginName=name)

    def find_plugin_by_spec(self, spec: Spec) -> VolumePlugin:
        """The one plugin for the volume. Raises PluginNotFoundError when none or several want it."""
        matches = [plugin for plugin in self._plugins.values() if plugin.can_support(spec)]
        if not matches:
            raise PluginNotFoundError(f'no volume plugin matched for volume "{spec.name()}"')
        if len(matches) > 1:
            names = ",".join(plugin.get_plugin_name() for plugin in matches)
            raise PluginNotFoundError(f"multiple volume plugins matched: {names}")
        return matches[0]

    def find_plugin_by_name(self, name: str) -> VolumePlugin:
        """Raises PluginNotFoundError when there is none."""
        if name not in self._plugins:
            raise PluginNotFoundError(f'no volume plugin matched name: "{name}"')
        return self._plugins[name]

    def find_attachable_plugin_by_spec(self, spec: Spec) -> AttachableVolumePlugin | None:
        """The plugin for the volume, None if the volume need not be attached. Raises ValueError as above."""
        plugin: AttachableVolumePlugin | None = _can(self.find_plugin_by_spec(spec), "new_attacher")
        return plugin if plugin is not None and plugin.can_attach(spec) else None

    def find_attachable_plugin_by_name(self, name: str) -> AttachableVolumePlugin | None:
        """The plugin of the name, None if it attaches nothing. Raises PluginNotFoundError when there is none."""
        return cast("AttachableVolumePlugin | None", _can(self.find_plugin_by_name(name), "new_attacher"))

    def find_device_mountable_plugin_by_spec(self, spec: Spec) -> DeviceMountableVolumePlugin | None:
        """The plugin for the volume, None if the node need not mount it first. Raises ValueError as above."""
        plugin: DeviceMountableVolumePlugin | None = _can(self.find_plugin_by_spec(spec), "new_device_mounter")
        return plugin if plugin is not None and plugin.can_device_mount(spec) else None

    def find_device_mountable_plugin_by_name(self, name: str) -> DeviceMountableVolumePlugin | None:
        return cast("DeviceMountableVolumePlugin | None", _can(self.find_plugin_by_name(name), "new_device_mounter"))

    def find_mapper_plugin_by_spec(self, spec: Spec) -> BlockVolumePlugin | None:
        """The plugin for the volume, None if it has no block volumes. Raises ValueError as above."""
        return cast("BlockVolumePlugin | None", _can(self.find_plugin_by_spec(spec), "new_block_volume_mapper"))

    def find_mapper_plugin_by_name(self, name: str) -> BlockVolumePlugin | None:
        return cast("BlockVolumePlugin | None", _can(self.find_plugin_by_name(name), "new_block_volume_mapper"))

    def find_node_expandable_plugin_by_spec(self, spec: Spec) -> NodeExpandableVolumePlugin | None:
        """The plugin for the volume, None if it expands nothing on the node. Raises ValueError as above."""
        return cast("NodeExpandableVolumePlugin | None", _can(self.find_plugin_by_spec(spec), "node_expand"))

    def find_remembering_plugins(self) -> list[RememberingVolumePlugin]:
        found = [_can(plugin, "list_staged_volumes") for plugin in self._plugins.values()]
        return [plugin for plugin in found if plugin is not None]


def _can(plugin: VolumePlugin, method: str) -> Any:
    """The plugin, if it has the method that tells a wider interface from others; else None."""
    return plugin if hasattr(plugin, method) else None
