"""Fill the desired state with the volumes that pods need, and remove those that they no longer need.

Go: pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from kubelet import config
from kubelet.volumemanager.cache import ActualStateOfWorld, DesiredStateOfWorld
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.component_helpers.storage import ephemeral
from pkg.volume import Spec, VolumePluginMgr, csimigration
from pkg.volume import util as volumeutil
from pkg.volume.util.operationexecutor import VolumeToMount

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

T = TypeVar("T")

ZERO = Quantity(0)
# `RESYNC_PERIOD` is the time, in seconds, between two passes over all pods when no event arrives.
RESYNC_PERIOD = 10.0
# `CLAIM_TIMEOUT` is the time, in seconds, that the API server may take to respond to a request for a claim.
CLAIM_TIMEOUT = 10.0
# `FORBIDDEN_PERIOD` is the delay, in seconds, before a forbidden request is repeated, and `FORBIDDEN_RETRIES` the
# number of repetitions. Each delay is twice as long as the one before.
FORBIDDEN_PERIOD, FORBIDDEN_RETRIES = 0.05, 5


class PodManager(Protocol):
    """Define what the populator needs from the pod manager: the node's current pods."""

    def get_pods(self) -> list[v1.Pod]: ...

    def get_pod_by_uid(self, uid: types.UID) -> v1.Pod | None: ...


class PodStateProvider(Protocol):
    """Define what the populator needs from the pod workers: the stage that each pod has reached."""

    def should_pod_containers_be_terminating(self, uid: types.UID) -> bool: ...

    def should_pod_runtime_be_removed(self, uid: types.UID) -> bool: ...


class ClaimError(Exception):
    """Signal that a claim, or the persistent volume that it is bound to, is not available now."""


class Claims(Protocol):
    """Define how the populator reads claims and persistent volumes."""

    def get_persistent_volume_claim(self, namespace: str, name: str) -> v1.PersistentVolumeClaim:
        """Return the claim. Raise any error that keeps it from being read, for example if it does not exist."""
        ...

    def get_persistent_volume(self, name: str) -> v1.PersistentVolume: ...


class APIServerClaims:
    """Read claims and persistent volumes from the API server.

    There is no cache: with outdated data the kubelet might mount a volume that now belongs to another claim.
    """

    def __init__(self, ctx: golang.Context, kube_client: kubernetes.Interface) -> None:
        self._ctx = ctx
        self._core = kube_client.core_v1

    def get_persistent_volume_claim(self, namespace: str, name: str) -> v1.PersistentVolumeClaim:
        claims = self._core.persistent_volume_claims(namespace)
        return self._ask("failed to fetch PVC from API server", lambda ctx: claims.get(ctx, name))

    def get_persistent_volume(self, name: str) -> v1.PersistentVolume:
        volumes = self._core.persistent_volumes()
        return self._ask(f"failed to fetch PV {name} from API server", lambda ctx: volumes.get(ctx, name))

    def _ask(self, message: str, get: Callable[[golang.Context], T]) -> T:
        ctx, cancel = golang.with_timeout(self._ctx, CLAIM_TIMEOUT)
        try:
            return _get_when_allowed(ctx, get)
        except golang.Canceled:
            raise
        except Exception as err:
            # Whatever the failure is, the next pass sends the request again.
            raise ClaimError(f"{message}: {err}") from err
        finally:
            cancel()


def _get_when_allowed(ctx: golang.Context, get: Callable[[golang.Context], T]) -> T:
    """Return the result of get; repeat the request a few times while the API server forbids it.

    DIVERGES (safer): the kubelet requests a claim or a volume that the API server forbids it to read up to five more
    times within two seconds.
    Go: pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go,
    (*desiredStateOfWorldPopulator).getPVCExtractPV: the Go kubelet reports the first refusal as an error of the pod.
    Why: the API server's authorizer may learn of a pod later than the node does, and until then forbids the node to
    read the pod's claims.
    Test: desired_state_of_world_populator_test.py:test_asks_again_for_what_the_node_may_not_read_yet
    """
    backoff = wait.Backoff(FORBIDDEN_PERIOD, factor=2, steps=FORBIDDEN_RETRIES)
    while True:
        try:
            return get(ctx)
        except apierrors.StatusError as err:
            if not apierrors.is_forbidden(err) or not backoff.steps:
                raise
        ctx.wait(backoff.step())


@dataclass(frozen=True, slots=True)
class _VolumeSource:
    """Describe the volume behind an entry of a pod's spec."""

    spec: Spec
    # `pvc` is the claim, or None if the volume does not come from one.
    pvc: v1.PersistentVolumeClaim | None = None
    gid_value: str = ""


class DesiredStateOfWorldPopulator:
    """Keep the desired state up to date on the thread of run. Every other method is safe from any thread."""

    def __init__(
        self,
        claims: Claims | None,
        pod_manager: PodManager,
        pod_state_provider: PodStateProvider,
        desired_state_of_world: DesiredStateOfWorld,
        actual_state_of_world: ActualStateOfWorld,
        volume_plugin_mgr: VolumePluginMgr,
        operation_is_pending: Callable[[str, str], bool],
        on_populated: Callable[[], None] | None = None,
    ) -> None:
        """Create the populator; claims is None without an API server.

        The populator calls on_populated after each pass. operation_is_pending takes the names of a volume and a pod,
        and reports whether an operation on that volume is running for that pod.
        """
        self._claims = claims
        self._pod_manager = pod_manager
        self._pod_state_provider = pod_state_provider
        self._desired_state_of_world = desired_state_of_world
        self._actual_state_of_world = actual_state_of_world
        self._volume_plugin_mgr = volume_plugin_mgr
        self._operation_is_pending = operation_is_pending
        self._on_populated = on_populated or (lambda: None)
        self._wake: golang.Channel[None] = golang.Channel(1)
        # `_kept_pods` holds the pods that keep every volume they have, because the volumes that they need are not fully
        # known. Only the thread of run uses this field.
        self._kept_pods: set[str] = set()
        self._lock = threading.Lock()  # This lock guards the seven fields below.
        # `_claim_threads` holds the threads that look up claims, by pod.
        self._claim_threads: dict[str, golang.Thread] = {}
        # `_begun_pods` holds the pods whose workers wait, or have waited, for volumes. The number grows with each wait.
        self._begun_pods: dict[str, int] = {}
        self._beginnings = itertools.count()
        # `_processed_pods` holds the pods that were processed at least once. The value is true if all volumes of the
        # pod are in the desired state, or if an immediate retry is pointless.
        self._processed_pods: dict[str, bool] = {}
        # `_understood_pods` holds the pods all of whose volumes have been in the desired state at some time.
        self._understood_pods: set[str] = set()
        self._has_added_pods = False
        # `_awaits_operations` says whether a stopped pod waits for a running operation that may still mount a volume
        # for it. The volume is removed once the operation ends.
        self._awaits_operations = False

    def run(self, ctx: golang.Context, sources_ready: config.SourcesReady) -> None:
        """Process the pods on request and every ten seconds, until ctx ends."""
        klog.info_s("Desired state populator starts to run")
        while ctx.err() is None:
            with contain("Failed to populate the desired state of volumes", ctx):
                self._populate(sources_ready)
            golang.select(self._wake, ctx.done(), timeout=RESYNC_PERIOD)
        with self._lock:
            threads = list(self._claim_threads.values())
        for thread in threads:
            thread.join()

    def _populate(self, sources_ready: config.SourcesReady) -> None:
        ready = sources_ready.all_ready()
        self.populator_loop()
        if ready and not self.has_added_pods():
            klog.info_s("Finished populating initial desired state of world")
            with self._lock:
                self._has_added_pods = True
        self._on_populated()

    def wake(self) -> None:
        """Process the pods now."""
        self._wake.try_send(None)

    def operation_ended(self) -> None:
        """Process the pods now if one of them waits for the end of an operation on its volumes."""
        with self._lock:
            awaited = self._awaits_operations
        if awaited:
            self.wake()

    def begin_pod(self, pod_name: str) -> None:
        """Record that the pod's worker needs the pod's volumes from now on, and process the pod again.

        The call also sets up again the volumes whose content changes, such as downwardAPI volumes.
        """
        with self._lock:
            self._begun_pods[pod_name] = next(self._beginnings)
        self.reprocess_pod(pod_name)

    def has_begun(self, pod_name: str) -> bool:
        """Report whether the pod's worker has started to wait for the pod's volumes.

        DIVERGES (fault of Go): the kubelet mounts no volume for a pod before the pod's worker waits for its volumes.
        Go: pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go,
        (*desiredStateOfWorldPopulator).findAndAddNewPods: the Go kubelet mounts volumes as soon as the pod's worker
        exists, before its first sync.
        Why: until the first sync the kubelet may still reject the pod, and the pod's secrets and config maps are not
        registered. The pod then gets a FailedMount event although nothing is wrong.
        Test: kubelet/volumemanager/volume_manager_test.py:test_nothing_is_mounted_before_the_pods_worker_needs_it
        """
        with self._lock:
            return pod_name in self._begun_pods

    def may_run_unwanted(self, pod_name: str) -> bool:
        """Report whether no source has the pod although containers of it may still run, as after a restart.

        DIVERGES (fault of Go): volumes of a pod that was deleted while the kubelet was down stay mounted until its
        containers have stopped.
        Go: pkg/kubelet/volumemanager/reconciler/reconciler_common.go, (*reconciler).unmountVolumes: the Go kubelet
        unmounts them as soon as all sources of pods are ready, up to two seconds before housekeeping stops the
        containers.
        Why: the containers would lose a disk while they write to it.
        Test: kubelet/volumemanager/volume_manager_test.py:test_volume_of_an_unwanted_pod_stays_until_the_pod_has_ended
        """
        uid = types.UID(pod_name)
        wanted = self._pod_manager.get_pod_by_uid(uid) is not None
        return not wanted and not self._pod_state_provider.should_pod_runtime_be_removed(uid)

    def reprocess_pod(self, pod_name: str) -> None:
        """Process the pod again, so that volumes whose content changes are set up again."""
        self._mark_pod_processing_failed(pod_name)
        self.wake()

    def has_added_pods(self) -> bool:
        """Report whether the pods of all sources have been processed once.

        Until then no volume on disk counts as an orphan.
        """
        with self._lock:
            return self._has_added_pods

    def populator_loop(self) -> None:
        """Process all pods once."""
        self.find_and_add_new_pods()
        self.find_and_remove_deleted_pods()

    def find_and_add_new_pods(self) -> None:
        """Add the volumes of pods that may have containers to the desired state."""
        pods = self._pod_manager.get_pods()
        for pod in pods:
            uid = pod.metadata.uid
            if isinstance(pod, v1.PartialPod):
                continue
            if self._pod_previously_processed(volumeutil.get_unique_pod_name(pod)):
                continue
            if self.has_added_pods():
                unwanted = self._pod_state_provider.should_pod_containers_be_terminating(uid)
            else:
                # After a restart, containers of pods that are terminating may still run and use their volumes.
                unwanted = self._pod_state_provider.should_pod_runtime_be_removed(uid)
            if unwanted:
                continue
            with self._containing(pod):
                if self.has_added_pods() and any(_claim_name(pod, volume) for volume in pod.spec.volumes):
                    self._process_pod_with_claims(pod)
                else:
                    self._process_pod_volumes(pod)
        self._keep_volumes(pods)

    def _keep_volumes(self, pods: list[v1.Pod]) -> None:
        """Keep all volumes of pods while it is not known which of the volumes they need.

        DIVERGES (fault of Go): after a restart, a running pod keeps all volumes that it has until each of its claims
        has been read.
        Go: pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go,
        (*desiredStateOfWorldPopulator).Run: in the Go kubelet the first pass over all pods counts as complete even if
        the API server did not respond to a request for a claim, and the kubelet then unmounts the claim's volume.
        Why: a short failure of the API server would unmount a disk that running containers use.
        Test: kubelet/volumemanager/volume_manager_test.py:test_pod_keeps_what_it_has_while_its_claim_cannot_be_read
        """
        uids = {pod.metadata.uid for pod in pods}
        partial = {pod.metadata.uid for pod in pods if isinstance(pod, v1.PartialPod)}
        with self._lock:
            self._understood_pods &= uids
            unclear = (uids | self._kept_pods) - (self._understood_pods - partial)
        removable = self._pod_state_provider.should_pod_runtime_be_removed
        self._kept_pods = {uid for uid in unclear if not removable(types.UID(uid))}
        self._desired_state_of_world.keep_volumes_of(self._kept_pods)

    @contextmanager
    def _containing(self, pod: v1.Pod) -> Iterator[None]:
        """Record an error of the body for the pod, and have the next pass process the pod again.

        A lack of threads, or any error of a plugin, must not keep other pods from their volumes.
        """
        pod_name = volumeutil.get_unique_pod_name(pod)
        try:
            yield
        except Exception as err:
            # Catch any error, for the reason above. The pod is processed again.
            klog.error_s(err, "Failed to process volumes of pod", pod=klog.kobj(pod), stacktrace=klog.stacktrace(err))
            self._unmark_pod_processed(pod_name)
            self._desired_state_of_world.add_error_to_pod(pod_name, err)

    def find_and_remove_deleted_pods(self) -> None:
        """Remove the volumes of pods that have no containers any more, and forget pods that no longer exist."""
        pods_from_cache: set[str] = set()
        awaits_operations = False
        with self._lock:
            begun = dict(self._begun_pods)
        for volume in self._desired_state_of_world.get_volumes_to_mount():
            pods_from_cache.add(volume.pod_name)
            with contain("Failed to remove a volume", golang.background(), volumeName=volume.volume_name):
                awaits_operations |= self._remove_if_unneeded(volume, begun)
        with self._lock:
            self._awaits_operations = awaits_operations
        self._forget_gone_pods(pods_from_cache, begun)

    def _remove_if_unneeded(self, volume: VolumeToMount, begun: dict[str, int]) -> bool:
        """Remove the volume from the desired state if its pod no longer needs it.

        Report whether it stays only because a running operation may still mount it for the pod.
        """
        if not self._is_unneeded(volume):
            return False
        if self._may_come_up(volume):
            self._log_volume(
                "Actual state does not yet have volume mount information and pod still exists in pod manager, "
                "skip removing volume from desired state",
                volume,
            )
            return True
        self._log_volume("Removing volume from desired state", volume)
        self._desired_state_of_world.delete_pod_from_volume(volume.pod_name, volume.volume_name)
        self._delete_processed_pod(volume.pod_name, begun)
        return False

    def _may_come_up(self, volume: VolumeToMount) -> bool:
        """Report whether the pod does not have the volume, but a running operation may still mount it.

        A mount that ends after this check is undone, because the volume is no longer desired.

        DIVERGES (fault of Go): a volume that a stopped pod never got is no longer desired once no operation on it is
        running for the pod.
        Go: pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go,
        (*desiredStateOfWorldPopulator).findAndRemoveDeletedPods: in the Go kubelet it stays desired, and in the node's
        volumesInUse, until it is mounted or the pod object is gone.
        Why: a volume that only one node may have cannot be attached for the pod's replacement while its mount keeps
        failing here.
        Test:
        kubelet/volumemanager/volume_manager_test.py:test_volume_of_a_pod_that_ended_is_no_longer_in_use_though_the_pod_object_exists
        """
        if self._pod_manager.get_pod_by_uid(types.UID(volume.pod_name)) is None:
            return False
        # Check in this order, because an operation records its result before it ends.
        pending = self._operation_is_pending(volume.volume_name, volume.pod_name)
        return pending and self._actual_state_of_world.pod_removed_from_volume(volume.pod_name, volume.volume_name)

    def _is_unneeded(self, volume: VolumeToMount) -> bool:
        """Report whether the pod has no container any more that could use the volume."""
        uid = volume.pod.metadata.uid
        pod_exists = self._pod_manager.get_pod_by_uid(uid) is not None
        if pod_exists and volume.plugin_is_attachable and self._became_non_attachable(volume):
            return False
        return self._pod_state_provider.should_pod_runtime_be_removed(uid)

    def _became_non_attachable(self, volume: VolumeToMount) -> bool:
        try:
            attachable = self._volume_plugin_mgr.find_attachable_plugin_by_spec(volume.volume_spec) is not None
        except Exception as err:
            # An error here is temporary: the plugin was found when the volume was added.
            klog.v(4).info_s(
                "Failed to determine whether the volume is attachable", volumeName=volume.volume_name, err=err
            )
            return False
        if attachable:
            return False
        self._desired_state_of_world.mark_volume_attachability(volume.volume_name, False)
        klog.info_s("Volume changes from attachable to non-attachable", volumeName=volume.volume_name)
        return True

    def _log_volume(self, message: str, volume: VolumeToMount) -> None:
        klog.v(4).info_s(
            message,
            pod=klog.kobj(volume.pod),
            podUID=volume.pod.metadata.uid,
            volumeName=volume.volume_spec.name(),
        )

    def _forget_gone_pods(self, pods_from_cache: set[str], begun: dict[str, int]) -> None:
        with self._lock:
            without_volumes = [name for name in self._processed_pods if name not in pods_from_cache]
        for name in without_volumes:
            uid = types.UID(name)
            gone = self._pod_manager.get_pod_by_uid(uid) is None
            if gone and self._pod_state_provider.should_pod_runtime_be_removed(uid):
                self._delete_processed_pod(name, begun)
        for name in self._desired_state_of_world.get_pods_with_errors():
            if self._pod_manager.get_pod_by_uid(types.UID(name)) is None:
                self._desired_state_of_world.pop_pod_errors(name)

    # ---- Processing one pod ----

    def _process_pod_volumes(self, pod: v1.Pod) -> None:
        """Add the volumes that containers of the pod use to the desired state."""
        pod_name = volumeutil.get_unique_pod_name(pod)
        mounts, devices, selinux_contexts = volumeutil.get_pod_volume_names(pod, True)
        seen_once = self._pod_has_been_seen_once(pod_name)
        # Mark the pod before its volumes are processed, unlike Go, which marks it afterwards. A request to process it
        # again that arrives meanwhile must not be lost.
        self._mark_pod_processed(pod_name)
        all_volumes_added = True
        for volume in pod.spec.volumes:
            if volume.name not in mounts and volume.name not in devices:
                klog.v(4).info_s("Skipping unused volume", pod=klog.kobj(pod), volumeName=volume.name)
                continue
            try:
                self._process_volume(pod, volume, mounts, devices, selinux_contexts.get(volume.name, []))
            except golang.Canceled:
                return
            except Exception as err:
                # Whatever is wrong with this volume, the pod's sync reports it. The other volumes can be set up
                # meanwhile.
                klog.error_s(err, "Error processing volume", pod=klog.kobj(pod), volumeName=volume.name)
                self._desired_state_of_world.add_error_to_pod(pod_name, err)
                all_volumes_added = False
        if all_volumes_added:
            with self._lock:
                self._understood_pods.add(pod_name)
            self._actual_state_of_world.mark_remount_required(pod_name)
            self._desired_state_of_world.pop_pod_errors(pod_name)
        elif not seen_once:
            # The pod is processed again in the next pass. After that only the pod's syncs ask for it, because a retry
            # in each pass would be too often.
            self._unmark_pod_processed(pod_name)

    def _process_pod_with_claims(self, pod: v1.Pod) -> None:
        """Process the pod as _process_pod_volumes does, but on another thread.

        DIVERGES (safer): while the API server is slow to return the claims of one pod, other pods get their volumes.
        Go: pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go,
        (*desiredStateOfWorldPopulator).processPodVolumes: in the Go kubelet all pods wait for the response, one after
        another.
        Why: pods that need nothing from the API server must not wait when it hangs.
        Test: desired_state_of_world_populator_test.py:test_pods_do_not_wait_for_claims_of_another
        """
        pod_name = volumeutil.get_unique_pod_name(pod)
        with self._lock:
            if pod_name not in self._claim_threads:
                name = f"volume-claims-{pod_name}"
                self._claim_threads[pod_name] = golang.go(self._process_pod_and_tell, pod, name=name)

    def _process_pod_and_tell(self, pod: v1.Pod) -> None:
        pod_name = volumeutil.get_unique_pod_name(pod)
        with self._containing(pod):
            self._process_pod_volumes(pod)
        with self._lock:
            del self._claim_threads[pod_name]
            asked_again = self._processed_pods.get(pod_name) is False
        if asked_again or self._pod_state_provider.should_pod_containers_be_terminating(pod.metadata.uid):
            # If the pod is terminating, the volumes that were just added must be removed again.
            self.wake()
        self._on_populated()

    def _process_volume(
        self,
        pod: v1.Pod,
        volume: v1.Volume,
        mounts: set[str],
        devices: set[str],
        selinux_contexts: list[v1.SELinuxOptions],
    ) -> None:
        source = self._create_volume_spec(volume, pod, mounts, devices)
        volume_name = self._desired_state_of_world.add_pod_to_volume(
            volumeutil.get_unique_pod_name(pod), pod, source.spec, volume.name, source.gid_value, selinux_contexts
        )
        klog.v(4).info_s(
            "Added volume to desired state",
            pod=klog.kobj(pod),
            volumeName=volume.name,
            volumeSpecName=source.spec.name(),
        )
        self._check_volume_fs_resize(pod, volume, source, volume_name)

    def _check_volume_fs_resize(self, pod: v1.Pod, volume: v1.Volume, source: _VolumeSource, volume_name: str) -> None:
        """Record the desired size of a claim's volume and, after a restart, its actual size."""
        if source.spec.persistent_volume is None or source.pvc is None:
            return
        if source.spec.read_only:
            message = "Skip file system resize check for the volume, as the volume is mounted as readonly"
            klog.v(5).info_s(message, pod=klog.kobj(pod), volumeName=volume.name)
            return
        desired = source.spec.persistent_volume.spec.capacity.get(v1.RESOURCE_STORAGE, ZERO)
        actual = source.pvc.status.capacity.get(v1.RESOURCE_STORAGE, ZERO)
        self._desired_state_of_world.update_persistent_volume_size(volume_name, desired)
        klog.v(5).info_s(
            "NodeExpandVolume updating size",
            actualSize=str(actual),
            desiredSize=str(desired),
            volumeName=volume_name,
        )
        self._actual_state_of_world.initialize_claim_size(volume_name, actual)

    def _pod_previously_processed(self, pod_name: str) -> bool:
        with self._lock:
            return self._processed_pods.get(pod_name, False)

    def _mark_pod_processing_failed(self, pod_name: str) -> None:
        with self._lock:
            self._processed_pods[pod_name] = False

    def _pod_has_been_seen_once(self, pod_name: str) -> bool:
        with self._lock:
            return pod_name in self._processed_pods

    def _mark_pod_processed(self, pod_name: str) -> None:
        with self._lock:
            self._processed_pods[pod_name] = True

    def _unmark_pod_processed(self, pod_name: str) -> None:
        """Have the next pass process the pod again, unless another thread has already requested that."""
        with self._lock:
            if self._processed_pods.get(pod_name):
                del self._processed_pods[pod_name]

    def _delete_processed_pod(self, pod_name: str, begun: dict[str, int]) -> None:
        """Forget the processed pod, unless a new incarnation already needs its volumes.

        begun is a copy of _begun_pods from the start of the pass.
        """
        with self._lock:
            if self._begun_pods.get(pod_name) == begun.get(pod_name):
                self._processed_pods.pop(pod_name, None)
                self._begun_pods.pop(pod_name, None)

    # ---- Claims ----

    def _create_volume_spec(self, volume: v1.Volume, pod: v1.Pod, mounts: set[str], devices: set[str]) -> _VolumeSource:
        """Return the pod's volume; if it is a claim, return the persistent volume that the claim is bound to.

        Raise ClaimError if the claim or volume is not available now, and ValueError if the pod may not use it in this
        way.
        """
        claim_name = _claim_name(pod, volume)
        if not claim_name:
            # Copy the volume, because several threads share the object and a plugin may change it.
            return _VolumeSource(_as_its_driver_sees_it(Spec(v1.deepcopy(volume)), pod))
        read_only = volume.persistent_volume_claim is not None and volume.persistent_volume_claim.read_only
        namespace = pod.metadata.namespace
        claim = klog.kref(namespace, claim_name)
        klog.v(5).info_s("Found PVC", PVC=claim)
        with _processing(namespace, claim_name):
            pvc = self._get_pvc_extract_pv(namespace, claim_name)
        if volume.persistent_volume_claim is None:
            ephemeral.volume_is_for_pod(pod, pvc)
        with _processing(namespace, claim_name):
            spec, gid_value = self._get_pv_spec(pvc.spec.volume_name, read_only, pvc.metadata.uid)
        klog.v(5).info_s(
            "Extracted volumeSpec from bound PV and PVC",
            PVC=claim,
            PVCUID=pvc.metadata.uid,
            PVName=pvc.spec.volume_name,
            volumeSpecName=spec.name(),
        )
        spec = _as_its_driver_sees_it(spec, pod)
        _check_volume_mode(volume, spec, mounts, devices)
        return _VolumeSource(spec, pvc, gid_value)

    def _get_pvc_extract_pv(self, namespace: str, claim_name: str) -> v1.PersistentVolumeClaim:
        """Return the claim if it is bound to a volume. Raise ClaimError, or any error that reading the claim raises."""
        if self._claims is None:
            raise ClaimError("the kubelet has no API server to read claims from")
        pvc = self._claims.get_persistent_volume_claim(namespace, claim_name)
        # A claim with this finalizer is deleted only after all pods that use it; after a restart this pod is one of
        # them.
        protected = volumeutil.PVC_PROTECTION_FINALIZER in pvc.metadata.finalizers
        if pvc.metadata.deletion_timestamp is not None and not protected:
            raise ClaimError("PVC is being deleted")
        if pvc.status.phase != v1.CLAIM_BOUND:
            raise ClaimError("PVC is not bound")
        if not pvc.spec.volume_name:
            raise ClaimError("PVC has empty pvc.Spec.VolumeName")
        return pvc

    def _get_pv_spec(self, name: str, pvc_read_only: bool, expected_claim_uid: str) -> tuple[Spec, str]:
        """Return the claim's volume and the group that it requests. Raise the same errors as _get_pvc_extract_pv."""
        assert self._claims is not None
        pv = self._claims.get_persistent_volume(name)
        if pv.spec.claim_ref is None:
            raise ClaimError(
                f"found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
            )
        if pv.spec.claim_ref.uid != expected_claim_uid:
            raise ClaimError(
                f"found PV object {name} but its pv.Spec.ClaimRef.UID {pv.spec.claim_ref.uid} does not point to "
                f"claim.UID {expected_claim_uid}"
            )
        spec = Spec(persistent_volume=pv, read_only=pvc_read_only)
        return spec, pv.metadata.annotations.get(volumeutil.VOLUME_GID_ANNOTATION_KEY, "")


def _claim_name(pod: v1.Pod, volume: v1.Volume) -> str:
    """Return the name of the claim that the volume comes from, or "" if it does not come from one."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return ephemeral.volume_claim_name(pod, volume) if volume.ephemeral is not None else ""


def _as_its_driver_sees_it(spec: Spec, pod: v1.Pod) -> Spec:
    """Return the volume, translated if a CSI driver replaces its in-tree plugin. Raise ValueError."""
    if not csimigration.is_migratable(spec):
        return spec
    return csimigration.translate_in_tree_spec_to_csi(spec, pod.metadata.namespace)


@contextmanager
def _processing(namespace: str, claim_name: str) -> Iterator[None]:
    """Turn any error of the body into a ClaimError that names the claim."""
    try:
        yield
    except golang.Canceled:
        raise
    except Exception as err:
        # Whatever the error is, the pod reports it, and the next pass reads the claim again.
        raise ClaimError(f"error processing PVC {namespace}/{claim_name}: {err}") from err


def _check_volume_mode(volume: v1.Volume, spec: Spec, mounts: set[str], devices: set[str]) -> None:
    """Raise ValueError if a container mounts a block volume, or uses a file system as a device."""
    mode = volumeutil.get_volume_mode(spec)
    for used_as, names, right_mode in (
        ("volumeMounts", mounts, v1.PERSISTENT_VOLUME_FILESYSTEM),
        ("volumeDevices", devices, v1.PERSISTENT_VOLUME_BLOCK),
    ):
        if volume.name in names and mode != right_mode:
            raise ValueError(f"volume {volume.name} has volumeMode {mode}, but is specified in {used_as}")
