"""The first, simple executor, which the volume manager used before it knew devices.

Go: pkg/volume/util/operationexecutor/operation_executor.go, operation_generator.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import clock
from pkg.util import goroutinemap
from pkg.util.goroutinemap import exponentialbackoff
from pkg.volume.plugins import Spec, VolumeHost, VolumePluginMgr
from pkg.volume.volume import Mounter, MounterArgs

if TYPE_CHECKING:
    from pkg.client_go.tools import record

FAILED_MOUNT_VOLUME = "FailedMount"


@dataclass(frozen=True, slots=True)
class VolumeToMount:
    """A volume that a pod wants."""

    volume_name: str  # unique on the node
    pod_name: str  # the pod's uid
    spec: Spec
    outer_volume_spec_name: str  # as the pod calls it
    pod: v1.Pod
    plugin_name: str


@dataclass(slots=True)
class MountedVolume:
    """A volume that a pod has, or, when uncertain, may have."""

    volume_name: str
    pod_name: str
    outer_volume_spec_name: str
    inner_volume_spec_name: str
    plugin_name: str
    spec: Spec
    # None when the volume was only found on disk.
    mounter: Mounter | None
    # Set up was begun and nobody knows how far it came.
    uncertain: bool = False


class ActualStateOfWorldMounterUpdater(Protocol):
    """Where operations write down what they did."""

    def mark_volume_as_mounted(self, volume: MountedVolume) -> None: ...

    def mark_volume_as_unmounted(self, pod_name: str, volume_name: str) -> None: ...


class OperationExecutor:
    """Starts operations on threads of their own; safe from any thread.

    Starting one that runs already, or that failed so lately that it must wait, does nothing: the reconciler comes
    back.
    """

    def __init__(
        self,
        plugins: VolumePluginMgr,
        host: VolumeHost,
        recorder: record.EventRecorder,
        on_done: Callable[[], None],
        clock: clock.Clock | None = None,
    ) -> None:
        """on_done is called after every operation, from its thread."""
        self._plugins = plugins
        self._host = host
        self._recorder = recorder
        self._on_done = on_done
        self._operations = goroutinemap.GoRoutineMap(exponential_back_off_on_error=True, clock=clock)

    def is_operation_pending(self, volume_name: str, pod_name: str) -> bool:
        return self._operations.is_operation_pending(_key(volume_name, pod_name))

    def mount_volume(self, volume: VolumeToMount, state: ActualStateOfWorldMounterUpdater) -> None:
        """Set the volume up for the pod. A fault becomes an event of the pod."""
        self._start(_key(volume.volume_name, volume.pod_name), lambda: self._mount(volume, state))

    def unmount_volume(self, volume: MountedVolume, state: ActualStateOfWorldMounterUpdater, pods_dir: str) -> None:
        """Take the volume, with its sub-paths, away from the pod."""
        self._start(_key(volume.volume_name, volume.pod_name), lambda: self._unmount(volume, state, pods_dir))

    def _start(self, key: str, operation: Callable[[], None]) -> None:
        def run() -> None:
            try:
                operation()
            finally:
                self._on_done()

        try:
            self._operations.run(key, run)
        except (goroutinemap.AlreadyExistsError, exponentialbackoff.ExponentialBackoffError) as err:
            klog.v(5).info_s("Volume operation is not started", operation=key, reason=err)

    def _mount(self, volume: VolumeToMount, state: ActualStateOfWorldMounterUpdater) -> None:
        try:
            plugin = self._plugins.find_plugin_by_spec(volume.spec)
            mounter = plugin.new_mounter(volume.spec, volume.pod)
            mounter.set_up(_mounter_args(volume))
        except Exception as err:
            message = f'MountVolume.SetUp failed for volume "{volume.spec.name()}" : {err}'
            self._recorder.event(volume.pod, v1.EVENT_TYPE_WARNING, FAILED_MOUNT_VOLUME, message)
            raise
        klog.v(1).info_s(
            "MountVolume.SetUp succeeded for volume",
            volumeName=volume.volume_name,
            pod=klog.kobj(volume.pod),
        )
        state.mark_volume_as_mounted(
            MountedVolume(
                volume_name=volume.volume_name,
                pod_name=volume.pod_name,
                outer_volume_spec_name=volume.outer_volume_spec_name,
                inner_volume_spec_name=volume.spec.name(),
                plugin_name=volume.plugin_name,
                spec=volume.spec,
                mounter=mounter,
            )
        )

    def _unmount(self, volume: MountedVolume, state: ActualStateOfWorldMounterUpdater, pods_dir: str) -> None:
        plugin = self._plugins.find_plugin_by_name(volume.plugin_name)
        pod_dir = f"{pods_dir}/{volume.pod_name}"
        self._host.get_subpather().clean_subpaths(pod_dir, volume.inner_volume_spec_name)
        plugin.new_unmounter(volume.inner_volume_spec_name, volume.pod_name).tear_down()
        klog.info_s(
            "UnmountVolume.TearDown succeeded for volume", volumeName=volume.volume_name, podUID=volume.pod_name
        )
        state.mark_volume_as_unmounted(volume.pod_name, volume.volume_name)


def _key(volume_name: str, pod_name: str) -> str:
    return f"{volume_name}@{pod_name}"


def _mounter_args(volume: VolumeToMount) -> MounterArgs:
    context = volume.pod.spec.security_context
    if context is None:
        return MounterArgs()
    return MounterArgs(fs_group=context.fs_group, fs_group_change_policy=context.fs_group_change_policy)
