"""Compute which actions bring a pod's containers to the state in its spec, and carry them out.

Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import allocation, events, metrics
from kubelet import container as kubecontainer
from kubelet import images as kubeimages
from kubelet.cri import errors as crierror
from kubelet.kuberuntime import helpers, labels
from kubelet.kuberuntime import util as runtimeutil
from kubelet.kuberuntime.kuberuntime_container import (
    REASON_LIVENESS_PROBE,
    REASON_RESTART_ALL_CONTAINERS,
    REASON_STARTUP_PROBE,
    REASON_UNKNOWN,
    ContainerMethods,
    ErrCreateContainer,
    StartContainerError,
    StartContext,
    StartSpec,
    container_start_spec,
    ephemeral_container_start_spec,
    has_any_regular_container_created,
)
from kubelet.kuberuntime.kuberuntime_gc import ContainerGC
from kubelet.kuberuntime.kuberuntime_image import ImageMethods
from kubelet.kuberuntime.kuberuntime_resize import ResizeMethods
from kubelet.kuberuntime.kuberuntime_sandbox import ListOptions, SandboxError, SandboxMethods
from kubelet.kuberuntime.pod_actions import ContainerToKillInfo, ContainerToRemoveInfo, PodActions
from kubelet.prober import results as proberesults
from kubelet.util import format
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock as clockpkg
from pkg.apimachinery import types
from pkg.apimachinery.util import version as utilversion
from pkg.client_go.util import flowcontrol
from pkg.component_base.cli.flag import duration

if TYPE_CHECKING:
    from kubelet.cri import apis as internalapi
    from kubelet.util import cache as objectcache
    from pkg.component_base.logs import logreduction

# `KUBE_RUNTIME_API_VERSION` is the version of the CRI that the kubelet requests.
KUBE_RUNTIME_API_VERSION = "0.1.0"


class ErrVersionNotSupported(Exception):
    """Signal that the runtime uses another version of the CRI."""

    def __init__(self) -> None:
        super().__init__("runtime api version is not supported")


def get_typed_version(ctx: golang.Context, runtime_service: internalapi.RuntimeService) -> runtimeapi.VersionResponse:
    """Return the runtime's name and versions.

    Raise crierror.RemoteError, or ValueError if the response is incomplete.
    """
    return runtime_service.version(ctx, KUBE_RUNTIME_API_VERSION)


def container_changed(container: v1.Container, status: kubecontainer.Status) -> bool:
    """Report whether the spec differs so much from the container's creation that a new container is needed."""
    return status.hash != kubecontainer.hash_container(container)


def should_restart_on_failure(pod: v1.Pod) -> bool:
    """Report whether the pod's policy alone allows a restart after a failure."""
    return pod.spec.restart_policy != v1.RESTART_POLICY_NEVER


def container_succeeded(container: v1.Container, pod_status: kubecontainer.PodStatus) -> bool:
    """Report whether the last run of the container ended with exit code 0."""
    status = pod_status.find_container_status_by_name(container.name)
    return status is not None and status.state is kubecontainer.CONTAINER_STATE_EXITED and status.exit_code == 0


@dataclass(frozen=True, slots=True)
class _ImageVolumePull:
    """Hold the image of an image volume, or the error that prevented the pull."""

    spec: runtimeapi.ImageSpec | None = None
    err: Exception | None = None
    message: str = ""


class PodInitContainerTimeRecorder(Protocol):
    """Define the receiver of init containers' run times, which the start-up latency must exclude."""

    def record_init_container_started(self, pod_uid: types.UID, started_at: datetime) -> None: ...

    def record_init_container_finished(self, pod_uid: types.UID, finished_at: datetime) -> None: ...


@dataclass(kw_only=True, eq=False, repr=False)
class KubeGenericRuntimeManager(ResizeMethods, ContainerMethods, SandboxMethods, ImageMethods):
    """Implement the kubelet's side of any CRI runtime. kuberuntime_build makes the object.

    The fields are set once, and any thread may read them. All methods are thread-safe, but only one thread at a time
    may sync a given pod.
    """

    liveness_manager: proberesults.Manager
    startup_manager: proberesults.Manager
    pod_init_container_time_recorder: PodInitContainerTimeRecorder | None
    # `version_cache` holds the result of get_typed_version.
    version_cache: objectcache.ObjectCache[runtimeapi.VersionResponse]
    log_reduction: logreduction.LogReduction
    container_gc: ContainerGC

    def type(self) -> str:
        """Return the runtime's name."""
        return self.runtime_name

    def version(self, ctx: golang.Context) -> kubecontainer.Version:
        """Return the version of the runtime.

        Raise ValueError for a version without numbers, and crierror.RemoteError.
        """
        return utilversion.parse(get_typed_version(ctx, self.runtime_service).runtime_version)

    def api_version(self) -> kubecontainer.Version:
        """Return the version of the CRI that the runtime uses, which is at most a minute old.

        Raise the errors of `version`.
        """
        machine_id = self.machine_info.machine_id
        return utilversion.parse(self.version_cache.get(machine_id).runtime_api_version)

    def status(self, ctx: golang.Context) -> kubecontainer.RuntimeStatus:
        """Report whether the runtime and the network are ready.

        Raise crierror.RemoteError, or ValueError if the response is empty.
        """
        response = self.runtime_service.status(ctx, False)
        if not response.HasField("status"):
            raise ValueError("runtime status is nil")
        return helpers.to_kube_runtime_status(response)

    def get_pod(self, ctx: golang.Context, pod_uid: types.UID) -> kubecontainer.Pod:
        """Return one pod. Raise kubecontainer.ErrPodNotFound or crierror.RemoteError."""
        pod = self._get_pods(ctx, ListOptions(pod_uid=pod_uid)).get(pod_uid)
        if pod is None:
            raise kubecontainer.ErrPodNotFound
        return pod

    def get_pods(self, ctx: golang.Context, all: bool) -> list[kubecontainer.Pod]:
        """Return all pods, newest first; with `all`, include sandboxes and containers that no longer run.

        Raise crierror.RemoteError.
        """
        pods = self._get_pods(ctx, ListOptions(only_running_ready=not all))
        klog.v(4).info_s("Retrieved pods from runtime", all=all)
        # Two pods with the same name can exist while the older one terminates. A search by name must find the newer
        # one.
        return sorted(pods.values(), key=lambda pod: pod.created_at, reverse=True)

    def _get_pods(self, ctx: golang.Context, opts: ListOptions) -> dict[types.UID, kubecontainer.Pod]:
        pods: dict[types.UID, kubecontainer.Pod] = {}
        timestamp = self.clock.steady()
        sandboxes = helpers.sort_pod_sandboxes_by_created_then_id(self.get_sandboxes(ctx, opts))
        for s in sandboxes:
            if not s.HasField("metadata"):
                klog.v(4).info_s("Sandbox does not have metadata", sandbox=s)
                continue
            uid = types.UID(s.metadata.uid)
            pod = pods.get(uid)
            if pod is None:
                pod = pods[uid] = kubecontainer.Pod(
                    id=uid, name=s.metadata.name, namespace=s.metadata.namespace, timestamp=timestamp
                )
            try:
                pod.sandboxes.append(self.sandbox_to_kube_container(s))
            except ValueError as err:
                klog.v(4).info_s("Convert sandbox of pod failed", sandbox=s, podUID=uid, err=err)
                continue
            pod.created_at = s.created_at
        for c in helpers.sort_containers_by_created_then_id(self.get_containers(ctx, opts)):
            if not c.HasField("metadata"):
                klog.v(4).info_s("Container does not have metadata", container=c)
                continue
            info = labels.get_container_info_from_labels(c.labels)
            pod = pods.get(info.pod_uid)
            if pod is None:
                pod = pods[info.pod_uid] = kubecontainer.Pod(
                    id=info.pod_uid, name=info.pod_name, namespace=info.pod_namespace, timestamp=timestamp
                )
            try:
                pod.containers.append(self.to_kube_container(c))
            except ValueError as err:
                klog.v(4).info_s("Convert container of pod failed", container=c, podUID=info.pod_uid, err=err)
        return pods

    def compute_pod_actions(
        self, pod: v1.Pod, pod_status: kubecontainer.PodStatus, restart_all_containers: bool
    ) -> PodActions:
        """Compare the spec with the status and return the necessary actions."""
        klog.v(5).info_s("Syncing Pod", pod=klog.kobj(pod))
        sandbox = runtimeutil.pod_sandbox_changed(pod, pod_status)
        changes = PodActions(
            kill_pod=sandbox.create,
            create_sandbox=sandbox.create,
            sandbox_id=sandbox.sandbox_id,
            attempt=sandbox.attempt,
        )
        if restart_all_containers and features.feature_gate.enabled(features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS):
            klog.v(3).info_s("Pod marked for RestartAllContainers", pod=klog.kobj(pod))
            changes.containers_to_reset = _get_containers_to_reset(pod, pod_status)
            return changes
        if sandbox.create:
            _compute_new_sandbox_actions(pod, pod_status, changes)
            return changes
        # Ephemeral containers may start before the pod is initialized, and they never restart.
        changes.ephemeral_containers_to_start = [
            index
            for index, container in enumerate(pod.spec.ephemeral_containers)
            if pod_status.find_container_status_by_name(container.name) is None
        ]
        initialized = self._compute_init_container_actions(pod, pod_status, changes)
        if initialized and not changes.kill_pod:
            self._compute_containers_actions(pod, pod_status, changes)
        self.compute_restart_resize_action(pod, changes)
        return changes

    def _compute_containers_actions(
        self, pod: v1.Pod, pod_status: kubecontainer.PodStatus, changes: PodActions
    ) -> None:
        """Add what the regular containers need to the changes."""
        keep_count = sum(
            self._compute_container_action(pod, pod_status, index, changes) for index in range(len(pod.spec.containers))
        )
        if keep_count == 0 and not changes.containers_to_start:
            changes.kill_pod = True
            # Sidecars alone do not keep a pod alive.
            changes.init_containers_to_start = []
        changes.update_pod_level_resources = self.compute_pod_level_resources_resize_action(pod)

    def _compute_container_action(
        self, pod: v1.Pod, pod_status: kubecontainer.PodStatus, index: int, changes: PodActions
    ) -> bool:
        """Add what a regular container needs to the changes; report whether the container runs and stays."""
        container = pod.spec.containers[index]
        status = pod_status.find_container_status_by_name(container.name)
        if status is None or status.state is not kubecontainer.CONTAINER_STATE_RUNNING:
            self._compute_stopped_container_action(pod, pod_status, index, status, changes)
            return False
        restart = should_restart_on_failure(pod)
        if container.restart_policy is not None and features.feature_gate.enabled(features.CONTAINER_RESTART_RULES):
            # The restart rules apply to exit codes, and this container still runs.
            restart = container.restart_policy != v1.CONTAINER_RESTART_POLICY_NEVER
        reason = ""
        if container_changed(container, status):
            message = f"Container {container.name} definition changed"
            # The policy does not matter because the spec requires a different container.
            restart = True
        elif self.liveness_manager.get(status.id) is proberesults.FAILURE:
            message = f"Container {container.name} failed liveness probe"
            reason = REASON_LIVENESS_PROBE
        elif self.startup_manager.get(status.id) is proberesults.FAILURE:
            message = f"Container {container.name} failed startup probe"
            reason = REASON_STARTUP_PROBE
        else:
            return self.compute_pod_resize_action(pod, index, False, status, changes)
        if restart:
            message = f"{message}, will be restarted"
            changes.containers_to_start.append(index)
        changes.containers_to_kill[status.id] = ContainerToKillInfo(container, status.name, message, reason)
        klog.v(2).info_s(
            "Message for Container of pod",
            containerName=container.name,
            containerStatusID=str(status.id),
            pod=klog.kobj(pod),
            containerMessage=message,
        )
        return False

    def _compute_stopped_container_action(
        self,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        index: int,
        status: kubecontainer.Status | None,
        changes: PodActions,
    ) -> None:
        container = pod.spec.containers[index]
        if status is not None:
            self._release_resources(pod, container, status)
        if not kubecontainer.should_container_be_restarted(container, pod, pod_status):
            return
        klog.v(3).info_s(
            "Container of pod is not in the desired state and shall be started",
            containerName=container.name,
            pod=klog.kobj(pod),
        )
        changes.containers_to_start.append(index)
        if status is not None and status.state is kubecontainer.CONTAINER_STATE_UNKNOWN:
            changes.containers_to_kill[status.id] = _unknown_state_kill(container, status, "Container")

    def _release_resources(self, pod: v1.Pod, container: v1.Container, status: kubecontainer.Status) -> None:
        """Release the container's CPUs; a restart allocates new ones."""
        try:
            self.internal_lifecycle.post_stop_container(status.id.id)
        except Exception as err:  # Resource managers raise errors of their own, and the sync must go on.
            klog.error_s(
                err,
                "Internal container post-stop lifecycle hook failed for container in pod with error",
                containerName=container.name,
                pod=klog.kobj(pod),
            )

    def _compute_init_container_actions(
        self, pod: v1.Pod, pod_status: kubecontainer.PodStatus, changes: PodActions
    ) -> bool:
        """Add the next init container and the sidecars to restart to the changes.

        Report whether the pod is initialized.

        The loop goes backwards because finished init containers may have been removed: the last init container with a
        status shows how far the pod got.
        """
        if not pod.spec.init_containers:
            return True
        initialized = _has_initialized(pod, pod_status)
        walk = _InitWalk(pod, pod_status, changes, pod_has_initialized=initialized, previously_initialized=initialized)
        for index in reversed(range(len(pod.spec.init_containers))):
            container = pod.spec.init_containers[index]
            status = pod_status.find_container_status_by_name(container.name)
            klog.v(4).info_s(
                "Computing init container action",
                pod=klog.kobj(pod),
                container=container.name,
                status=status.state if status is not None else None,
            )
            sidecar = podutil.is_restartable_init_container(container)
            if status is None:
                if walk.previously_initialized and sidecar:
                    changes.init_containers_to_start.append(index)
                continue
            if walk.previously_initialized and not sidecar:
                continue
            self._compute_init_container_action(walk, index, container, status)
            if changes.kill_pod:
                changes.init_containers_to_start = []
                return False
            walk.previously_initialized = True
        if not walk.previously_initialized:
            changes.init_containers_to_start.append(0)
        changes.init_containers_to_start.reverse()
        return walk.pod_has_initialized

    def _compute_init_container_action(
        self, walk: _InitWalk, index: int, container: v1.Container, status: kubecontainer.Status
    ) -> None:
        sidecar = podutil.is_restartable_init_container(container)
        match status.state:
            case kubecontainer.State.CREATED:
                # The kubelet creates and starts a container in one step, so a container in this state failed to start.
                walk.start(index)
            case kubecontainer.State.RUNNING if sidecar:
                self._compute_running_sidecar_action(walk, index, container, status)
            case kubecontainer.State.RUNNING:
                if features.feature_gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING_INIT_CONTAINERS):
                    self.compute_pod_resize_action(walk.pod, index, True, status, walk.changes)
            case kubecontainer.State.EXITED if sidecar:
                walk.start(index)
            case kubecontainer.State.EXITED:
                walk.exited(index, container, status)
            case _:
                walk.unknown(index, container, status, sidecar)

    def _compute_running_sidecar_action(
        self, walk: _InitWalk, index: int, container: v1.Container, status: kubecontainer.Status
    ) -> None:
        if container.startup_probe is not None:
            startup = self.startup_manager.get(status.id)
            if startup is proberesults.FAILURE:
                message = f"Init container {container.name} failed startup probe"
                walk.restart(index, container, status, message, REASON_STARTUP_PROBE)
            if startup is not proberesults.SUCCESS:
                return
        walk.initialized(index, container, wants_next=not walk.previously_initialized)
        if container_changed(container, status):
            walk.restart(index, container, status, f"Init container {container.name} definition changed", "")
            return
        if container.liveness_probe is not None:
            liveness = self.liveness_manager.get(status.id)
            if liveness is None:
                return
            if liveness is proberesults.FAILURE:
                message = f"Init container {container.name} failed liveness probe"
                walk.restart(index, container, status, message, REASON_LIVENESS_PROBE)
                return
        self.compute_pod_resize_action(walk.pod, index, True, status, walk.changes)

    def sync_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        pull_secrets: Sequence[v1.Secret],
        back_off: flowcontrol.Backoff,
        restart_all_containers: bool,
    ) -> kubecontainer.PodSyncResult:
        """Bring the running pod to the state in its spec. The result holds all errors, and the method raises none.

        1. Compute the changes. 2. Kill the sandbox if necessary. 3. Kill and reset containers.
        4. Create the sandbox. 5. Report that it is ready. 6. Start ephemeral containers. 7. Resize the pod.
        8. Start init containers. 9. Start regular containers.
        """
        result = kubecontainer.PodSyncResult()
        changes = self.compute_pod_actions(pod, pod_status, restart_all_containers)
        klog.v(3).info_s("computePodActions got for pod", podActions=changes, pod=klog.kobj(pod))
        if changes.create_sandbox:
            self._announce_new_sandbox(pod, changes)
        if not self._stop_unwanted(ctx, pod, pod_status, changes, result):
            return result
        self.prune_init_containers_before_start(ctx, pod, pod_status)
        pod_ips: Sequence[str] = pod_status.ips
        pod_sandbox_id = changes.sandbox_id
        if changes.create_sandbox:
            created = self._make_sandbox(ctx, pod, changes, pod_ips, result)
            if created is None:
                self._count_user_namespaced_pod(pod, result)
                return result
            pod_sandbox_id, pod_ips = created
        start = self._start_context(ctx, pod, pod_status, pull_secrets, pod_sandbox_id, pod_ips, changes, result)
        if start is not None:
            image_volumes = self._get_image_volumes(ctx, start)
            _Starter(self, ctx, start, image_volumes, back_off, result).start_all(changes)
        if changes.create_sandbox:
            self._count_user_namespaced_pod(pod, result)
        return result

    def _announce_new_sandbox(self, pod: v1.Pod, changes: PodActions) -> None:
        if changes.sandbox_id:
            message = "Pod sandbox changed, it will be killed and re-created."
            self.recorder.event(_pod_reference(pod), v1.EVENT_TYPE_NORMAL, events.SANDBOX_CHANGED, message)
        else:
            klog.v(4).info_s("SyncPod received new pod, will create a sandbox for it", pod=klog.kobj(pod))

    def _stop_unwanted(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        changes: PodActions,
        result: kubecontainer.PodSyncResult,
    ) -> bool:
        """Run steps 2 and 3; report False, which ends the sync, if something could not be stopped."""
        if not changes.kill_pod:
            return self._kill_containers(ctx, pod, changes, result) and self._reset_containers(
                ctx, pod, changes, result
            )
        if changes.create_sandbox:
            klog.v(4).info_s("Stopping PodSandbox for pod, will start new one", pod=klog.kobj(pod))
        else:
            klog.v(4).info_s("Stopping PodSandbox for pod, because all other containers are dead", pod=klog.kobj(pod))
        running_pod = kubecontainer.convert_pod_status_to_running_pod(self.runtime_name, pod_status)
        kill_result = self.kill_pod_with_sync_result(ctx, pod, running_pod, None)
        result.add_pod_sync_result(kill_result)
        if (err := kill_result.error()) is not None:
            klog.error_s(err, "killPodWithSyncResult failed")
            return False
        if changes.create_sandbox:
            self.purge_init_containers(ctx, pod, pod_status)
            self.purge_unstarted_containers(ctx, pod, pod_status)
        return True

    def _kill_containers(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        changes: PodActions,
        result: kubecontainer.PodSyncResult,
    ) -> bool:
        for container_id, info in changes.containers_to_kill.items():
            klog.v(3).info_s(
                "Killing unwanted container for pod",
                containerName=info.name,
                containerID=str(container_id),
                pod=klog.kobj(pod),
            )
            kill_result = kubecontainer.SyncResult(kubecontainer.KILL_CONTAINER, info.name)
            result.add_sync_result(kill_result)
            if not self._kill_for_sync(ctx, pod, container_id, info.name, info.message, info.reason, None, kill_result):
                return False
        return True

    def _kill_for_sync(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container_id: kubecontainer.ContainerID,
        name: str,
        message: str,
        reason: str,
        grace_period_override: int | None,
        result: kubecontainer.SyncResult,
    ) -> bool:
        try:
            self.kill_container(ctx, pod, container_id, name, message, reason, grace_period_override, None)
        except Exception as err:  # Any failure becomes the result of the step, and ends this sync.
            result.fail(kubecontainer.ErrKillContainer(), str(err))
            klog.error_s(
                err,
                "killContainer for pod failed",
                containerName=name,
                containerID=str(container_id),
                pod=klog.kobj(pod),
            )
            return False
        return True

    def _reset_containers(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        changes: PodActions,
        result: kubecontainer.PodSyncResult,
    ) -> bool:
        for info in changes.containers_to_reset:
            name = info.container.name
            klog.v(3).info_s(
                "Removing container before pod restarts",
                containerName=name,
                containerID=str(info.container_id),
                pod=klog.kobj(pod),
            )
            remove_result = kubecontainer.SyncResult(kubecontainer.REMOVE_CONTAINER, name)
            result.add_sync_result(remove_result)
            if info.kill and not self._kill_for_sync(
                ctx, pod, info.container_id, name, "killing", REASON_RESTART_ALL_CONTAINERS, 0, remove_result
            ):
                return False
            try:
                # The logs stay until the pod is removed.
                self.remove_container(ctx, info.container_id.id, True)
            except Exception as err:  # Any failure becomes the result of the step, and ends this sync.
                remove_result.fail(kubecontainer.ErrRemoveContainer(), str(err))
                klog.error_s(
                    err,
                    "removeContainer for pod failed",
                    containerName=name,
                    containerID=str(info.container_id),
                    pod=klog.kobj(pod),
                )
                return False
        return True

    def _make_sandbox(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        changes: PodActions,
        pod_ips: Sequence[str],
        result: kubecontainer.PodSyncResult,
    ) -> tuple[str, Sequence[str]] | None:
        """Run steps 4 and 5; return the ID and the IPs of the new sandbox, or None if the sync ends here."""
        klog.v(4).info_s("Creating PodSandbox for pod", pod=klog.kobj(pod))
        metrics.STARTED_PODS_TOTAL.inc()
        create_result = kubecontainer.SyncResult(kubecontainer.CREATE_POD_SANDBOX, format.pod(pod))
        result.add_sync_result(create_result)
        if not self._prepare_dynamic_resources(ctx, pod, result):
            return None
        try:
            pod_sandbox_id = self.create_pod_sandbox(ctx, pod, changes.attempt)
        except SandboxError as err:
            self._sandbox_failed(pod, err, create_result)
            return None
        klog.v(4).info_s("Created PodSandbox for pod", podSandboxID=pod_sandbox_id, pod=klog.kobj(pod))
        status = self._new_sandbox_status(ctx, pod, pod_sandbox_id, result)
        if status is None:
            return None
        if not kubecontainer.is_host_network_pod(pod):
            pod_ips = self.determine_pod_sandbox_ips(pod.metadata.namespace, pod.metadata.name, status)
            klog.v(4).info_s("Determined the ip for pod after sandbox changed", IPs=pod_ips, pod=klog.kobj(pod))
        klog.v(4).info_s("Pod sandbox and network ready, invoking callback", pod=klog.kobj(pod), podIPs=pod_ips)
        try:
            self.runtime_helper.on_pod_sandbox_ready(ctx, pod)
        except Exception as err:  # A failure only delays a condition, and the containers are more important.
            klog.error_s(
                err,
                "Failed to invoke sandbox ready callback, continuing with pod creation",
                pod=klog.kobj(pod),
            )
        return pod_sandbox_id, pod_ips

    def _prepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod, result: kubecontainer.PodSyncResult) -> bool:
        if not features.feature_gate.enabled(features.DYNAMIC_RESOURCE_ALLOCATION):
            return True
        try:
            self.runtime_helper.prepare_dynamic_resources(ctx, pod)
        except Exception as err:  # Drivers raise errors of their own, and the next sync tries again.
            message = f"Failed to prepare dynamic resources: {err}"
            self.recorder.event(
                _pod_reference(pod), v1.EVENT_TYPE_WARNING, events.FAILED_PREPARE_DYNAMIC_RESOURCES, message
            )
            klog.error_s(err, "Failed to prepare dynamic resources", pod=klog.kobj(pod))
            # DIVERGES (fault of Go): a sync fails if it cannot prepare the pod's resource claims.
            # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).SyncPod: the Go kubelet
            # returns a result without an error.
            # Why: the kubelet repeats a successful sync only after a minute or more.
            # Test: kuberuntime_manager_test.py:test_claims_that_cannot_be_prepared_are_told
            result.fail(err)
            return False
        return True

    def _sandbox_failed(self, pod: v1.Pod, err: SandboxError, create_result: kubecontainer.SyncResult) -> None:
        uid = pod.metadata.uid
        if self.pod_state_provider.is_pod_termination_requested(uid):
            # The network and the volumes of a deleted pod may already be gone, so this is not an error.
            klog.v(4).info_s("Pod was deleted and sandbox failed to be created", pod=klog.kobj(pod), podUID=uid)
            return
        metrics.STARTED_PODS_ERRORS_TOTAL.inc()
        create_result.fail(kubecontainer.ErrCreatePodSandbox(), err.message)
        klog.error_s(err, "CreatePodSandbox for pod failed", pod=klog.kobj(pod))
        message = f"Failed to create pod sandbox: {err}"
        self.recorder.event(_pod_reference(pod), v1.EVENT_TYPE_WARNING, events.FAILED_CREATE_POD_SANDBOX, message)

    def _new_sandbox_status(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_sandbox_id: str,
        result: kubecontainer.PodSyncResult,
    ) -> runtimeapi.PodSandboxStatus | None:
        try:
            return self.runtime_service.pod_sandbox_status(ctx, pod_sandbox_id, False).status
        except crierror.RemoteError as err:
            message = f"Unable to get pod sandbox status: {err}"
            self.recorder.event(_pod_reference(pod), v1.EVENT_TYPE_WARNING, events.FAILED_STATUS_POD_SANDBOX, message)
            klog.error_s(err, "Failed to get pod sandbox status; Skipping pod", pod=klog.kobj(pod))
            result.fail(err)
            return None

    def _count_user_namespaced_pod(self, pod: v1.Pod, result: kubecontainer.PodSyncResult) -> None:
        if pod.spec.host_users is not False:
            return
        metrics.STARTED_USER_NAMESPACED_PODS_TOTAL.inc()
        if result.error() is not None:
            metrics.STARTED_USER_NAMESPACED_PODS_ERRORS_TOTAL.inc()

    def _start_context(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        pull_secrets: Sequence[v1.Secret],
        pod_sandbox_id: str,
        pod_ips: Sequence[str],
        changes: PodActions,
        result: kubecontainer.PodSyncResult,
    ) -> StartContext | None:
        try:
            config = self.generate_pod_sandbox_config(ctx, pod, changes.attempt)
            self.get_pod_runtime_handler(pod)
        except Exception as err:  # Without DNS, a host name or a runtime class, no container can start.
            klog.error_s(err, "GeneratePodSandboxConfig for pod failed", pod=klog.kobj(pod))
            error = ValueError(f'GeneratePodSandboxConfig for pod "{format.pod(pod)}" failed: {err}')
            error.__cause__ = err
            # DIVERGES (safer): the kubelet records an event if it cannot generate the sandbox configuration of a pod.
            # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).SyncPod: the Go kubelet
            # only logs the error.
            # Why: otherwise the API server shows no reason why no container starts in an existing sandbox.
            # Test: kuberuntime_manager_test.py:test_sandbox_that_is_there_and_cannot_be_configured_is_told
            self.recorder.event(_pod_reference(pod), v1.EVENT_TYPE_WARNING, events.FAILED_SYNC, str(error))
            result.fail(error)
            return None
        return StartContext(pod, pod_status, pod_sandbox_id, config, pull_secrets, pod_ips)

    def _get_image_volumes(self, ctx: golang.Context, start: StartContext) -> dict[str, _ImageVolumePull]:
        """Pull the images of the pod's image volumes; return the results by volume name."""
        pod = start.pod
        pulls: dict[str, _ImageVolumePull] = {}
        for volume in pod.spec.volumes:
            if volume.image is None:
                continue
            handler = self.get_pod_runtime_handler(pod)
            try:
                ref = self.image_puller.ensure_image_exists(
                    ctx,
                    _pod_reference(pod),
                    pod,
                    volume.image.reference,
                    start.pull_secrets,
                    start.pod_sandbox_config,
                    handler,
                    volume.image.pull_policy,
                )
            except Exception as err:  # The containers that mount the volume report the error when they fail to start.
                klog.error_s(err, "Failed to ensure image", pod=klog.kobj(pod))
                message = err.message if isinstance(err, kubeimages.ImageError) else str(err)
                # A frame of the error refers to `pulls`, so keeping the frames would create a reference cycle.
                pulls[volume.name] = _ImageVolumePull(err=golang.without_frames(err), message=message)
                continue
            klog.v(4).info_s("Pulled image", ref=ref, pod=klog.kobj(pod))
            pulls[volume.name] = _ImageVolumePull(
                spec=runtimeapi.ImageSpec(
                    image=ref,
                    user_specified_image=volume.image.reference,
                    runtime_handler=handler,
                    annotations=pod.metadata.annotations,
                )
            )
        return pulls

    def do_back_off(
        self,
        pod: v1.Pod,
        container: v1.Container,
        pod_status: kubecontainer.PodStatus,
        back_off: flowcontrol.Backoff,
    ) -> StartContainerError | None:
        """Return the error to report during a backoff; otherwise increase the backoff and return None."""
        exited = (
            status
            for status in pod_status.container_statuses
            if status.name == container.name and status.state is kubecontainer.CONTAINER_STATE_EXITED
        )
        status = next(exited, None)
        if status is None or status.finished_at is None:
            return None
        klog.v(3).info_s("Checking backoff for container in pod", containerName=container.name, pod=klog.kobj(pod))
        since = status.finished_at
        key = helpers.get_backoff_key(pod, container)
        if not back_off.is_in_back_off_since(key, since):
            back_off.next(key, since)
            return None
        self.recorder.event(
            kubecontainer.generate_container_ref(pod, container),
            v1.EVENT_TYPE_WARNING,
            events.BACK_OFF_START_CONTAINER,
            f"Back-off restarting failed container {container.name} in pod {format.pod(pod)}",
        )
        delay = back_off.get(key)
        message = (
            f"back-off {duration.format_duration(delay)} restarting failed"
            f" container={container.name} pod={format.pod(pod)}"
        )
        klog.v(3).info_s("Back-off restarting failed container", err=message)
        reason = kubecontainer.BackoffError(kubecontainer.ErrCrashLoopBackOff(), since + timedelta(seconds=delay))
        return StartContainerError(reason, message)

    def kill_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod | None,
        running_pod: kubecontainer.Pod,
        grace_period_override: int | None,
    ) -> None:
        """Kill all containers and sandboxes. `pod` may be None after a restart of the kubelet.

        Raise kubecontainer.SyncErrors.

        Only hard kills may set grace_period_override, in seconds, because a shorter time may lose the user's data.
        """
        self.kill_pod_with_sync_result(ctx, pod, running_pod, grace_period_override).raise_if_failed()

    def kill_pod_with_sync_result(
        self,
        ctx: golang.Context,
        pod: v1.Pod | None,
        running_pod: kubecontainer.Pod,
        grace_period_override: int | None,
    ) -> kubecontainer.PodSyncResult:
        """Kill the pod as `kill_pod` does, but put the errors into the result.

        Garbage collection removes the sandboxes later.
        """
        result = kubecontainer.PodSyncResult()
        result.add_sync_result(*self.kill_containers_with_sync_result(ctx, pod, running_pod, grace_period_override))
        sandbox_result = kubecontainer.SyncResult(kubecontainer.KILL_POD_SANDBOX, running_pod.id)
        result.add_sync_result(sandbox_result)
        for sandbox in running_pod.sandboxes:
            try:
                self.runtime_service.stop_pod_sandbox(ctx, sandbox.id.id)
            except crierror.RemoteError as err:
                if crierror.is_not_found(err):
                    continue
                sandbox_result.fail(kubecontainer.ErrKillPodSandbox(), str(err))
                if not isinstance(err, golang.Canceled):
                    klog.error_s(None, "Failed to stop sandbox", podSandboxID=str(sandbox.id))
        return result

    def generate_pod_status(self, event: runtimeapi.ContainerEventResponse) -> kubecontainer.PodStatus:
        """Return the pod's status that an event of the runtime carries."""
        sandbox = event.pod_sandbox_status
        meta = sandbox.metadata
        uid = types.UID(meta.uid)
        statuses = [
            self.convert_to_kube_container_status(golang.background(), uid, s) for s in event.containers_statuses
        ]
        return kubecontainer.PodStatus(
            id=uid,
            name=meta.name,
            namespace=meta.namespace,
            ips=self.determine_pod_sandbox_ips(meta.namespace, meta.name, sandbox),
            sandbox_statuses=[sandbox],
            container_statuses=helpers.sort_container_statuses_by_created(statuses),
        )

    def get_pod_status(self, ctx: golang.Context, pod: kubecontainer.Pod) -> kubecontainer.PodStatus:
        """Return the status of all sandboxes and containers of the pod that the runtime still has.

        Its timestamp is the time of the list, at which these IDs were known to be complete. Raise crierror.RemoteError.
        """
        full_name = format.pod_desc(pod.name, pod.namespace, pod.id)
        result = kubecontainer.PodStatus(id=pod.id, name=pod.name, namespace=pod.namespace, time_stamp=pod.timestamp)
        try:
            latest = self._get_sandbox_statuses(ctx, pod, result)
            active_id = ""
            if latest is not None and latest.status.state == runtimeapi.SANDBOX_READY:
                result.ips = self.determine_pod_sandbox_ips(pod.namespace, pod.name, latest.status)
                active_id = latest.status.id
            if latest is not None and latest.timestamp and features.feature_gate.enabled(features.EVENTED_PLEG):
                # A runtime that sends events also returns the containers here, and the time of the whole response.
                taken = helpers.time_from_nanoseconds(latest.timestamp)
                result.time_stamp = clockpkg.to_steady(self.clock, taken)
                result.container_statuses = [
                    self.convert_to_kube_container_status(ctx, pod.id, s) for s in latest.containers_statuses
                ]
            else:
                result.container_statuses, result.active_container_statuses = self.get_pod_container_statuses(
                    ctx, pod, active_id
                )
        except crierror.RemoteError as err:
            if self.log_reduction.should_message_be_printed(str(err), full_name):
                klog.error_s(err, "getPodContainerStatuses for pod failed", pod=full_name)
            raise
        self.log_reduction.clear_id(full_name)
        return result

    def _get_sandbox_statuses(
        self, ctx: golang.Context, pod: kubecontainer.Pod, result: kubecontainer.PodStatus
    ) -> runtimeapi.PodSandboxStatusResponse | None:
        """Add the sandboxes to the result; return the response for the newest one, or None if it no longer exists."""
        latest = None
        for index, sandbox in enumerate(pod.sandboxes):
            try:
                response = self.runtime_service.pod_sandbox_status(ctx, sandbox.id.id, False)
            except crierror.RemoteError as err:
                # The sandbox may have been removed since the list.
                if crierror.is_not_found(err):
                    continue
                raise
            result.sandbox_statuses.append(response.status)
            if index == 0:
                latest = response
        return latest

    def get_container_status(
        self, ctx: golang.Context, pod_uid: types.UID, id: kubecontainer.ContainerID
    ) -> kubecontainer.Status:
        """Return the status of one container. Raise crierror.RemoteError."""
        response = self.runtime_service.container_status(ctx, id.id, False)
        return self.convert_to_kube_container_status(ctx, pod_uid, response.status)

    def garbage_collect(
        self,
        ctx: golang.Context,
        gc_policy: kubecontainer.GCPolicy,
        all_sources_ready: bool,
        evict_non_deleted_pods: bool,
    ) -> None:
        """Remove dead containers, sandboxes and logs as ContainerGC.garbage_collect does."""
        for uid in self.actuated_state.get_pod_resource_info_map():
            if self.pod_state_provider.should_pod_content_be_removed(uid):
                self.actuated_state.remove_pod(uid)
        self.container_gc.garbage_collect(ctx, gc_policy, all_sources_ready, evict_non_deleted_pods)

    def update_pod_cidr(self, ctx: golang.Context, pod_cidr: str) -> None:
        """Send the range of pod addresses to the runtime. Raise crierror.RemoteError."""
        klog.info_s("Updating runtime config through cri with podcidr", CIDR=pod_cidr)
        network = runtimeapi.NetworkConfig(pod_cidr=pod_cidr)
        self.runtime_service.update_runtime_config(ctx, runtimeapi.RuntimeConfig(network_config=network))

    def checkpoint_container(self, ctx: golang.Context, options: runtimeapi.CheckpointContainerRequest) -> None:
        """Checkpoint a container. Raise crierror.RemoteError."""
        self.runtime_service.checkpoint_container(ctx, options)

    def list_metric_descriptors(self, ctx: golang.Context) -> list[runtimeapi.MetricDescriptor]:
        """Return the descriptors of the runtime's metrics. Raise crierror.RemoteError."""
        return list(self.runtime_service.list_metric_descriptors(ctx))

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> list[runtimeapi.PodSandboxMetrics]:
        """Return the runtime's metrics of all pods. Raise crierror.RemoteError."""
        return list(self.runtime_service.list_pod_sandbox_metrics(ctx))


@dataclass(slots=True)
class _InitWalk:
    """Hold the progress of the backward loop over the init containers, and the changes that it adds to."""

    pod: v1.Pod
    pod_status: kubecontainer.PodStatus
    changes: PodActions
    pod_has_initialized: bool
    # `previously_initialized` tells whether an init container after the current one has run.
    previously_initialized: bool

    def start(self, index: int) -> None:
        self.changes.init_containers_to_start.append(index)

    def restart(
        self,
        index: int,
        container: v1.Container,
        status: kubecontainer.Status,
        message: str,
        reason: str,
    ) -> None:
        info = ContainerToKillInfo(container, container.name, message, reason)
        self.changes.containers_to_kill[status.id] = info
        self.start(index)

    def initialized(self, index: int, container: v1.Container, wants_next: bool) -> None:
        """Record that the container has finished: the pod is initialized, or the next init container may start."""
        klog.v(4).info_s("Init container has been initialized", pod=klog.kobj(self.pod), container=container.name)
        if index == len(self.pod.spec.init_containers) - 1:
            self.pod_has_initialized = True
        elif wants_next:
            self.start(index + 1)

    def exited(self, index: int, container: v1.Container, status: kubecontainer.Status) -> None:
        """Handle an ordinary init container that has exited."""
        if not helpers.is_init_container_failed(status):
            self.initialized(index, container, wants_next=True)
            return
        restart = should_restart_on_failure(self.pod)
        if features.feature_gate.enabled(features.CONTAINER_RESTART_RULES):
            restart = kubecontainer.should_container_be_restarted(container, self.pod, self.pod_status)
        if restart:
            self.start(index)
        else:
            self.changes.kill_pod = True

    def unknown(self, index: int, container: v1.Container, status: kubecontainer.Status, sidecar: bool) -> None:
        """Handle an init container in an unknown state."""
        restart = should_restart_on_failure(self.pod)
        if container.restart_policy is not None and features.feature_gate.enabled(features.CONTAINER_RESTART_RULES):
            # The restart rules apply to exit codes, and this container may not have exited.
            restart = container.restart_policy != v1.CONTAINER_RESTART_POLICY_NEVER
        if not sidecar and not restart:
            self.changes.kill_pod = True
            return
        info = _unknown_state_kill(container, status, "Init container")
        self.changes.containers_to_kill[status.id] = info
        self.start(index)


@dataclass(slots=True)
class _Starter:
    """Start the containers of one sync, each with a result of its own."""

    manager: KubeGenericRuntimeManager
    ctx: golang.Context
    context: StartContext
    image_volume_pulls: dict[str, _ImageVolumePull]
    back_off: flowcontrol.Backoff
    result: kubecontainer.PodSyncResult

    def start_all(self, changes: PodActions) -> None:
        """Run steps 6 to 9.

        An init container that fails to start ends the method. Other containers start independently of each other.
        """
        spec = self.context.pod.spec
        for index in changes.ephemeral_containers_to_start:
            ephemeral = spec.ephemeral_containers[index]
            start_spec = ephemeral_container_start_spec(ephemeral)
            self._start("ephemeral container", metrics.EPHEMERAL_CONTAINER, start_spec)
        # DIVERGES (fault of Go): the kubelet resizes a pod before it starts the pod's init containers.
        # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).SyncPod: the Go kubelet
        # resizes the pod after that.
        # Why: with cgroup version 1, the kernel does not allow a container more CPU than its pod. The container fails
        # to start, which ends the sync, and the pod is never resized.
        # Test: kuberuntime_resize_test.py:test_pod_grows_before_its_init_containers_start
        self._resize(changes)
        for index in changes.init_containers_to_start:
            if not self._start_init_container(spec.init_containers[index]):
                return
        self._record_finished_init_containers()
        for index in changes.containers_to_start:
            self._start("container", metrics.CONTAINER, container_start_spec(spec.containers[index]))

    def _resize(self, changes: PodActions) -> None:
        pod, pod_status = self.context.pod, self.context.pod_status
        if allocation.is_in_place_pod_vertical_scaling_allowed(pod).allowed and changes.resizes():
            self.result.add_sync_result(self.manager.do_pod_resize_action(self.ctx, pod, pod_status, changes))

    def _start_init_container(self, container: v1.Container) -> bool:
        pod = self.context.pod
        started = self._start("init container", metrics.INIT_CONTAINER, container_start_spec(container))
        sidecar = podutil.is_restartable_init_container(container)
        if started:
            recorder = self.manager.pod_init_container_time_recorder
            if recorder is not None and not sidecar:
                recorder.record_init_container_started(pod.metadata.uid, self.manager.clock.now())
            klog.v(4).info_s("Completed init container for pod", containerName=container.name, pod=klog.kobj(pod))
            return True
        if sidecar:
            klog.v(4).info_s(
                "Failed to start the restartable init container for the pod, skipping",
                initContainerName=container.name,
                pod=klog.kobj(pod),
            )
            return True
        klog.v(4).info_s(
            "Failed to initialize the pod, as the init container failed to start, aborting",
            initContainerName=container.name,
            pod=klog.kobj(pod),
        )
        return False

    def _record_finished_init_containers(self) -> None:
        recorder = self.manager.pod_init_container_time_recorder
        if recorder is None:
            return
        pod = self.context.pod
        names = {c.name for c in pod.spec.init_containers if not podutil.is_restartable_init_container(c)}
        for status in self.context.pod_status.container_statuses:
            if status.name in names and status.finished_at is not None:
                recorder.record_init_container_finished(pod.metadata.uid, status.finished_at)

    def _start(self, type_name: str, metric_label: str, spec: StartSpec) -> bool:
        pod, container = self.context.pod, spec.container
        start_result = kubecontainer.SyncResult(kubecontainer.START_CONTAINER, container.name)
        self.result.add_sync_result(start_result)
        log = {"containerType": type_name, "container": container.name, "pod": klog.kobj(pod)}
        waiting = self.manager.do_back_off(pod, container, self.context.pod_status, self.back_off)
        if waiting is not None:
            start_result.fail(waiting.reason, waiting.message)
            klog.v(4).info_s("Backing Off restarting container in pod", **log)
            return False
        metrics.STARTED_CONTAINERS_TOTAL.labels(metric_label).inc()
        klog.v(4).info_s("Creating container in pod", **log)
        image_volumes: kubecontainer.ImageVolumes = {}
        try:
            image_volumes = self._to_kube_container_image_volumes(container)
            self.manager.start_container(self.ctx, self.context, spec, image_volumes)
        except StartContainerError as err:
            _increment_image_volume_metrics(err, container, image_volumes)
            self._start_failed(type_name, metric_label, container, err, start_result)
            return False
        _increment_image_volume_metrics(None, container, image_volumes)
        return True

    def _start_failed(
        self,
        type_name: str,
        metric_label: str,
        container: v1.Container,
        failure: StartContainerError,
        start_result: kubecontainer.SyncResult,
    ) -> None:
        pod = self.context.pod
        metrics.STARTED_CONTAINERS_ERRORS_TOTAL.labels(metric_label, str(failure.reason)).inc()
        start_result.fail(failure.reason, failure.message)
        if isinstance(failure.reason, kubeimages.ErrImagePullBackOff):
            klog.v(3).info_s(
                "Container start failed in pod",
                containerType=type_name,
                container=container.name,
                pod=klog.kobj(pod),
                containerMessage=failure.message,
                err=failure.reason,
            )
        else:
            where = f"{type_name} {container.name} start failed in pod {format.pod(pod)}"
            klog.error_s(RuntimeError(f"{where}: {failure}"), "Unhandled Error", logger="UnhandledError")

    def _to_kube_container_image_volumes(self, container: v1.Container) -> kubecontainer.ImageVolumes:
        """Return the images of the volumes that the container mounts.

        Raise StartContainerError if one of them could not be pulled.
        """
        volumes: kubecontainer.ImageVolumes = {}
        failure: _ImageVolumePull | None = None
        for mount in container.volume_mounts:
            pull = self.image_volume_pulls.get(mount.name)
            if pull is None:
                continue
            if pull.spec is not None:
                volumes[mount.name] = pull.spec
                continue
            failure = pull
            if pull.err is not None:
                message = f"Error: {helpers.status_message(pull.err)}"
                self.manager.record_container_event(
                    self.context.pod,
                    container,
                    "",
                    v1.EVENT_TYPE_WARNING,
                    events.FAILED_TO_CREATE_CONTAINER,
                    message,
                )
        if failure is not None and failure.err is not None:
            raise StartContainerError(failure.err, failure.message)
        return volumes


def _increment_image_volume_metrics(
    failure: StartContainerError | None,
    container: v1.Container,
    image_volumes: kubecontainer.ImageVolumes,
) -> None:
    metrics.IMAGE_VOLUME_REQUESTED_TOTAL.inc(len(image_volumes))
    mount_failed = (
        failure is not None
        and isinstance(failure.reason, ErrCreateContainer)
        and failure.message.startswith(crierror.ERR_IMAGE_VOLUME_MOUNT_FAILED)
    )
    for mount in container.volume_mounts:
        if mount.name not in image_volumes:
            continue
        if mount_failed:
            metrics.IMAGE_VOLUME_MOUNTED_ERRORS_TOTAL.inc()
        else:
            metrics.IMAGE_VOLUME_MOUNTED_SUCCEED_TOTAL.inc()


def _compute_new_sandbox_actions(pod: v1.Pod, pod_status: kubecontainer.PodStatus, changes: PodActions) -> None:
    """Add the actions for a new sandbox and its containers, unless nothing is left to run."""
    containers = pod.spec.containers
    if not should_restart_on_failure(pod) and changes.attempt != 0 and pod_status.container_statuses:
        # If no container was ever created, the sandbox was never used, and the kubelet tries again.
        # DIVERGES (fault of Go): the kubelet also replaces a sandbox that was lost before a container in it had
        # started.
        # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).computePodActions: the Go
        # kubelet does not replace it if the pod's containers must not restart and one of them was created.
        # Why: that container never started, and its pod would stay pending forever.
        # Test: kuberuntime_manager_test.py:test_sandbox_that_is_lost_before_a_container_starts_is_made_anew
        if not _has_unstarted_container(pod, pod_status):
            changes.create_sandbox = False
            return
        to_start = [
            index
            for index, container in enumerate(containers)
            if kubecontainer.should_container_be_restarted(container, pod, pod_status)
        ]
    else:
        to_start = [
            index
            for index, container in enumerate(containers)
            if not (_runs_once(pod, container) and container_succeeded(container, pod_status))
        ]
    if not to_start and has_any_regular_container_created(pod, pod_status):
        changes.create_sandbox = False
        return
    if pod.spec.init_containers:
        changes.init_containers_to_start = [0]
        return
    changes.containers_to_start = to_start


def _has_unstarted_container(pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> bool:
    """Report whether a container of the pod was created but never started."""
    statuses = (
        pod_status.find_container_status_by_name(container.name)
        for container, _ in podutil.container_iter(pod.spec, podutil.INIT_CONTAINERS | podutil.CONTAINERS)
    )
    return any(status is not None and status.state is kubecontainer.CONTAINER_STATE_CREATED for status in statuses)


def _runs_once(pod: v1.Pod, container: v1.Container) -> bool:
    """Report whether the container must not restart after a success."""
    if container.restart_policy is not None and features.feature_gate.enabled(features.CONTAINER_RESTART_RULES):
        return container.restart_policy == v1.CONTAINER_RESTART_POLICY_ON_FAILURE
    return pod.spec.restart_policy == v1.RESTART_POLICY_ON_FAILURE


def _has_initialized(pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> bool:
    """Report whether a regular container exists and has not exited.

    An exited container proves nothing: after a reboot it may belong to the previous sandbox.
    """
    begun = (kubecontainer.CONTAINER_STATE_CREATED, kubecontainer.CONTAINER_STATE_RUNNING)
    statuses = (pod_status.find_container_status_by_name(c.name) for c in pod.spec.containers)
    return any(status is not None and status.state in begun for status in statuses)


def _unknown_state_kill(container: v1.Container, status: kubecontainer.Status, what: str) -> ContainerToKillInfo:
    """Describe the kill of a container in an unknown state, which may still run, so that it never runs twice."""
    message = f'{what} is in "{status.state}" state, try killing it before restart'
    return ContainerToKillInfo(container, container.name, message, REASON_UNKNOWN)


def _get_containers_to_reset(pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> list[ContainerToRemoveInfo]:
    """Return the containers to remove, in the order of their removal.

    The order is the reverse of the start order, but the containers that triggered the restart come last.
    """
    init_sources, init_targets = _split_sources(pod.spec.init_containers, pod_status)
    sources, targets = _split_sources(pod.spec.containers, pod_status)
    return [*targets, *init_targets, *sources, *init_sources]


def _split_sources(
    containers: Sequence[v1.Container], pod_status: kubecontainer.PodStatus
) -> tuple[list[ContainerToRemoveInfo], list[ContainerToRemoveInfo]]:
    sources: list[ContainerToRemoveInfo] = []
    targets: list[ContainerToRemoveInfo] = []
    for container in containers:
        # All runs of the container must be removed, not only the last one.
        for status in pod_status.get_container_statuses_by_name(container.name):
            exited = status.state is kubecontainer.CONTAINER_STATE_EXITED
            rule = None
            if exited:
                rule = podutil.find_matching_container_restart_rule(container, status.exit_code)
            restarts_all = v1.CONTAINER_RESTART_RULE_ACTION_RESTART_ALL_CONTAINERS
            is_source = rule is not None and rule.action == restarts_all
            info = ContainerToRemoveInfo(status.id, container, kill=not exited)
            (sources if is_source else targets).append(info)
    return sources, targets


def _pod_reference(pod: v1.Pod) -> v1.ObjectReference:
    return v1.ObjectReference(
        kind="Pod",
        api_version="v1",
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
    )
