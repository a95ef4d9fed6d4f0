"""What the kubelet asks about volumes, and the threads that keep them as they should be.

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

# Seconds. A pod's sync gives up waiting after the timeout, so that its worker can hear of changes.
POD_ATTACH_AND_MOUNT_TIMEOUT = 123.0
# Seconds. A mount waits so long for its device, and only operations on the same volume wait with it.
WAIT_FOR_ATTACH_TIMEOUT = 600.0
# Why a pod is turned away from a node that can have no more volumes.
VOLUME_ATTACHMENT_LIMIT_EXCEEDED_REASON = "VolumeAttachmentLimitExceeded"


class VolumesNotReadyError(Exception):
    """Something is wrong with the volumes of a pod."""


class VolumeAttachLimitExceededError(VolumesNotReadyError):
    """A volume of the pod cannot be attached, for the node can have no more."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Node has reached its volume attachment limit, rejecting pod. {reason}")


class VolumeManager:
    """Volumes of the node's pods. Every method is safe from any thread.

    Two threads of its own keep them: the populator notes what pods want and may have to ask the API server for that,
    the reconciler starts what is to be done and waits for nothing. Each operation runs on one more thread.
    Go looks at everything ten times a second; here each thread is woken when there is something to do: a pod waits for
    its volumes, an operation has ended, sources are ready, the node's status was reported or changed.
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
        """on_volumes_in_use_change is called, from a thread that must not be held up, when node status should be
        reported for what get_volumes_in_use says.
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
        self._lock = threading.Lock()  # guards the two below
        # One channel for each pod worker that waits, by pod, told whenever something may have changed for the pod.
        self._waiters: dict[str, set[golang.Channel[None]]] = {}
        # What node status said last to be in use.
        self._volumes_reported_in_use: list[str] = []

    def run(self, ctx: golang.Context, sources_ready: config.SourcesReady) -> None:
        """Keep volumes as they should be until ctx ends."""
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
        """Find out who holds what could not be unmounted, which takes a look at all processes, until ctx ends."""
        if self._stuck_unmounts is None:
            return
        while golang.select(self._operation_has_ended, ctx.done()).took(self._operation_has_ended):
            began = self._clock.monotonic()
            with contain("Failed to find out who holds volumes", ctx):
                self._stuck_unmounts.investigate(self._retry)
            # A mount that ever new processes hold for a moment must not keep a core busy.
            ctx.wait(REST_FACTOR * (self._clock.monotonic() - began))
        self._stuck_unmounts.close()

    def _retry(self, volume_name: str) -> None:
        self._operation_executor.forget_failures(volume_name)
        self._reconciler.wake()

    def forget_failures(self, pod_name: str) -> None:
        """What has failed with volumes of the pod may be tried again at once, and is."""
        for volume_name in self._desired_state_of_world.get_volume_names_for_pod(pod_name).values():
            self._operation_executor.forget_failures(volume_name)
        self._reconciler.wake()

    def sources_changed(self) -> None:
        """Sources of pods have become ready: take all pods into account now."""
        self._desired_state_of_world_populator.wake()

    def orphan_ended(self) -> None:
        """A pod that nobody wants, and that has volumes, runs no more."""
        self._reconciler.wake()

    def node_changed(self) -> None:
        """The node's status may say now that volumes are attached."""
        self._reconciler.wake()

    # ---- Questions ----

    def get_mounted_volumes_for_pod(self, pod_name: str) -> kubecontainer.VolumeMap:
        """The pod's volumes that are wanted and ready for use, by their name in its spec."""
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
        """Those volumes that the pod's containers use and that are not set up yet, by their names in its spec."""
        return self._get_unmounted_volumes(volumeutil.get_unique_pod_name(pod), _get_expected_volumes(pod))

    def has_possibly_mounted_volumes_for_pod(self, pod_name: str) -> bool:
        """Whether the pod may have a volume set up, surely or half-way."""
        return bool(self._actual_state_of_world.get_possibly_mounted_volumes_for_pod(pod_name))

    def get_extra_supplemental_groups_for_pod(self, pod: v1.Pod) -> list[int]:
        """Groups that the pod's persistent volumes ask for by annotation, without those it has anyway."""
        mounted = self._actual_state_of_world.get_mounted_volumes_for_pod(volumeutil.get_unique_pod_name(pod))
        groups = {_get_extra_supplemental_gid(volume.volume_gid_value, pod) for volume in mounted}
        return sorted(group for group in groups if group is not None)

    def get_volumes_in_use(self) -> list[str]:
        """Names of the volumes that must not be detached from the node.

        One is in use as soon as a pod wants it and until it is surely unmounted.
        """
        desired = self._desired_state_of_world.get_attachable_volumes()
        return sorted(desired | self._actual_state_of_world.get_attachable_volumes())

    def reconciler_states_have_been_synced(self) -> bool:
        """Whether it is known what volumes the node has: before, node status must not say which are in use."""
        return self._reconciler.states_has_been_synced()

    def volumes_have_been_reconstructed(self) -> bool:
        """Whether it is known what volumes pods have of a kubelet before this one."""
        return self._reconciler.has_reconstructed()

    def volume_is_attached(self, volume_name: str) -> bool:
        """Whether the node has the volume."""
        return self._actual_state_of_world.volume_exists(volume_name)

    def mark_volumes_as_reported_in_use(self, volumes_reported_as_in_use: list[str]) -> None:
        """The node's status names these volumes: only then they may be mounted."""
        with self._lock:
            self._volumes_reported_in_use = sorted(volumes_reported_as_in_use)
        if self._desired_state_of_world.mark_volumes_reported_in_use(volumes_reported_as_in_use):
            self._reconciler.wake()

    # ---- Waiting ----

    def wait_for_attach_and_mount(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Return when all volumes that containers of the pod use are set up.

        Raises TimeoutError after about two minutes, VolumeAttachLimitExceededError instead if the pod has come to the
        wrong node, VolumesNotReadyError as soon as something is wrong with a volume; each names the volumes that are
        missing. Raises golang.Canceled when ctx ends.
        """
        expected = _get_expected_volumes(pod)
        if not expected:
            return
        klog.v(3).info_s("Waiting for volumes to attach and mount for pod", pod=klog.kobj(pod))
        pod_name = volumeutil.get_unique_pod_name(pod)
        # Faults of an attempt before this one say nothing of this one.
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
        """Return when none of the pod's volumes is set up any more.

        Raises TimeoutError, which names those that are, after about two minutes, and golang.Canceled.

        DIVERGES (fault of Go): a volume that may be set up, such as one whose unmount has failed, is waited for too.
        Go: pkg/kubelet/volumemanager/volume_manager.go, (*volumeManager).verifyVolumesUnmountedFunc: only volumes that
        surely are set up are waited for.
        Why: at its shutdown the node would go down with such a volume mounted.
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
        """Return when none of the volumes of any of the pods is set up any more.

        Raises an Aggregate of what wait_for_unmount raises. All pods together take no longer than the slowest.
        """
        errs: list[Exception] = []

        def wait_for(pod: v1.Pod) -> None:
            try:
                self.wait_for_unmount(ctx, pod)
            except Exception as err:  # whatever it is, the caller is told, and the other pods are waited for
                errs.append(golang.without_frames(err))

        threads: list[golang.Thread] = []
        without_thread: list[v1.Pod] = []
        for pod in pods:
            try:
                threads.append(golang.go(wait_for, pod, name=f"volume-unmount-{pod.metadata.uid}"))
            except golang.ThreadError as err:
                klog.error_s(err, "Waiting for the volumes of a pod after the others", pod=klog.kobj(pod))
                without_thread.append(pod)
        for thread in threads:
            thread.join()
        for pod in without_thread:
            wait_for(pod)
        if errs:
            raise utilerrors.Aggregate(errs)

    def _verify_volumes_mounted(self, pod_name: str, expected: list[str]) -> bool:
        """Raises VolumesNotReadyError when something is wrong with the pod's volumes."""
        if errors := self._desired_state_of_world.pop_pod_errors(pod_name):
            raise VolumesNotReadyError("; ".join(map(str, errors))) from ExceptionGroup("", errors)
        return not self._get_unmounted_volumes(pod_name, expected)

    def _wait(self, ctx: golang.Context, pod_name: str, done: Callable[[], bool]) -> Exception | None:
        """Wait until done, or for the timeout; what ended the wait if not done."""
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

    # ---- What wakes whom ----

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
        """Volumes of the pod that the node should have attached, and has not."""
        return [
            volume
            for volume in self._desired_state_of_world.get_volumes_to_mount()
            if volume.pod_name == pod_name
            and volume.plugin_is_attachable
            and not self._actual_state_of_world.volume_exists(volume.volume_name)
        ]

    def _is_exhausted(self, unattached: list[VolumeToMount]) -> bool:
        """Whether one of the volumes cannot be attached because the node can have no more."""
        for volume in unattached:
            try:
                plugin = self._volume_plugin_mgr.find_attachable_plugin_by_spec(volume.volume_spec)
            except ValueError:
                continue
            if plugin is not None and plugin.verify_exhausted_resource(volume.volume_spec):
                return True
        return False

    def _get_mounted_volumes(self, pod_name: str) -> dict[str, MountedVolume]:
        """Volumes that the pod wants and surely has, by what it calls them."""
        mounted = {v.volume_name: v for v in self._actual_state_of_world.get_mounted_volumes_for_pod(pod_name)}
        names = self._desired_state_of_world.get_volume_names_for_pod(pod_name)
        return {outer_name: mounted[name] for outer_name, name in names.items() if name in mounted}

    def _get_unmounted_volumes(self, pod_name: str, expected: list[str]) -> list[str]:
        """Those of the expected volumes, by what the pod calls them, that it does not surely have."""
        mounted = self._get_mounted_volumes(pod_name)
        return [name for name in expected if name not in mounted]


def _get_expected_volumes(pod: v1.Pod) -> list[str]:
    mounts, devices, _ = volumeutil.get_pod_volume_names(pod, False)
    return sorted(mounts | devices)


def _get_extra_supplemental_gid(volume_gid_value: str, pod: v1.Pod) -> int | None:
    """The group, unless it is no number or the pod has it anyway."""
    try:
        gid = strconv.parse_int(volume_gid_value)
    except ValueError:
        return None
    context = pod.spec.security_context
    return None if context is not None and gid in context.supplemental_groups else gid


def _go_list(names: list[str]) -> str:
    return f"[{' '.join(names)}]"
