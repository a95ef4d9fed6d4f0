"""Provide a volume manager that does nothing, and plugins that record their calls.

Go: pkg/kubelet/volumemanager/volume_manager_fake.go, pkg/volume/testing/testing.go
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubelet import config
from kubelet import container as kubecontainer
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.volume import (
    Attributes,
    DeviceMounterArgs,
    Metrics,
    MounterArgs,
    NodeResizeOptions,
    ReconstructedVolume,
    Spec,
)

if TYPE_CHECKING:
    from pkg.volume import VolumeHost

FAKE_PLUGIN_NAME = "test.io/fake-plugin"
FAKE_DEVICE_PATH = "/dev/null"


class FakePods:
    """Serve as pod manager, pod state provider and sources."""

    def __init__(self) -> None:
        self.pods: dict[str, v1.Pod] = {}
        self.terminating: set[str] = set()
        self.removed: set[str] = set()
        self.ready = True

    def get_pods(self) -> list[v1.Pod]:
        return list(self.pods.values())

    def get_pod_by_uid(self, uid: types.UID) -> v1.Pod | None:
        return self.pods.get(uid)

    def should_pod_containers_be_terminating(self, uid: types.UID) -> bool:
        return uid in self.terminating or uid in self.removed

    def should_pod_runtime_be_removed(self, uid: types.UID) -> bool:
        return uid in self.removed

    def add_source(self, source: str) -> None: ...

    def all_ready(self) -> bool:
        return self.ready


class FakeVolumeManager:
    """Mount everything at once, unless `err` is set. `mounted` holds the volumes of each pod by UID."""

    def __init__(self) -> None:
        self.mounted: dict[str, kubecontainer.VolumeMap] = {}
        self.possibly_mounted: set[str] = set()
        self.reconstructed = True
        self.err: Exception | None = None
        self.waits: list[tuple[str, str]] = []
        self.volumes_in_use: list[str] = []
        self.reported_in_use: list[str] = []
        self.attached: set[str] = set()
        self.changes: list[str] = []

    def run(self, ctx: golang.Context, sources_ready: config.SourcesReady) -> None: ...

    def wait_for_attach_and_mount(self, ctx: golang.Context, pod: v1.Pod) -> None:
        self.waits.append(("mount", pod.metadata.uid))
        if self.err is not None:
            raise self.err

    def wait_for_unmount(self, ctx: golang.Context, pod: v1.Pod) -> None:
        self.waits.append(("unmount", pod.metadata.uid))
        if self.err is not None:
            raise self.err

    def wait_for_all_pods_unmount(self, ctx: golang.Context, pods: Sequence[v1.Pod]) -> None:
        for pod in pods:
            self.wait_for_unmount(ctx, pod)

    def get_mounted_volumes_for_pod(self, pod_name: str) -> kubecontainer.VolumeMap:
        return self.mounted.get(pod_name, {})

    def get_missing_volumes_for_pod(self, pod: v1.Pod) -> list[str]:
        return []

    def has_possibly_mounted_volumes_for_pod(self, pod_name: str) -> bool:
        return pod_name in self.possibly_mounted

    def get_extra_supplemental_groups_for_pod(self, pod: v1.Pod) -> list[int]:
        return []

    def get_volumes_in_use(self) -> list[str]:
        return self.volumes_in_use

    def reconciler_states_have_been_synced(self) -> bool:
        return True

    def volumes_have_been_reconstructed(self) -> bool:
        return self.reconstructed

    def volume_is_attached(self, volume_name: str) -> bool:
        return volume_name in self.attached

    def mark_volumes_as_reported_in_use(self, volumes_reported_as_in_use: list[str]) -> None:
        self.reported_in_use = volumes_reported_as_in_use

    def forget_failures(self, pod_name: str) -> None:
        self.changes.append(f"forget {pod_name}")

    def orphan_ended(self) -> None:
        self.changes.append("orphan")

    def sources_changed(self) -> None:
        self.changes.append("sources")

    def node_changed(self) -> None:
        self.changes.append("node")


class FakeBasicVolumePlugin:
    """Serve volumes that are directories. The plugin supports Photon disks, which no real plugin here does.

    `calls` holds the calls with the volume's name and, where there is one, the pod's. `errors` holds the errors that
    calls of a method raise, one after the other.
    """

    def __init__(self, name: str = FAKE_PLUGIN_NAME, remount: bool = False) -> None:
        self._name = name
        self.remount = remount
        self.supports_selinux = False
        self.reconstructible = True
        self.calls: list[tuple[str, ...]] = []
        self.errors: dict[str, list[Exception]] = {}
        # Calls of these methods wait until their channel is closed.
        self.gates: dict[str, golang.Channel[None]] = {}
        self.resized: list[NodeResizeOptions] = []
        # This condition guards `calls` and `errors`, and is notified of each call.
        self._changed = threading.Condition()
        self.host: VolumeHost

    def called(self, *call: str) -> None:
        """Record the call, wait at its gate and raise its error, if there is one."""
        with self._changed:
            self.calls.append(call)
            self._changed.notify_all()
            errors = self.errors.get(call[0])
            err = errors.pop(0) if errors else None
        if (gate := self.gates.get(call[0])) is not None:
            gate.recv()
        if err is not None:
            raise err

    def wait_for_call(self, *call: str, times: int = 1) -> None:
        """Wait until this call was made `times` times. Raise AssertionError after half a minute."""
        with self._changed:
            came = self._changed.wait_for(lambda: self.calls.count(call) >= times, 30)
        assert came, f"{call} was not called {times} times: {self.calls}"

    def init(self, host: VolumeHost) -> None:
        self.host = host

    def get_plugin_name(self) -> str:
        return self._name

    def get_volume_name(self, spec: Spec) -> str:
        disk = _disk(spec)
        if disk is None:
            raise ValueError("spec is of another kind")
        return disk.pd_id

    def can_support(self, spec: Spec) -> bool:
        return _disk(spec) is not None

    def requires_remount(self, spec: Spec) -> bool:
        return self.remount

    def supports_mount_option(self) -> bool:
        return True

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        return self.supports_selinux

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> FakeVolume:
        return FakeVolume(self, spec.name(), pod.metadata.uid)

    def new_unmounter(self, name: str, pod_uid: types.UID) -> FakeVolume:
        return FakeVolume(self, name, pod_uid)

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        if not self.reconstructible:
            raise ValueError("the directory does not identify the volume")
        return ReconstructedVolume(new_persistent_volume_spec(volume_name))

    # ---- Expansion ----

    def requires_fs_resize(self) -> bool:
        return True

    def node_expand(self, resize_options: NodeResizeOptions) -> bool:
        self.called("node_expand", resize_options.volume_spec.name())
        self.resized.append(resize_options)
        return True

    # ---- Block volumes ----

    def new_block_volume_mapper(self, spec: Spec, pod: v1.Pod) -> FakeVolume:
        return FakeVolume(self, spec.name(), pod.metadata.uid)

    def new_block_volume_unmapper(self, name: str, pod_uid: types.UID) -> FakeVolume:
        return FakeVolume(self, name, pod_uid)

    def construct_block_volume_spec(self, pod_uid: types.UID, volume_name: str, volume_path: str) -> Spec:
        return new_persistent_volume_spec(volume_name, volume_mode=v1.PERSISTENT_VOLUME_BLOCK)


class FakeDeviceMountableVolumePlugin(FakeBasicVolumePlugin):
    """Serve volumes that the node mounts once."""

    can_device_mount_volumes = True

    def new_device_mounter(self) -> FakeDevice:
        return FakeDevice(self)

    def new_device_unmounter(self) -> FakeDevice:
        return FakeDevice(self)

    def get_device_mount_refs(self, device_mount_path: str) -> list[str]:
        return []

    def can_device_mount(self, spec: Spec) -> bool:
        return self.can_device_mount_volumes


class FakeAttachableVolumePlugin(FakeDeviceMountableVolumePlugin):
    """Serve volumes that must be attached first."""

    can_attach_volumes = True
    exhausted = False

    def new_attacher(self) -> FakeDevice:
        return FakeDevice(self)

    def new_detacher(self) -> FakeDevice:
        return FakeDevice(self)

    def can_attach(self, spec: Spec) -> bool:
        return self.can_attach_volumes

    def verify_exhausted_resource(self, spec: Spec) -> bool:
        return self.exhausted


class FakeVolume:
    """Represent a volume of a pod: a directory or a device."""

    def __init__(self, plugin: FakeBasicVolumePlugin, volume_name: str, pod_uid: types.UID) -> None:
        self._plugin = plugin
        self._name = volume_name
        self._pod_uid = pod_uid
        self.args: list[MounterArgs] = []

    def _escaped(self) -> str:
        return self._plugin.get_plugin_name().replace("/", "~")

    def get_metrics(self) -> Metrics:
        return Metrics()

    def get_path(self) -> str:
        return self._plugin.host.get_pod_volume_dir(self._pod_uid, self._escaped(), self._name)

    def get_attributes(self) -> Attributes:
        return Attributes()

    def set_up(self, args: MounterArgs) -> None:
        self.set_up_at(self.get_path(), args)

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        self._plugin.called("set_up", self._name, self._pod_uid)
        self.args.append(args)
        os.makedirs(directory, exist_ok=True)

    def tear_down(self) -> None:
        self.tear_down_at(self.get_path())

    def tear_down_at(self, directory: str) -> None:
        self._plugin.called("tear_down", self._name, self._pod_uid)
        if os.path.isdir(directory):
            shutil.rmtree(directory)

    def get_global_map_path(self, spec: Spec) -> str:
        directory = self._plugin.host.get_volume_device_plugin_dir(self._plugin.get_plugin_name())
        return os.path.join(directory, self._name)

    def get_pod_device_map_path(self) -> tuple[str, str]:
        return self._plugin.host.get_pod_volume_device_dir(self._pod_uid, self._escaped()), self._name

    def supports_metrics(self) -> bool:
        return False

    def get_staging_path(self) -> str:
        return ""

    def set_up_device(self, reconstructed_volume: bool = False) -> str:
        self._plugin.called("set_up_device", self._name)
        return ""

    def map_pod_device(self) -> str:
        self._plugin.called("map_pod_device", self._name, self._pod_uid)
        return ""

    def tear_down_device(self, map_path: str, device_path: str) -> None:
        self._plugin.called("tear_down_device", self._name)

    def unmap_pod_device(self) -> None:
        self._plugin.called("unmap_pod_device", self._name, self._pod_uid)


class FakeDevice:
    """Represent the global mounts of volumes on the node."""

    def __init__(self, plugin: FakeDeviceMountableVolumePlugin) -> None:
        self._plugin = plugin

    def get_device_mount_path(self, spec: Spec) -> str:
        return os.path.join(self._plugin.host.get_plugin_dir(self._plugin.get_plugin_name()), "mounts", spec.name())

    def mount_device(self, spec: Spec, device_path: str, device_mount_path: str, args: DeviceMounterArgs) -> None:
        self._plugin.called("mount_device", spec.name(), device_path)
        os.makedirs(device_mount_path, exist_ok=True)

    def unmount_device(self, device_mount_path: str) -> None:
        self._plugin.called("unmount_device", os.path.basename(device_mount_path))
        if os.path.isdir(device_mount_path):
            os.rmdir(device_mount_path)

    def attach(self, spec: Spec, node_name: str) -> str:
        self._plugin.called("attach", spec.name())
        return FAKE_DEVICE_PATH

    def detach(self, volume_name: str, node_name: str) -> None:
        self._plugin.called("detach", volume_name)

    def volumes_are_attached(self, specs: list[Spec], node_name: str) -> dict[str, bool]:
        return {spec.name(): True for spec in specs}

    def wait_for_attach(self, spec: Spec, device_path: str, pod: v1.Pod, timeout: float) -> str:
        self._plugin.called("wait_for_attach", spec.name(), device_path)
        return device_path or FAKE_DEVICE_PATH


def new_persistent_volume_spec(
    name: str, *, volume_mode: str = v1.PERSISTENT_VOLUME_FILESYSTEM, size: str = "5G"
) -> Spec:
    """Return a volume that the fake plugins support."""
    return Spec(persistent_volume=new_persistent_volume(name, volume_mode=volume_mode, size=size))


def new_persistent_volume(
    name: str,
    *,
    claim: v1.PersistentVolumeClaim | None = None,
    volume_mode: str = v1.PERSISTENT_VOLUME_FILESYSTEM,
    size: str = "5G",
) -> v1.PersistentVolume:
    """Return a persistent volume, bound to the claim if there is one."""
    claim_ref = None
    if claim is not None:
        metadata = claim.metadata
        claim_ref = v1.ObjectReference(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)
    return v1.PersistentVolume(
        metadata=metav1.ObjectMeta(name=name),
        spec=v1.PersistentVolumeSpec(
            photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id=name),
            capacity={v1.RESOURCE_STORAGE: resource.parse_quantity(size)},
            access_modes=[v1.READ_WRITE_ONCE],
            volume_mode=volume_mode,
            claim_ref=claim_ref,
        ),
    )


def new_claim(
    name: str, volume_name: str, *, namespace: str = "default", phase: str = v1.CLAIM_BOUND, size: str = "5G"
) -> v1.PersistentVolumeClaim:
    """Return a claim that is bound to the volume."""
    return v1.PersistentVolumeClaim(
        metadata=metav1.ObjectMeta(name=name, namespace=namespace, uid=types.UID(f"uid-of-{name}")),
        spec=v1.PersistentVolumeClaimSpec(volume_name=volume_name),
        status=v1.PersistentVolumeClaimStatus(
            phase=phase, capacity={v1.RESOURCE_STORAGE: resource.parse_quantity(size)}
        ),
    )


def new_pod(uid: str, *volumes: v1.Volume, devices: bool = False) -> v1.Pod:
    """Return a pod with one container that mounts the volumes, or uses them as devices."""
    container = v1.Container(name="c")
    for volume in volumes:
        if devices:
            container.volume_devices.append(v1.VolumeDevice(name=volume.name, device_path=f"/dev/{volume.name}"))
        else:
            container.volume_mounts.append(v1.VolumeMount(name=volume.name, mount_path=f"/{volume.name}"))
    return v1.Pod(
        metadata=metav1.ObjectMeta(name=f"pod-{uid}", namespace="default", uid=types.UID(uid)),
        spec=v1.PodSpec(containers=[container], volumes=list(volumes)),
    )


def new_claim_volume(name: str, claim_name: str) -> v1.Volume:
    """Return a pod's volume that comes from the claim."""
    return v1.Volume(name=name, persistent_volume_claim=v1.PersistentVolumeClaimVolumeSource(claim_name=claim_name))


def _disk(spec: Spec) -> v1.PhotonPersistentDiskVolumeSource | None:
    if spec.volume is not None:
        return spec.volume.photon_persistent_disk
    return spec.persistent_volume.spec.photon_persistent_disk if spec.persistent_volume is not None else None
