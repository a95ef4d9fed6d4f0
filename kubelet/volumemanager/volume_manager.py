"""Answer the kubelet's questions about volumes, and run the threads that mount and unmount them.

Go: pkg/kubelet/volumemanager/volume_manager.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from kubelet import config
from kubelet import container as kubecontainer
from kubelet.volumemanager import metrics
from kubelet.volumemanager.cache import ActualStateOfWorld, DesiredStateOfWorld
from kubelet.volumemanager.populator import (
    Claims,
    DesiredStateOfWorldPopulator,
    PodManager,
    PodStateProvider,
)
from kubelet.volumemanager.reconciler import REST_FACTOR, Reconciler
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.util import errors as utilerrors
from pkg.apimachinery.util.runtime import contain
from pkg.golang import strconv
from pkg.volume import VolumePluginMgr
from pkg.volume import util as volumeutil
from pkg.volume.util import hostutil as hostutil_
from pkg.volume.util.nestedpendingoperations import EMPTY_NODE_NAME
from pkg.volume.util.operationexecutor import (
    MountedVolume,
    OperationExecutor,
    OperationGenerator,
    StuckUnmounts,
    VolumeToMount,
)
from pkg.volume.util.volumepathhandler import BlockVolumePathHandler

if TYPE_CHECKING:
    from pkg.client_go import kubernetes
    from pkg.client_go.tools import record

# `POD_ATTACH_AND_MOUNT_TIMEOUT` is the time, in seconds, that a pod's sync waits for volumes. After that the sync
# fails, so that the pod worker can see changes of the pod.
POD_ATTACH_AND_MOUNT_TIMEOUT = 123.0
# `WAIT_FOR_ATTACH_TIMEOUT` is the time, in seconds, that a mount waits for its device to be attached. Only operations
# on the same volume wait with it.
WAIT_FOR_ATTACH_TIMEOUT = 600.0
# The kubelet gives this reason when it rejects a pod whose volume cannot be attached because the node has reached its
# limit.
VOLUME_ATTACHMENT_LIMIT_EXCEEDED_REASON = "VolumeAttachmentLimitExceeded"


class VolumesNotReadyError(Exception):
    """Signal that the volumes of a pod cannot be made ready."""


class VolumeAttachLimitExceededError(VolumesNotReadyError):
    """Signal that a volume cannot be attached because the node has reached its attachment limit."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Node has reached its volume attachment limit, rejecting pod. {reason}")


class VolumeManager:
    """Attach, mount, unmount and detach the volumes of the node's pods. Every method is safe from any thread.

    Two threads run for as long as the manager does. The populator records which volumes pods need, for which it may
    have to ask the API server. The reconciler starts the operations that are due and never waits for one. Each
    operation runs on a thread of its own.

    The Go kubelet examines everything ten times a second. Here an event wakes the threads: a pod waits for its volumes,
    an operation has ended, the sources are ready, the node's status was reported or has changed.
    """

    def __init__(
        self,
        controller_attach_detach_enabled: bool,
        node_name: str,
        pod_manager: PodManager,
        pod_state_provider: PodStateProvider,
        kube_client: kubernetes.Interface | None,
        volume_plugin_mgr: VolumePluginMgr,
        hostutil: hostutil_.HostUtils,
        kubelet_pods_dir: str,
        recorder: record.EventRecorder,
        block_volume_path_handler: BlockVolumePathHandler,
        claims: Claims | None,
        stuck_unmounts: StuckUnmounts | None = None,
        on_volumes_in_use_change: Callable[[], object] | None = None,
        clock: clocklib.Clock | None = None,
    ) -> None:
        """Create the manager; run starts it.

        The manager calls on_volumes_in_use_change when the node's status should report a new result of
        get_volumes_in_use. The callback must not block: the manager calls it from the reconciler's thread.
        """
        self._volume_plugin_mgr = volume_plugin_mgr
        self._desired_state_of_world = DesiredStateOfWorld(
            volume_plugin_mgr, volumeutil.Translator(), self._tell_waiters, clock
        )
        self._actual_state_of_world = ActualStateOfWorld(node_name, volume_plugin_mgr, self._tell_waiters)
        self._operation_executor = OperationExecutor(
            OperationGenerator(kube_client, volume_plugin_mgr, recorder, block_volume_path_handler),
            self._operation_ended,
            clock,
            stuck_unmounts,
        )
        self._desired_state_of_world_populator = DesiredStateOfWorldPopulator(
            claims,
            pod_manager,
            pod_state_provider,
            self._desired_state_of_world,
            self._actual_state_of_world,
            volume_plugin_mgr,
            self._operation_is_pending,
            on_populated=self._populated,
        )
        self._stuck_unmounts = stuck_unmounts
        self._reconciler = Reconciler(
            kube_client,
            controller_attach_detach_enabled,
            WAIT_FOR_ATTACH_TIMEOUT,
            node_name,
            self._desired_state_of_world,
            self._actual_state_of_world,
            self._desired_state_of_world_populator.has_added_pods,
            self._operation_executor,
            hostutil,
            volume_plugin_mgr,
            kubelet_pods_dir,
            self._desired_state_of_world_populator.has_begun,
            self._desired_state_of_world_populator.may_run_unwanted,
            self._reconciled,
        )
        self._clock = clock or clocklib.RealClock()
        self._operation_has_ended: golang.Channel[None] = golang.Channel(1)
        self._on_volumes_in_use_change = on_volumes_in_use_change or (lambda: None)
        self._lock = threading.Lock()  # This lock guards the two fields below.
        # `_waiters` holds, by pod, one channel for each waiting pod worker. The manager sends on it when the pod's
        # volumes may have changed.
        self._waiters: dict[str, set[golang.Channel[None]]] = {}
        # `_volumes_reported_in_use` holds the volumes that the node's status last reported as in use.
        self._volumes_reported_in_use: list[str] = []

    def run(self, ctx: golang.Context, sources_ready: config.SourcesReady) -> None:
        """Run the populator and the reconciler until ctx ends."""
        populator = golang.go(
            self._desired_state_of_world_populator.run, ctx, sources_ready, name="volume-manager-populator"
        )
        klog.v(2).info_s("The desired_state_of_world populator starts")
        klog.info_s("Starting Kubelet Volume Manager")
        metrics.register(self._actual_state_of_world, self._desired_state_of_world, self._volume_plugin_mgr)
        stuck = golang.go(self._watch_stuck_unmounts, ctx, name="volume-manager-stuck-unmounts")
        self._reconciler.run(ctx)
        populator.join()
        stuck.join()
        klog.info_s("Shutting down Kubelet Volume Manager")

    def _watch_stuck_unmounts(self, ctx: golang.Context) -> None:
        """Find the processes that keep volumes from being unmounted, until ctx ends.

        This work has a thread of its own because it examines all processes of the node.
        """
        if self._stuck_unmounts is None:
            return
        while golang.select(self._operation_has_ended, ctx.done()).took(self._operation_has_ended):
            began = self._clock.monotonic()
            with contain("Failed to find the processes that hold volumes", ctx):
                self._stuck_unmounts.investigate(self._retry)
            # New processes may keep opening files of the same mount. The pause keeps the search from using a whole
            # core.
            ctx.wait(REST_FACTOR * (self._clock.monotonic() - began))
        self._stuck_unmounts.close()

    def _retry(self, volume_name: str) -> None:
        self._operation_executor.forget_failures(volume_name)
        self._reconciler.wake()

    def forget_failures(self, pod_name: str) -> None:
        """Forget the failures of operations on the pod's volumes, and try these operations again at once."""
        for volume_name in self._desired_state_of_world.get_volume_names_for_pod(pod_name).values():
            self._operation_executor.forget_failures(volume_name)
        self._reconciler.wake()

    def sources_changed(self) -> None:
        """Process all pods now, because more sources of pods have become ready."""
        self._desired_state_of_world_populator.wake()

    def orphan_ended(self) -> None:
        """Reconcile now, because a pod that no source has any more, and that has volumes, has stopped running."""
        self._reconciler.wake()

    def node_changed(self) -> None:
        """Reconcile now, because the node's status may report newly attached volumes."""
        self._reconciler.wake()

    # ---- Queries ----

    def get_mounted_volumes_for_pod(self, pod_name: str) -> kubecontainer.VolumeMap:
        """Return the pod's desired volumes that are mounted or mapped, by their names in the pod's spec."""
        return {
            outer_name: kubecontainer.VolumeInfo(
                mounter=volume.mounter,
                block_volume_mapper=volume.block_volume_mapper,
                read_only=volume.volume_spec.read_only,
                inner_volume_spec_name=volume.inner_volume_spec_name,
            )
            for outer_name, volume in self._get_mounted_volumes(pod_name).items()
        }

    def get_missing_volumes_for_pod(self, pod: v1.Pod) -> list[str]:
        """List the names in the pod's spec of the volumes that its containers use and that are not set up yet."""
        return self._get_unmounted_volumes(volumeutil.get_unique_pod_name(pod), _get_expected_volumes(pod))

    def has_possibly_mounted_volumes_for_pod(self, pod_name: str) -> bool:
        """Report whether any volume of the pod is mounted, or may be because an operation on it did not finish."""
        return bool(self._actual_state_of_world.get_possibly_mounted_volumes_for_pod(pod_name))

    def get_extra_supplemental_groups_for_pod(self, pod: v1.Pod) -> list[int]:
        """Return the groups that the pod's persistent volumes request by annotation.

        Groups that the pod's security context already has are left out.
        """
        mounted = self._actual_state_of_world.get_mounted_volumes_for_pod(volumeutil.get_unique_pod_name(pod))
        groups = {_get_extra_supplemental_gid(volume.volume_gid_value, pod) for volume in mounted}
        return sorted(group for group in groups if group is not None)

    def get_volumes_in_use(self) -> list[str]:
        """List the names of the volumes that must not be detached from the node.

        A volume is in use from the moment a pod needs it until the volume is known to be unmounted.
        """
        desired = self._desired_state_of_world.get_attachable_volumes()
        return sorted(desired | self._actual_state_of_world.get_attachable_volumes())

    def reconciler_states_have_been_synced(self) -> bool:
        """Report whether the node's volumes are known; until then the node's status must not report volumes in use."""
        return self._reconciler.states_has_been_synced()

    def volumes_have_been_reconstructed(self) -> bool:
        """Report whether the volumes that an earlier run of the kubelet left behind have been reconstructed."""
        return self._reconciler.has_reconstructed()

    def volume_is_attached(self, volume_name: str) -> bool:
        """Report whether the volume is attached to the node."""
        return self._actual_state_of_world.volume_exists(volume_name)

    def mark_volumes_as_reported_in_use(self, volumes_reported_as_in_use: list[str]) -> None:
        """Record the volumes that the node's status reports as in use; only these may be mounted."""
        with self._lock:
            self._volumes_reported_in_use = sorted(volumes_reported_as_in_use)
        if self._desired_state_of_world.mark_volumes_reported_in_use(volumes_reported_as_in_use):
            self._reconciler.wake()

    # ---- Waiting ----

    def wait_for_attach_and_mount(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Wait until all volumes that containers of the pod use are set up.

        Raise TimeoutError after about two minutes, or VolumeAttachLimitExceededError if the node has reached its
        attachment limit. Raise VolumesNotReadyError as soon as an operation on a volume has failed. The text of each
        error names the missing volumes. Raise golang.Canceled when ctx ends.
        """
        expected = _get_expected_volumes(pod)
        if not expected:
            return
        klog.v(3).info_s("Waiting for volumes to attach and mount for pod", pod=klog.kobj(pod))
        pod_name = volumeutil.get_unique_pod_name(pod)
        # Discard the errors of earlier attempts, which say nothing about this one.
        self._desired_state_of_world.pop_pod_errors(pod_name)
        self._desired_state_of_world_populator.begin_pod(pod_name)
        err = self._wait(ctx, pod_name, lambda: self._verify_volumes_mounted(pod_name, expected))
        unmounted = self._get_unmounted_volumes(pod_name, expected)
        if err is None or not unmounted:
            klog.v(3).info_s("All volumes are attached and mounted for pod", pod=klog.kobj(pod))
            return
        if isinstance(err, golang.Canceled):
            raise golang.Canceled
        unattached = self._get_unattached_volumes(pod_name)
        names = sorted(name for volume in unattached for name in volume.outer_volume_spec_names)
        not_in_dsw = self._get_volumes_not_in_dsw(pod_name, expected)
        message = (
            f"unmounted volumes={_go_list(unmounted)}, unattached volumes={_go_list(names)}, "
            f"failed to process volumes={_go_list(not_in_dsw)}: {err}"
        )
        if self._is_exhausted(unattached):
            raise VolumeAttachLimitExceededError(message)
        raise (TimeoutError(message) if isinstance(err, TimeoutError) else VolumesNotReadyError(message)) from err

    def wait_for_unmount(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Wait until none of the pod's volumes is mounted any more.

        Raise TimeoutError, whose text names the volumes that are still mounted, after about two minutes. Raise
        golang.Canceled when ctx ends.

        DIVERGES (fault of Go): the wait for unmounts includes volumes that may still be mounted, such as one whose
        unmount has failed.
        Go: pkg/kubelet/volumemanager/volume_manager.go, (*volumeManager).verifyVolumesUnmountedFunc: the Go kubelet
        waits only for volumes that are known to be mounted.
        Why: at shutdown the node would stop while such a volume is still mounted.
        Test: volume_manager_test.py:test_uncertain_mount_is_unmounted_and_a_failed_one_is_not
        """
        klog.v(3).info_s("Waiting for volumes to unmount for pod", pod=klog.kobj(pod))
        pod_name = volumeutil.get_unique_pod_name(pod)
        self._desired_state_of_world_populator.reprocess_pod(pod_name)
        stuck = self._stuck_unmounts
        with stuck.waiting(pod) if stuck is not None else nullcontext():
            err = self._wait(ctx, pod_name, lambda: not self.has_possibly_mounted_volumes_for_pod(pod_name))
        volumes = self._actual_state_of_world.get_possibly_mounted_volumes_for_pod(pod_name)
        if err is not None and volumes:
            if isinstance(err, golang.Canceled):
                raise golang.Canceled
            raise TimeoutError(f"mounted volumes={_go_list(sorted(v.volume_name for v in volumes))}: {err}")
        klog.v(3).info_s("All volumes are unmounted for pod", pod=klog.kobj(pod))

    def wait_for_all_pods_unmount(self, ctx: golang.Context, pods: Sequence[v1.Pod]) -> None:
        """Wait until none of the volumes of any of the pods is mounted any more.

        The method waits for all pods at the same time, so the call takes no longer than the slowest pod. Raise an
        Aggregate of the errors that wait_for_unmount raises.
        """
        errs: list[Exception] = []

        def wait_for(pod: v1.Pod) -> None:
            try:
                self.wait_for_unmount(ctx, pod)
            except Exception as err:  # Collect any error for the caller, and wait for the other pods.
                errs.append(golang.without_frames(err))

        threads: list[golang.Thread] = []
        without_thread: list[v1.Pod] = []
        for pod in pods:
            try:
                threads.append(golang.go(wait_for, pod, name=f"volume-unmount-{pod.metadata.uid}"))
            except golang.ThreadError as err:
                klog.error_s(
                    err,
                    "Failed to start a thread, will wait for the pod's volumes after the other pods",
                    pod=klog.kobj(pod),
                )
                without_thread.append(pod)
        for thread in threads:
            thread.join()
        for pod in without_thread:
            wait_for(pod)
        if errs:
            raise utilerrors.Aggregate(errs)

    def _verify_volumes_mounted(self, pod_name: str, expected: list[str]) -> bool:
        """Report whether all expected volumes are mounted. Raise VolumesNotReadyError if an operation has failed."""
        if errors := self._desired_state_of_world.pop_pod_errors(pod_name):
            raise VolumesNotReadyError("; ".join(map(str, errors))) from ExceptionGroup("", errors)
        return not self._get_unmounted_volumes(pod_name, expected)

    def _wait(self, ctx: golang.Context, pod_name: str, done: Callable[[], bool]) -> Exception | None:
        """Wait until done returns true. Return the error that ended the wait early, or None."""
        deadline = self._clock.after(POD_ATTACH_AND_MOUNT_TIMEOUT)
        with self._told_of(pod_name) as told:
            try:
                while not done():
                    selected = golang.select(told, ctx.done(), deadline)
                    if selected.took(ctx.done()):
                        return ctx.err()
                    if selected.took(deadline):
                        return golang.DeadlineExceeded()
            except VolumesNotReadyError as err:
                return golang.without_frames(err)
        return None

    @contextmanager
    def _told_of(self, pod_name: str) -> Iterator[golang.Channel[None]]:
        told: golang.Channel[None] = golang.Channel(1)
        with self._lock:
            self._waiters.setdefault(pod_name, set()).add(told)
        try:
            yield told
        finally:
            with self._lock:
                self._waiters[pod_name].discard(told)
                if not self._waiters[pod_name]:
                    del self._waiters[pod_name]

    # ---- Wake-ups ----

    def _tell_waiters(self, pod_name: str) -> None:
        with self._lock:
            waiters = list(self._waiters.get(pod_name, ()))
        for told in waiters:
            told.try_send(None)

    def _operation_ended(self) -> None:
        self._reconciler.wake()
        self._desired_state_of_world_populator.operation_ended()
        self._operation_has_ended.try_send(None)

    def _operation_is_pending(self, volume_name: str, pod_name: str) -> bool:
        return self._operation_executor.is_operation_pending(volume_name, pod_name, EMPTY_NODE_NAME)

    def _populated(self) -> None:
        self._reconciler.wake()

    def _reconciled(self) -> None:
        if not self.reconciler_states_have_been_synced():
            return
        in_use = self.get_volumes_in_use()
        with self._lock:
            changed = in_use != self._volumes_reported_in_use
        if changed:
            self._on_volumes_in_use_change()

    # ---- Helpers ----

    def _get_volumes_not_in_dsw(self, pod_name: str, expected: list[str]) -> list[str]:
        return sorted(set(expected) - self._desired_state_of_world.get_volume_names_for_pod(pod_name).keys())

    def _get_unattached_volumes(self, pod_name: str) -> list[VolumeToMount]:
        """List the pod's volumes that must be attached to the node and are not."""
        return [
            volume
            for volume in self._desired_state_of_world.get_volumes_to_mount()
            if volume.pod_name == pod_name
            and volume.plugin_is_attachable
            and not self._actual_state_of_world.volume_exists(volume.volume_name)
        ]

    def _is_exhausted(self, unattached: list[VolumeToMount]) -> bool:
        """Report whether one of the volumes cannot be attached because the node has reached its limit."""
        for volume in unattached:
            try:
                plugin = self._volume_plugin_mgr.find_attachable_plugin_by_spec(volume.volume_spec)
            except ValueError:
                continue
            if plugin is not None and plugin.verify_exhausted_resource(volume.volume_spec):
                return True
        return False

    def _get_mounted_volumes(self, pod_name: str) -> dict[str, MountedVolume]:
        """Return the volumes that the pod needs and that are known to be mounted, by their names in the pod's spec."""
        mounted = {v.volume_name: v for v in self._actual_state_of_world.get_mounted_volumes_for_pod(pod_name)}
        names = self._desired_state_of_world.get_volume_names_for_pod(pod_name)
        return {outer_name: mounted[name] for outer_name, name in names.items() if name in mounted}

    def _get_unmounted_volumes(self, pod_name: str, expected: list[str]) -> list[str]:
        """List the expected volumes, by their names in the pod's spec, that are not known to be mounted."""
        mounted = self._get_mounted_volumes(pod_name)
        return [name for name in expected if name not in mounted]


def _get_expected_volumes(pod: v1.Pod) -> list[str]:
    mounts, devices, _ = volumeutil.get_pod_volume_names(pod, False)
    return sorted(mounts | devices)


def _get_extra_supplemental_gid(volume_gid_value: str, pod: v1.Pod) -> int | None:
    """Return the group, or None if the value is not a number or the pod already has the group."""
    try:
        gid = strconv.parse_int(volume_gid_value)
    except ValueError:
        return None
    context = pod.spec.security_context
    return None if context is not None and gid in context.supplemental_groups else gid


def _go_list(names: list[str]) -> str:
    return f"[{' '.join(names)}]"
