"""Provide a plugin that records every step, and an actual state that records what operations report.

Go: pkg/volume/testing/testing.go (FakeVolumePlugin), and fakes of the package's tests
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.volume.plugins import NodeResizeOptions, ReconstructedVolume, Spec, VolumeHost
from pkg.volume.util.operationexecutor.operation_executor import (
    ActualStateOfWorldAttacherUpdater,
    ActualStateOfWorldMounterUpdater,
    DeviceMountState,
    MarkVolumeOpts,
    VolumeMountState,
)
from pkg.volume.volume import Attributes, DeviceMounterArgs, Metrics, MounterArgs

NAME = "fake/plugin"


class FakePlugin:
    """Record calls to attach, mount, map and expand. The plugin is also its own attacher, mounter and mapper.

    A step raises the error that `errors` holds under the step's name.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.attachable = True
        self.device_mountable = True
        self.mount_refs: list[str] = []
        self.attached: dict[str, bool] = {}
        self.mount_options = True

    def _step(self, name: str) -> None:
        self.calls.append(name)
        if name in self.errors:
            raise self.errors[name]

    def init(self, host: VolumeHost) -> None: ...

    def get_plugin_name(self) -> str:
        return NAME

    def get_volume_name(self, spec: Spec) -> str:
        return spec.name()

    def can_support(self, spec: Spec) -> bool:
        return True

    def requires_remount(self, spec: Spec) -> bool:
        return False

    def supports_mount_option(self) -> bool:
        return self.mount_options

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        return False

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        return ReconstructedVolume(Spec(volume=v1.Volume(name=volume_name)))

    def construct_block_volume_spec(self, pod_uid: types.UID, volume_name: str, volume_path: str) -> Spec:
        return Spec(volume=v1.Volume(name=volume_name))

    def _self(self, name: str) -> Any:
        self._step(name)
        return self

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Any:
        return self._self("new_mounter")

    def new_unmounter(self, name: str, pod_uid: types.UID) -> Any:
        return self

    def new_attacher(self) -> Any:
        return self

    def new_detacher(self) -> Any:
        return self

    def new_device_mounter(self) -> Any:
        return self

    def new_device_unmounter(self) -> Any:
        return self

    def new_block_volume_mapper(self, spec: Spec, pod: v1.Pod) -> Any:
        return self

    def new_block_volume_unmapper(self, name: str, pod_uid: types.UID) -> Any:
        return self

    def can_attach(self, spec: Spec) -> bool:
        return self.attachable

    def can_device_mount(self, spec: Spec) -> bool:
        return self.device_mountable

    def verify_exhausted_resource(self, spec: Spec) -> bool:
        return False

    def attach(self, spec: Spec, node_name: str) -> str:
        self._step("attach")
        return "/dev/fake"

    def detach(self, volume_name: str, node_name: str) -> None:
        self._step("detach")

    def volumes_are_attached(self, specs: list[Spec], node_name: str) -> dict[str, bool]:
        self._step("volumes_are_attached")
        return self.attached

    def wait_for_attach(self, spec: Spec, device_path: str, pod: v1.Pod, timeout: float) -> str:
        self._step("wait_for_attach")
        return "/dev/fake"

    def get_device_mount_path(self, spec: Spec) -> str:
        return "/plugins/global"

    def get_device_mount_refs(self, device_mount_path: str) -> list[str]:
        return self.mount_refs

    def mount_device(self, spec: Spec, device_path: str, device_mount_path: str, args: DeviceMounterArgs) -> None:
        self._step("mount_device")

    def unmount_device(self, device_mount_path: str) -> None:
        self._step("unmount_device")

    def get_path(self) -> str:
        return "/pods/volume"

    def get_attributes(self) -> Attributes:
        return Attributes()

    def get_metrics(self) -> Metrics:
        return Metrics()

    def supports_metrics(self) -> bool:
        return False

    def set_up(self, args: MounterArgs) -> None:
        self._step("set_up")

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        self._step("set_up")

    def tear_down(self) -> None:
        self._step("tear_down")

    def tear_down_at(self, directory: str) -> None:
        self._step("tear_down")

    def get_global_map_path(self, spec: Spec) -> str:
        return "/plugins/map"

    def get_pod_device_map_path(self) -> tuple[str, str]:
        return "/pods/volumeDevices", "disk"

    def get_staging_path(self) -> str:
        return "/plugins/staging"

    def set_up_device(self, reconstructed_volume: bool = False) -> str:
        self._step("set_up_device")
        return "/plugins/staging"

    def map_pod_device(self) -> str:
        self._step("map_pod_device")
        return "/dev/mapped"

    def unmap_pod_device(self) -> None:
        self._step("unmap_pod_device")

    def tear_down_device(self, map_path: str, device_path: str) -> None:
        self._step("tear_down_device")

    def requires_fs_resize(self) -> bool:
        return True

    def node_expand(self, resize_options: NodeResizeOptions) -> bool:
        self._step(f"node_expand {resize_options.new_size}")
        return True


class FakeActualStateOfWorld:
    """Record the states of volumes and devices that operations report."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.volume_state = VolumeMountState.VOLUME_NOT_MOUNTED
        self.device_state = DeviceMountState.DEVICE_NOT_MOUNTED
        self.attached: dict[str, str] = {}
        self.claim_sizes: dict[str, Quantity] = {}
        self.mounted_elsewhere = False
        self.reconstructed = False
        self.known = True
        self.in_use_errors: set[str] = set()
        self.final_errors: set[str] = set()

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.errors:
            raise self.errors[name]

    def mark_volume_as_mounted(self, mark_volume_opts: MarkVolumeOpts) -> None:
        self._call("mark_volume_as_mounted")
        self.volume_state = VolumeMountState.VOLUME_MOUNTED

    def mark_volume_as_unmounted(self, pod_name: str, volume_name: str) -> None:
        self._call("mark_volume_as_unmounted")
        self.volume_state = VolumeMountState.VOLUME_NOT_MOUNTED

    def mark_volume_mount_as_uncertain(self, mark_volume_opts: MarkVolumeOpts) -> None:
        self._call("mark_volume_mount_as_uncertain")
        self.volume_state = VolumeMountState.VOLUME_MOUNT_UNCERTAIN

    def mark_device_as_mounted(
        self, volume_name: str, device_path: str, device_mount_path: str, selinux_mount_context: str
    ) -> None:
        self._call(f"mark_device_as_mounted {device_path}")
        self.device_state = DeviceMountState.DEVICE_GLOBALLY_MOUNTED

    def mark_device_as_uncertain(
        self, volume_name: str, device_path: str, device_mount_path: str, selinux_mount_context: str
    ) -> None:
        self._call("mark_device_as_uncertain")
        self.device_state = DeviceMountState.DEVICE_MOUNT_UNCERTAIN

    def mark_device_as_unmounted(self, volume_name: str) -> None:
        self._call("mark_device_as_unmounted")
        self.device_state = DeviceMountState.DEVICE_NOT_MOUNTED

    def mark_volume_as_resized(self, volume_name: str, claim_size: Quantity) -> bool:
        self._call(f"mark_volume_as_resized {claim_size}")
        return self.known

    def get_device_mount_state(self, volume_name: str) -> DeviceMountState:
        return self.device_state

    def get_volume_mount_state(self, volume_name: str, pod_name: str) -> VolumeMountState:
        return self.volume_state

    def is_volume_mounted_elsewhere(self, volume_name: str, pod_name: str) -> bool:
        return self.mounted_elsewhere

    def mark_for_in_use_expansion_error(self, volume_name: str) -> None:
        self.in_use_errors.add(volume_name)

    def check_and_mark_volume_as_uncertain_via_reconstruction(self, opts: MarkVolumeOpts) -> bool:
        return False

    def check_and_mark_device_uncertain_via_reconstruction(self, volume_name: str, device_mount_path: str) -> bool:
        return False

    def is_volume_reconstructed(self, volume_name: str, pod_name: str) -> bool:
        return self.reconstructed

    def is_volume_device_reconstructed(self, volume_name: str) -> bool:
        return self.reconstructed

    def mark_volume_expansion_failed_with_final_error(self, volume_name: str) -> None:
        self.final_errors.add(volume_name)

    def remove_volume_from_failed_with_final_errors(self, volume_name: str) -> None:
        self.final_errors.discard(volume_name)

    def check_volume_in_failed_expansion_with_final_errors(self, volume_name: str) -> bool:
        return volume_name in self.final_errors

    def mark_volume_as_attached(self, volume_name: str, volume_spec: Spec, node_name: str, device_path: str) -> None:
        self._call("mark_volume_as_attached")
        self.attached[volume_name or volume_spec.name()] = device_path

    def mark_volume_as_uncertain(self, volume_name: str, volume_spec: Spec, node_name: str) -> None:
        self._call("mark_volume_as_uncertain")

    def mark_volume_as_detached(self, volume_name: str, node_name: str) -> None:
        self._call(f"mark_volume_as_detached {volume_name}")

    def remove_volume_from_report_as_attached(self, volume_name: str, node_name: str) -> None: ...

    def add_volume_to_report_as_attached(self, volume_name: str, node_name: str) -> None: ...

    def initialize_claim_size(self, volume_name: str, claim_size: Quantity) -> None:
        self.claim_sizes[volume_name] = claim_size

    def get_claim_size(self, volume_name: str) -> Quantity:
        return self.claim_sizes.get(volume_name, Quantity(0))


if TYPE_CHECKING:

    def _conforms(state: FakeActualStateOfWorld) -> None:
        mounter: ActualStateOfWorldMounterUpdater = state
        attacher: ActualStateOfWorldAttacherUpdater = state
        del mounter, attacher
