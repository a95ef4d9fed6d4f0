"""Changes cpu and memory of pods that run.

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
    """A resize cannot be put in force now; its text is for the pod's condition."""


@dataclass(kw_only=True, eq=False, repr=False)
class ResizeMethods(ContainerLinuxMethods):
    """Everything about pods whose resources differ from what is in force."""

    runtime_service: internalapi.RuntimeService
    # What is in force by all we know, over restarts too.
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
        """Adds to the changes what a running container needs for the resources it was given.

        Whether it is kept (True) or restarted for them (False).
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
            # Of the init containers only sidecars may ask to be restarted.
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
            # None are assumed. At worst the container is told once more what it has, or restarted if it wants that.
            klog.error_s(None, "Missing actuated resource record", pod=klog.kobj(pod), container=container.name)
            actuated = v1.ResourceRequirements()
        return container_resources_from_requirements(self.actuated_state.get_pod_level_resources(uid), actuated)

    def compute_restart_resize_action(self, pod: v1.Pod, changes: PodActions) -> None:
        """Adds to the changes what containers need that start again with other resources than they had."""
        # DIVERGES (fault of Go): a pod's cgroup is resized for a container that is about to be started, too.
        # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).computePodResizeAction: the
        # cgroup is resized only for containers that run.
        # Why: a container that crashes for want of memory, and does not run when it is given more, would find the old
        # limit in its pod's cgroup and go on crashing.
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
        """Whether the pod as a whole was given other resources than it has."""
        if not _pod_level_scaling():
            return False
        info = self.actuated_state.get_pod_resource_info(pod.metadata.uid)
        if info is None:
            # None are assumed. At worst the cgroup is written once more.
            klog.error_s(None, "Missing actuated pod level resource record", pod=klog.kobj(pod))
        current = None if info is None else info.pod_level_resources
        return pod_resources_from_requirements(current) != pod_resources_from_requirements(pod.spec.resources)

    def do_pod_resize_action(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus, changes: PodActions
    ) -> kubecontainer.SyncResult:
        """Changes the cgroups of the pod and its containers. What could not be done is left to later syncs."""
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
                # Some of it may be in force whatever happened.
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
        # DIVERGES (fault of Go): where pods have no cgroups, their containers are resized alone.
        # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).doPodResizeAction: follows a
        # nil pointer, and the kubelet crashes.
        # Why: whoever turned off --cgroups-per-qos may still resize pods.
        # Test: kuberuntime_resize_test.py:test_pods_without_cgroups_are_resized_all_the_same
        memory = found[v1.RESOURCE_MEMORY] or cm.ResourceConfig(memory=desired.memory)
        cpu = found[v1.RESOURCE_CPU] or dataclasses.replace(desired, memory=None)
        current = helpers.merge_resource_config(helpers.merge_resource_config(desired, memory), cpu)
        # A limit that the pod no longer has stays: containers are told so, too.
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
        """Raises ResizeError when the resize would fail half-way."""
        # DIVERGES (fault of Go): a resize of the pod as a whole, below the memory in use, is refused.
        # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).validatePodResizeAction: the
        # memory in use is looked at only when a container's memory changes, or a container is restarted.
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
        """Raises ResizeError when a limit would fall below what is in use, for the kernel would kill then."""
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
                # (*kubeGenericRuntimeManager).validateMemoryResizeAction: names what the whole pod uses.
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
        """Changes one resource of containers in this order. Raises crierror.RemoteError, OSError at the first fault."""
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
                # The others come after this one for a reason: leave them.
                klog.error_s(
                    err,
                    "updateContainerResources failed",
                    container=container.name,
                    cID=str(info.kube_container_id),
                    pod=format.pod(pod),
                    resourceName=resource_name,
                )
                raise
            # The runtime's own word may lag behind.
            for name in ("memory_limit", "memory_request", "cpu_limit", "cpu_request"):
                setattr(current, name, getattr(target, name))

    def update_container_resources(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container, container_id: kubecontainer.ContainerID
    ) -> None:
        """Has the runtime change a container's cgroup. Raises crierror.RemoteError, OSError."""
        resources = self.generate_container_resources(pod, container)
        self.runtime_service.update_container_resources(ctx, container_id.id, resources)
        set_actuated_container_resources(self.actuated_state, pod, container)

    def update_pod_sandbox_resources(
        self, ctx: golang.Context, sandbox_id: str, pod: v1.Pod, pod_resources: cm.ResourceConfig
    ) -> None:
        """Tells the runtime what the pod's cgroup is about to allow. Raises ResizeError if it objects."""
        request = self.generate_update_pod_sandbox_resources_request(sandbox_id, pod, pod_resources)
        try:
            self.runtime_service.update_pod_sandbox_resources(ctx, request)
        except crierror.RemoteError as err:
            # containerd 2.2 says so with a code of its own.
            unknown = err.code is grpc.StatusCode.UNKNOWN and "not implemented" in err.message
            if err.code is not grpc.StatusCode.UNIMPLEMENTED and not unknown:
                # The id is called so in Go.
                text = f'updatePodSandboxResources failed for sanboxID "{sandbox_id}": {err}'
                raise ResizeError(text) from err
            klog.v(3).info_s(
                "updatePodSandboxResources failed: unimplemented; this call is best-effort: proceeding with resize",
                sandboxID=sandbox_id,
            )

    def update_actuated_pod_level_resources(self, actuated_pod: v1.Pod) -> None:
        """Notes that the pod's cgroup was made for the pod as it is. Raises OSError."""
        resources = actuated_pod.spec.resources
        if resources is None or not (resources.requests or resources.limits):
            return
        if features.feature_gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING):
            self.actuated_state.set_pod_level_resources(actuated_pod.metadata.uid, resources)

    def is_pod_resize_in_progress(self, allocated_pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> bool:
        """Whether something that runs was given other cpu or memory than it has."""
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
            # DIVERGES (fault of Go): a resize is in progress, too, while an init container that runs awaits its part.
            # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, isResizableContainer: leaves out init containers that
            # are no sidecars, though they are resized.
            # Why: the API server is told that the resize is done before it is.
            # Test: kuberuntime_resize_test.py:test_resize_of_an_init_container_is_in_progress
            if status is None or status.state is not kubecontainer.CONTAINER_STATE_RUNNING:
                # It will have the right size when it is started.
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
    """One resize under way.

    What grows, grows from the pod's cgroup to the containers' and limits before requests; what shrinks, shrinks the
    other way round. So no container is ever allowed more than its pod.
    """

    manager: ResizeMethods
    ctx: golang.Context
    pod: v1.Pod
    changes: PodActions
    pcm: cm.PodContainerManager
    desired: cm.ResourceConfig
    # What is in force by now.
    current: cm.ResourceConfig
    # What was in force at the beginning.
    memory: cm.ResourceConfig
    cpu: cm.ResourceConfig

    def is_needed(self) -> bool:
        """Whether anything is left to be done: not if a container waits to be started in a pod of the right size."""
        changes, desired = self.changes, self.desired
        return (
            bool(changes.containers_to_update)
            or changes.update_pod_level_resources
            or self.memory.memory != desired.memory
            or self.cpu.cpu_quota != desired.cpu_quota
            or not cm.same_cpu_shares(self.cpu.cpu_shares, desired.cpu_shares)
        )

    def run(self) -> None:
        """Raises ResizeError, crierror.RemoteError, OSError, and leaves the rest to be done."""
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
        """Limits and requests of the pod's cgroup are (in force, wanted)."""
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
        # Requests of memory stand in no cgroup.
        if name == v1.RESOURCE_CPU:
            self._set_pod_cgroup_config(name, cm.ResourceConfig(cpu_shares=self.desired.cpu_shares))

    def _set_pod_cgroup_config(self, name: str, config: cm.ResourceConfig) -> None:
        """The runtime is told first, for it may object."""
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
        """The pod as a whole has what it was given of this resource."""
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
    """Whether the resource changes for a container, or may change for the pod."""
    updates = changes.containers_to_update.get(name)
    return bool(updates or changes.update_pod_resources or changes.update_pod_level_resources)


def _growth(current: int | None, desired: int | None) -> int:
    """By how much it grows, below zero if it shrinks; what is not known does neither."""
    return 0 if current is None or desired is None else desired - current


def container_resources_from_requirements(
    pod_requirements: v1.ResourceRequirements | None, requirements: v1.ResourceRequirements
) -> ResourceRequirements:
    """What a container has; its pod's limits where it has none itself."""
    limits = requirements.limits
    if _pod_level_scaling():
        limits = kubeutil.get_limits(kubeutil.ResourceOpts(pod_requirements, requirements))
    return _requirements(limits, requirements.requests)


def pod_resources_from_requirements(requirements: v1.ResourceRequirements | None) -> ResourceRequirements:
    """What a pod has as a whole."""
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
    """Whether the container's resize policy wants a restart for what changes. Without a policy it does not."""
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
    """By the first figure that changes: what shrinks goes before all others, what grows behind them."""
    for figure in figures:
        desired = getattr(update.desired_container_resources, figure)
        current = getattr(update.current_container_resources, figure)
        if desired == current:
            continue
        updates = changes.containers_to_update.setdefault(name, [])
        updates.insert(len(updates) if desired > current else 0, update)
        return


def _is_memory_decreasing(current: int | None, desired: int | None) -> bool:
    # DIVERGES (fault of Go): a limit where the pod's cgroup had none, which is shown as -1, is a decrease.
    # Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go, (*kubeGenericRuntimeManager).validateMemoryResizeAction: takes
    # such a limit for an increase, and does not look at the memory in use.
    # Why: the kernel kills processes of a pod that uses more than its new limit.
    # Test: kuberuntime_resize_test.py:test_memory_of_the_pod_as_a_whole_is_not_taken_away
    before, after = (math.inf if limit is None or limit < 0 else limit for limit in (current, desired))
    return after < before


def _memory_usage(stats: statsapi.PodStats | statsapi.ContainerStats) -> int | None:
    return None if stats.memory is None else stats.memory.usage_bytes


def _is_limit_decreasing(info: ContainerToUpdateInfo) -> bool:
    """Whether the container's memory limit falls; a limit where there was none is a fall."""
    desired = info.desired_container_resources.memory_limit
    current = info.current_container_resources.memory_limit
    return desired != 0 and (current == 0 or desired < current)


def _with_effective_limits(spec: v1.PodSpec, container: v1.Container) -> v1.ResourceRequirements:
    """The container's resources, its pod's limits where it has none itself."""
    resources = container.resources
    if not _pod_level_scaling():
        return resources
    limits = kubeutil.get_limits(kubeutil.ResourceOpts(spec.resources, resources))
    return v1.ResourceRequirements(requests=resources.requests, limits=limits)


def cpu_memory_resources_equal(a: v1.ResourceRequirements | None, b: v1.ResourceRequirements | None) -> bool:
    """Whether both are the same in cpu and memory; nothing is the same as zero."""
    nothing = v1.ResourceRequirements()
    a, b = a or nothing, b or nothing
    return all(
        x.get(name, _ZERO).cmp(y.get(name, _ZERO)) == 0
        for x, y in ((a.requests, b.requests), (a.limits, b.limits))
        for name in _RESIZABLE
    )


def _pod_level_scaling() -> bool:
    return features.feature_gate.enabled(features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING)
