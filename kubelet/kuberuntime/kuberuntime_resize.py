"""Resize the CPU and memory of running pods.

Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go (from computePodResizeAction to updatePodContainerResources)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from kubelet import allocation, cm, metrics
from kubelet import container as kubecontainer
from kubelet import util as kubeutil
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cri import errors as crierror
from kubelet.kuberuntime import helpers
from kubelet.kuberuntime.kuberuntime_container import set_actuated_container_resources
from kubelet.kuberuntime.kuberuntime_container_linux import ContainerLinuxMethods, unlimits_exclusive_cpus
from kubelet.kuberuntime.pod_actions import (
    ContainerToKillInfo,
    ContainerToUpdateInfo,
    PodActions,
    ResourceRequirements,
)
from kubelet.util import format
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery.api import resource

if TYPE_CHECKING:
    from kubelet.allocation import state
    from kubelet.cri import apis as internalapi
    from pkg.apimachinery import clock as clockpkg

_MICROSECONDS = 1_000_000
_ZERO = resource.new_quantity(0)
_RESIZABLE = (v1.RESOURCE_CPU, v1.RESOURCE_MEMORY)


class ResizeError(Exception):
    """Signal that the kubelet cannot actuate a resize now; the pod's condition shows the message."""


@dataclass(kw_only=True, eq=False, repr=False)
class ResizeMethods(ContainerLinuxMethods):
    """Resize pods whose allocated resources differ from the actuated ones."""

    runtime_service: internalapi.RuntimeService
    # `actuated_state` holds the actuated resources, and survives restarts of the kubelet.
    actuated_state: state.State
    clock: clockpkg.Clock

    def compute_pod_resize_action(
        self,
        pod: v1.Pod,
        container_idx: int,
        init_container: bool,
        status: kubecontainer.Status,
        changes: PodActions,
    ) -> bool:
        """Add to the changes what a running container needs for its allocated resources.

        Report True if the container stays, and False if it must restart.
        """
        if not allocation.is_in_place_pod_vertical_scaling_allowed(pod).allowed:
            return True
        if status.state is not kubecontainer.CONTAINER_STATE_RUNNING:
            return True
        container = (pod.spec.init_containers if init_container else pod.spec.containers)[container_idx]
        desired = container_resources_from_requirements(pod.spec.resources, container.resources)
        current = self._current_resources(pod, container)
        if current == desired:
            return True
        if _requires_restart(container, desired, current):
            changes.containers_to_kill[status.id] = ContainerToKillInfo(
                container, status.name, f"Container {container.name} resize requires restart"
            )
            # Among init containers, only sidecars may request a restart.
            starts = changes.init_containers_to_start if init_container else changes.containers_to_start
            starts.append(container_idx)
            changes.update_pod_resources = True
            return False
        update = ContainerToUpdateInfo(container, status.id, desired, current)
        _mark_for_update(changes, v1.RESOURCE_MEMORY, update, ("memory_limit", "memory_request"))
        _mark_for_update(changes, v1.RESOURCE_CPU, update, ("cpu_limit", "cpu_request"))
        return True

    def _current_resources(self, pod: v1.Pod, container: v1.Container) -> ResourceRequirements:
        uid = pod.metadata.uid
        actuated = self.actuated_state.get_container_resources(uid, container.name)
        if actuated is None:
            # The kubelet assumes that no resources were actuated. At worst the container gets the same resources once
            # more, or restarts if its policy requires this.
            klog.error_s(None, "Missing actuated resource record", pod=klog.kobj(pod), container=container.name)
            actuated = v1.ResourceRequirements()
        return container_resources_from_requirements(self.actuated_state.get_pod_level_resources(uid), actuated)

    def compute_restart_resize_action(self, pod: v1.Pod, changes: PodActions) -> None:
        """Mark the pod's resources for an update if a container starts with other resources than before."""
        # DIVERGES (fault of Go): the kubelet also resizes a pod's cgroup for a container that is about to start.
        # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).computePodResizeAction: the
        # Go kubelet resizes the cgroup only for running containers.
        # Why: a container that crashes because it lacks memory, and does not run while it is resized, would find the
        # old limit in its pod's cgroup and keep crashing.
        # Test: kuberuntime_resize_test.py:test_pod_grows_for_a_container_that_starts_again
        if not allocation.is_in_place_pod_vertical_scaling_allowed(pod).allowed:
            return
        spec = pod.spec
        starting = [spec.init_containers[index] for index in changes.init_containers_to_start]
        starting += [spec.containers[index] for index in changes.containers_to_start]
        for container in starting:
            actuated = self.actuated_state.get_container_resources(pod.metadata.uid, container.name)
            desired = _with_effective_limits(spec, container)
            if actuated is not None and not cpu_memory_resources_equal(actuated, desired):
                changes.update_pod_resources = True

    def compute_pod_level_resources_resize_action(self, pod: v1.Pod) -> bool:
        """Report whether the allocated pod-level resources differ from the actuated ones."""
        if not _pod_level_scaling():
            return False
        info = self.actuated_state.get_pod_resource_info(pod.metadata.uid)
        if info is None:
            # The kubelet assumes that no resources were actuated. At worst it writes the same values to the cgroup once
            # more.
            klog.error_s(None, "Missing actuated pod level resource record", pod=klog.kobj(pod))
        current = None if info is None else info.pod_level_resources
        return pod_resources_from_requirements(current) != pod_resources_from_requirements(pod.spec.resources)

    def do_pod_resize_action(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus, changes: PodActions
    ) -> kubecontainer.SyncResult:
        """Resize the cgroups of the pod and its containers. Later syncs retry what failed."""
        start = self.clock.monotonic()
        result = kubecontainer.SyncResult(kubecontainer.RESIZE_POD_IN_PLACE, format.pod(pod))
        success = False
        try:
            resize = self._prepare_resize(ctx, pod, changes)
            if not resize.is_needed():
                return result
            self.validate_pod_resize_action(ctx, pod, pod_status, resize.current, resize.desired, changes)
            try:
                resize.run()
            finally:
                # Some of the changes may have been actuated even after an error.
                self.runtime_helper.request_pod_reinspect(pod.metadata.uid)
            success = True
        except (ResizeError, crierror.RemoteError, OSError, ValueError) as err:
            klog.error_s(err, "Failed to resize pod", pod=klog.kobj(pod))
            result.fail(kubecontainer.ErrResizePodInPlace(), str(err))
        took = (self.clock.monotonic() - start) * 1000
        metrics.POD_RESIZE_DURATION_MILLISECONDS.labels(str(success).lower()).observe(took)
        return result

    def _prepare_resize(self, ctx: golang.Context, pod: v1.Pod, changes: PodActions) -> _Resize:
        period = round(self.cpu_cfs_quota_period * _MICROSECONDS)
        enforce_cpu_limits = self.cpu_cfs_quota
        if unlimits_exclusive_cpus() and self.container_manager.pod_has_exclusive_cpus(pod):
            klog.v(2).info_s("Disabled CFS quota", pod=klog.kobj(pod))
            enforce_cpu_limits = False
        desired = cm.resource_config_for_pod(pod, enforce_cpu_limits, period)
        pcm = self.container_manager.new_pod_container_manager()
        found = {}
        for name in _RESIZABLE:
            try:
                found[name] = pcm.get_pod_cgroup_config(pod, name)
            except (OSError, ValueError) as err:
                raise ResizeError(f'unable to get pod cgroup {name} config for pod "{format.pod(pod)}"') from err
        # DIVERGES (fault of Go): on a node without pod cgroups, the kubelet resizes only the containers.
        # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).doPodResizeAction: the Go
        # kubelet dereferences a nil pointer and crashes.
        # Why: a user who has turned off --cgroups-per-qos may still resize pods.
        # Test: kuberuntime_resize_test.py:test_pods_without_cgroups_are_resized_all_the_same
        memory = found[v1.RESOURCE_MEMORY] or cm.ResourceConfig(memory=desired.memory)
        cpu = found[v1.RESOURCE_CPU] or dataclasses.replace(desired, memory=None)
        current = helpers.merge_resource_config(helpers.merge_resource_config(desired, memory), cpu)
        # A limit that the pod no longer has stays in the cgroup, as it does for containers.
        if desired.memory is None:
            desired.memory = memory.memory
        if desired.cpu_quota is None:
            desired.cpu_quota = cpu.cpu_quota
        return _Resize(self, ctx, pod, changes, pcm, desired, current, memory, cpu)

    def validate_pod_resize_action(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        current: cm.ResourceConfig,
        desired: cm.ResourceConfig,
        changes: PodActions,
    ) -> None:
        """Raise ResizeError if the resize would fail half-way."""
        # DIVERGES (fault of Go): the kubelet refuses a pod-level resize below the memory in use.
        # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).validatePodResizeAction: the
        # Go kubelet checks the memory in use only if a container's memory changes or a container restarts.
        # Why: the kernel kills processes of a pod that uses more than its new limit.
        # Test: kuberuntime_resize_test.py:test_memory_of_the_pod_as_a_whole_is_not_taken_away
        if _changes_resource(changes, v1.RESOURCE_MEMORY):
            self.validate_memory_resize_action(ctx, pod, pod_status, current, desired, changes)

    def validate_memory_resize_action(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        current: cm.ResourceConfig,
        desired: cm.ResourceConfig,
        changes: PodActions,
    ) -> None:
        """Raise ResizeError if a limit would fall below the memory in use.

        The kernel would kill processes in this case.
        """
        pod_limit = desired.memory if _is_memory_decreasing(current.memory, desired.memory) else None
        container_limits = {
            info.container.name: info.desired_container_resources.memory_limit
            for info in changes.containers_to_update.get(v1.RESOURCE_MEMORY, [])
            if _is_limit_decreasing(info)
        }
        if pod_limit is None and not container_limits:
            return
        try:
            usage = self.runtime_helper.pod_cpu_and_memory_stats(ctx, pod, pod_status)
        except (crierror.RemoteError, OSError, ValueError, LookupError) as err:
            raise ResizeError(f'unable to read memory usage for pod "{format.pod(pod)}"') from err
        faults = []
        if pod_limit is not None:
            used = _memory_usage(usage)
            if used is None:
                faults.append("missing pod memory usage")
            elif used >= pod_limit:
                faults.append(f"attempting to set pod memory limit ({pod_limit}) below current usage ({used})")
        for stats in usage.containers:
            name, used = stats.name, _memory_usage(stats)
            limit = container_limits.get(name)
            if limit is None:
                continue
            if used is None:
                faults.append(f'missing container "{name}" memory usage')
            elif used >= limit:
                # DIVERGES (fault of Go): the message names the memory that the container uses.
                # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go,
                # (*kubeGenericRuntimeManager).validateMemoryResizeAction: the message names the memory that the whole
                # pod uses.
                # Why: the message compares the number with the container's new limit.
                # Test: kuberuntime_resize_test.py:test_validate_pod_resize_action
                faults.append(
                    f'attempting to set container "{name}" memory limit ({limit}) below current usage ({used})'
                )
        if faults:
            text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
            raise ResizeError(f"cannot decrease memory limits: {text}")

    def update_pod_container_resources(
        self, ctx: golang.Context, pod: v1.Pod, resource_name: str, containers_to_update: list[ContainerToUpdateInfo]
    ) -> None:
        """Change one resource of the containers, in the given order.

        Raise crierror.RemoteError or OSError at the first error.
        """
        klog.v(5).info_s("Updating container resources", pod=klog.kobj(pod))
        for info in containers_to_update:
            desired, current = info.desired_container_resources, info.current_container_resources
            target = dataclasses.replace(current)
            if resource_name == v1.RESOURCE_MEMORY:
                target.memory_limit, target.memory_request = desired.memory_limit, desired.memory_request
            else:
                target.cpu_limit, target.cpu_request = desired.cpu_limit, desired.cpu_request
            container = v1.deepcopy(info.container)
            container.resources.limits = _amounts(target.cpu_limit, target.memory_limit)
            container.resources.requests = _amounts(target.cpu_request, target.memory_request)
            try:
                self.update_container_resources(ctx, pod, container, info.kube_container_id)
            except (crierror.RemoteError, OSError) as err:
                # The order matters, so the remaining containers must not change after an error.
                klog.error_s(
                    err,
                    "updateContainerResources failed",
                    container=container.name,
                    cID=str(info.kube_container_id),
                    pod=format.pod(pod),
                    resourceName=resource_name,
                )
                raise
            # The runtime's own report may lag behind.
            for name in ("memory_limit", "memory_request", "cpu_limit", "cpu_request"):
                setattr(current, name, getattr(target, name))

    def update_container_resources(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container, container_id: kubecontainer.ContainerID
    ) -> None:
        """Let the runtime change a container's cgroup. Raise crierror.RemoteError or OSError."""
        resources = self.generate_container_resources(pod, container)
        self.runtime_service.update_container_resources(ctx, container_id.id, resources)
        set_actuated_container_resources(self.actuated_state, pod, container)

    def update_pod_sandbox_resources(
        self, ctx: golang.Context, sandbox_id: str, pod: v1.Pod, pod_resources: cm.ResourceConfig
    ) -> None:
        """Announce a change of the pod's cgroup to the runtime. Raise ResizeError if the runtime objects."""
        request = self.generate_update_pod_sandbox_resources_request(sandbox_id, pod, pod_resources)
        try:
            self.runtime_service.update_pod_sandbox_resources(ctx, request)
        except crierror.RemoteError as err:
            # containerd 2.2 uses another code for an unimplemented call.
            unknown = err.code is grpc.StatusCode.UNKNOWN and "not implemented" in err.message
            if err.code is not grpc.StatusCode.UNIMPLEMENTED and not unknown:
                # Go spells the name of the ID like this.
                text = f'updatePodSandboxResources failed for sanboxID "{sandbox_id}": {err}'
                raise ResizeError(text) from err
            klog.v(3).info_s(
                "updatePodSandboxResources failed: unimplemented; this call is best-effort: proceeding with resize",
                sandboxID=sandbox_id,
            )

    def update_actuated_pod_level_resources(self, actuated_pod: v1.Pod) -> None:
        """Record that the pod's cgroup was created for the pod's current resources. Raise OSError."""
        resources = actuated_pod.spec.resources
        if resources is None or not (resources.requests or resources.limits):
            return
        if features.feature_gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING):
            self.actuated_state.set_pod_level_resources(actuated_pod.metadata.uid, resources)

    def is_pod_resize_in_progress(self, allocated_pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> bool:
        """Report whether any allocation of the running pod differs from the actuated resources."""
        return self._is_container_resource_resize_in_progress(
            allocated_pod, pod_status
        ) or self._is_pod_level_resources_resize_in_progress(allocated_pod)

    def _is_container_resource_resize_in_progress(
        self, allocated_pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> bool:
        spec = allocated_pod.spec
        for container, kind in podutil.container_iter(spec, podutil.INIT_CONTAINERS | podutil.CONTAINERS):
            if not allocation.is_resizable_container(container, kind):
                continue
            status = pod_status.find_container_status_by_name(container.name)
            # DIVERGES (fault of Go): a resize is in progress also while a running init container waits for its new
            # resources.
            # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, isResizableContainer: the Go kubelet ignores init
            # containers that are not sidecars, although it resizes them.
            # Why: the API server would learn that the resize is complete before it is.
            # Test: kuberuntime_resize_test.py:test_resize_of_an_init_container_is_in_progress
            if status is None or status.state is not kubecontainer.CONTAINER_STATE_RUNNING:
                # The container gets the right size when it starts.
                continue
            actuated = self.actuated_state.get_container_resources(allocated_pod.metadata.uid, container.name)
            if not cpu_memory_resources_equal(actuated, _with_effective_limits(spec, container)):
                return True
        return False

    def _is_pod_level_resources_resize_in_progress(self, allocated_pod: v1.Pod) -> bool:
        if not _pod_level_scaling() or allocated_pod.spec.resources is None:
            return False
        actuated = self.actuated_state.get_pod_level_resources(allocated_pod.metadata.uid)
        return actuated is not None and not cpu_memory_resources_equal(actuated, allocated_pod.spec.resources)


@dataclass(slots=True)
class _Resize:
    """Run one resize.

    A value that grows does so in the pod's cgroup before the containers' cgroups, and limits grow before requests. A
    value that shrinks does so in the opposite order. So no container ever has a higher limit than its pod.
    """

    manager: ResizeMethods
    ctx: golang.Context
    pod: v1.Pod
    changes: PodActions
    pcm: cm.PodContainerManager
    desired: cm.ResourceConfig
    # `current` holds the pod's actuated resources, and changes with each step.
    current: cm.ResourceConfig
    # `memory` and `cpu` hold the pod's actuated resources from before the resize.
    memory: cm.ResourceConfig
    cpu: cm.ResourceConfig

    def is_needed(self) -> bool:
        """Report whether the resize must do anything.

        It does nothing if a container is about to start in a pod that already has the right size.
        """
        changes, desired = self.changes, self.desired
        return (
            bool(changes.containers_to_update)
            or changes.update_pod_level_resources
            or self.memory.memory != desired.memory
            or self.cpu.cpu_quota != desired.cpu_quota
            or not cm.same_cpu_shares(self.cpu.cpu_shares, desired.cpu_shares)
        )

    def run(self) -> None:
        """Run all steps, but skip the rest after the first failure.

        Raise ResizeError, crierror.RemoteError or OSError.
        """
        if _changes_resource(self.changes, v1.RESOURCE_MEMORY):
            self._resize_containers(v1.RESOURCE_MEMORY, (self.memory.memory, self.desired.memory), (0, 0))
        if _changes_resource(self.changes, v1.RESOURCE_CPU):
            self._resize_containers(
                v1.RESOURCE_CPU,
                (self.cpu.cpu_quota, self.desired.cpu_quota),
                (self.cpu.cpu_shares, self.desired.cpu_shares),
            )

    def _resize_containers(
        self, name: str, limits: tuple[int | None, int | None], requests: tuple[int | None, int | None]
    ) -> None:
        """Resize the pod's cgroup and the containers.

        `limits` and `requests` are pairs of the cgroup's actuated and desired values.
        """
        limit_growth, request_growth = _growth(*limits), _growth(*requests)
        if limit_growth > 0:
            self._set_pod_cgroup_limit(name)
        if request_growth > 0:
            self._set_pod_cgroup_request(name)
        if updates := self.changes.containers_to_update.get(name):
            self.manager.update_pod_container_resources(self.ctx, self.pod, name, updates)
        if request_growth < 0:
            self._set_pod_cgroup_request(name)
        if limit_growth < 0:
            self._set_pod_cgroup_limit(name)
        if _pod_level_scaling() and self.changes.update_pod_level_resources:
            self._note_pod_level_resources(name)

    def _set_pod_cgroup_limit(self, name: str) -> None:
        desired = self.desired
        if name == v1.RESOURCE_CPU:
            config = cm.ResourceConfig(cpu_period=desired.cpu_period, cpu_quota=desired.cpu_quota)
        else:
            config = cm.ResourceConfig(memory=desired.memory)
        self._set_pod_cgroup_config(name, config)

    def _set_pod_cgroup_request(self, name: str) -> None:
        # No cgroup holds a request of memory.
        if name == v1.RESOURCE_CPU:
            self._set_pod_cgroup_config(name, cm.ResourceConfig(cpu_shares=self.desired.cpu_shares))

    def _set_pod_cgroup_config(self, name: str, config: cm.ResourceConfig) -> None:
        """Change the pod's cgroup. The runtime learns of the change first because it may object."""
        merged = helpers.merge_resource_config(self.current, config)
        self._tell_runtime(name, merged)
        try:
            self.pcm.set_pod_cgroup_config(self.pod, config)
        except OSError as err:
            ref = klog.kobj(self.pod)
            klog.error_s(err, "Failed to set cgroup config", resource=name, pod=ref)
            try:
                self._tell_runtime(name, self.current)
            except ResizeError as rollback:
                message = "Failed to notify runtime to rollback UpdatePodSandboxResources"
                klog.error_s(rollback, message, resource=name, pod=ref)
            raise
        self.current = merged

    def _tell_runtime(self, name: str, config: cm.ResourceConfig) -> None:
        try:
            self.manager.update_pod_sandbox_resources(self.ctx, self.changes.sandbox_id, self.pod, config)
        except ResizeError as err:
            raise ResizeError(
                f"failed to notify runtime for UpdatePodSandboxResources (resource={name}); resize rejected: {err}"
            ) from err

    def _note_pod_level_resources(self, name: str) -> None:
        """Record that the pod-level allocation of this resource has been actuated."""
        allocated, uid = self.pod.spec.resources, self.pod.metadata.uid
        if allocated is None:
            return
        state = self.manager.actuated_state
        actuated = v1.deepcopy(state.get_pod_level_resources(uid) or v1.ResourceRequirements())
        if allocated.requests:
            actuated.requests[name] = allocated.requests.get(name, _ZERO)
        if allocated.limits:
            actuated.limits[name] = allocated.limits.get(name, _ZERO)
        state.set_pod_level_resources(uid, actuated)


def _changes_resource(changes: PodActions, name: str) -> bool:
    """Report whether the resource changes for a container, or may change for the pod."""
    updates = changes.containers_to_update.get(name)
    return bool(updates or changes.update_pod_resources or changes.update_pod_level_resources)


def _growth(current: int | None, desired: int | None) -> int:
    """Return the growth, negative if the value shrinks, or 0 if one of the values is unknown."""
    return 0 if current is None or desired is None else desired - current


def container_resources_from_requirements(
    pod_requirements: v1.ResourceRequirements | None, requirements: v1.ResourceRequirements
) -> ResourceRequirements:
    """Return the resources of a container; limits that it lacks come from the pod."""
    limits = requirements.limits
    if _pod_level_scaling():
        limits = kubeutil.get_limits(kubeutil.ResourceOpts(pod_requirements, requirements))
    return _requirements(limits, requirements.requests)


def pod_resources_from_requirements(requirements: v1.ResourceRequirements | None) -> ResourceRequirements:
    """Return the pod-level resources."""
    return ResourceRequirements() if requirements is None else _requirements(requirements.limits, requirements.requests)


def _requirements(limits: dict[str, resource.Quantity], requests: dict[str, resource.Quantity]) -> ResourceRequirements:
    return ResourceRequirements(
        memory_limit=limits.get(v1.RESOURCE_MEMORY, _ZERO).value(),
        memory_request=requests.get(v1.RESOURCE_MEMORY, _ZERO).value(),
        cpu_limit=limits.get(v1.RESOURCE_CPU, _ZERO).milli_value(),
        cpu_request=requests.get(v1.RESOURCE_CPU, _ZERO).milli_value(),
    )


def _amounts(cpu: int, memory: int) -> dict[str, resource.Quantity]:
    return {
        v1.RESOURCE_CPU: resource.new_milli_quantity(cpu),
        v1.RESOURCE_MEMORY: resource.new_quantity(memory, resource.Format.BINARY_SI),
    }


def _requires_restart(container: v1.Container, desired: ResourceRequirements, current: ResourceRequirements) -> bool:
    """Report whether the container's resize policy requires a restart for what changes.

    Without a policy no restart is required.
    """
    changed = set()
    if (desired.memory_limit, desired.memory_request) != (current.memory_limit, current.memory_request):
        changed.add(v1.RESOURCE_MEMORY)
    if (desired.cpu_limit, desired.cpu_request) != (current.cpu_limit, current.cpu_request):
        changed.add(v1.RESOURCE_CPU)
    policies: dict[str, str] = {}
    for policy in container.resize_policy:
        policies.setdefault(policy.resource_name, policy.restart_policy)
    return any(policies.get(name) == v1.RESTART_CONTAINER for name in changed)


def _mark_for_update(changes: PodActions, name: str, update: ContainerToUpdateInfo, figures: tuple[str, str]) -> None:
    """Add the update to the list of the resource, at the beginning if the resource shrinks and at the end if it grows.

    The first of the values that changes decides.
    """
    for figure in figures:
        desired = getattr(update.desired_container_resources, figure)
        current = getattr(update.current_container_resources, figure)
        if desired == current:
            continue
        updates = changes.containers_to_update.setdefault(name, [])
        updates.insert(len(updates) if desired > current else 0, update)
        return


def _is_memory_decreasing(current: int | None, desired: int | None) -> bool:
    # DIVERGES (fault of Go): a new limit is a decrease if the pod's cgroup had no limit, which the cgroup reports as
    # -1.
    # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).validateMemoryResizeAction: the
    # Go kubelet takes the new limit for an increase, and does not check the memory in use.
    # Why: the kernel kills processes of a pod that uses more than its new limit.
    # Test: kuberuntime_resize_test.py:test_memory_of_the_pod_as_a_whole_is_not_taken_away
    before, after = (math.inf if limit is None or limit < 0 else limit for limit in (current, desired))
    return after < before


def _memory_usage(stats: statsapi.PodStats | statsapi.ContainerStats) -> int | None:
    return None if stats.memory is None else stats.memory.usage_bytes


def _is_limit_decreasing(info: ContainerToUpdateInfo) -> bool:
    """Report whether the container's memory limit decreases; a new limit counts as a decrease."""
    desired = info.desired_container_resources.memory_limit
    current = info.current_container_resources.memory_limit
    return desired != 0 and (current == 0 or desired < current)


def _with_effective_limits(spec: v1.PodSpec, container: v1.Container) -> v1.ResourceRequirements:
    """Return the container's resources; limits that it lacks come from the pod."""
    resources = container.resources
    if not _pod_level_scaling():
        return resources
    limits = kubeutil.get_limits(kubeutil.ResourceOpts(spec.resources, resources))
    return v1.ResourceRequirements(requests=resources.requests, limits=limits)


def cpu_memory_resources_equal(a: v1.ResourceRequirements | None, b: v1.ResourceRequirements | None) -> bool:
    """Report whether both have the same CPU and memory; a missing value equals zero."""
    nothing = v1.ResourceRequirements()
    a, b = a or nothing, b or nothing
    return all(
        x.get(name, _ZERO).cmp(y.get(name, _ZERO)) == 0
        for x, y in ((a.requests, b.requests), (a.limits, b.limits))
        for name in _RESIZABLE
    )


def _pod_level_scaling() -> bool:
    return features.feature_gate.enabled(features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING)
