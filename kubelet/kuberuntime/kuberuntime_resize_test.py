"""Test the resizes of running pods.

Go: pkg/kubelet/kuberuntime/kuberuntime_manager_test.go
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import cm, metrics
from kubelet import container as kubecontainer
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cm import cgroup_manager, cgroup_v2_manager
from kubelet.cm.testing import FakeContainerManager, FakePodContainerManager
from kubelet.container import testing as containertest
from kubelet.cri import errors as crierror
from kubelet.kuberuntime import ACTUATED_PODS_STATE_FILE, PodActions, testing
from kubelet.kuberuntime.kuberuntime_container import StartSpec, set_actuated_container_resources
from kubelet.kuberuntime.kuberuntime_resize import ResizeError, cpu_memory_resources_equal
from kubelet.kuberuntime.pod_actions import ContainerToUpdateInfo, ResourceRequirements
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.component_base.metrics import testing as metricstesting

_CTX = golang.background()
_UID = types.UID("12345678")
_RESTART = v1.RESTART_CONTAINER
_NOT = v1.NOT_REQUIRED


class Resizes:
    """Hold a runtime manager, a running pod and its actuated resources."""

    def __init__(self, root: Path, container_manager: cm.ContainerManager | None = None) -> None:
        """Build the runtime manager with a fake container manager, unless another one is given."""
        config = cm.ResourceConfig(memory=-1, cpu_shares=2, cpu_quota=-1, cpu_period=100_000)
        self.cgroups = FakePodContainerManager(config)
        self.fake = testing.create_test_runtime_manager(
            str(root), container_manager=container_manager or FakeContainerManager(self.cgroups), cpu_cfs_quota=True
        )
        self.manager = self.fake.manager
        self.calls: list[tuple[Any, ...]] = []
        self.errors: dict[str, crierror.RemoteError] = {}
        service: Any = self.manager.runtime_service
        service.update_container_resources = self._update_container_resources
        service.update_pod_sandbox_resources = self._update_pod_sandbox_resources

    @property
    def in_force(self) -> cm.ResourceConfig:
        """Return the resources of the pod's cgroup."""
        assert self.cgroups.config is not None
        return self.cgroups.config

    def _update_container_resources(
        self, ctx: golang.Context, container_id: str, resources: runtimeapi.ContainerResources
    ) -> None:
        linux = resources.linux
        self.calls.append((container_id, linux.cpu_shares, linux.cpu_quota, linux.memory_limit_in_bytes))
        if "container" in self.errors:
            raise self.errors["container"]

    def _update_pod_sandbox_resources(
        self, ctx: golang.Context, request: runtimeapi.UpdatePodSandboxResourcesRequest
    ) -> runtimeapi.UpdatePodSandboxResourcesResponse:
        linux = request.resources
        self.calls.append((request.pod_sandbox_id, linux.cpu_shares, linux.cpu_quota, linux.memory_limit_in_bytes))
        if "sandbox" in self.errors:
            raise self.errors["sandbox"]
        return runtimeapi.UpdatePodSandboxResourcesResponse()

    def actuate(self, pod: v1.Pod, *actuated: ResourceRequirements | None) -> None:
        """Set the actuated resources of the pod's containers, in their order."""
        for container, figures in zip((*pod.spec.init_containers, *pod.spec.containers), actuated, strict=False):
            if figures is not None:
                resources = requirements(figures)
                self.manager.actuated_state.set_container_resources(_UID, container.name, resources)

    def actions(self, pod: v1.Pod, *not_running: str) -> PodActions:
        return self.manager.compute_pod_actions(pod, pod_status(pod, *not_running), False)


def figures(cpu: int = 0, memory: int = 0, cpu_limit: int = 0, memory_limit: int = 0) -> ResourceRequirements:
    return ResourceRequirements(cpu_request=cpu, memory_request=memory, cpu_limit=cpu_limit, memory_limit=memory_limit)


def requirements(amounts: ResourceRequirements) -> v1.ResourceRequirements:
    def quantities(cpu: int, memory: int) -> dict[str, resource.Quantity]:
        found = {"cpu": resource.new_milli_quantity(cpu), "memory": resource.new_quantity(memory)}
        return {name: quantity for name, quantity in found.items() if not quantity.is_zero()}

    return v1.ResourceRequirements(
        requests=quantities(amounts.cpu_request, amounts.memory_request),
        limits=quantities(amounts.cpu_limit, amounts.memory_limit),
    )


def new_container(name: str, amounts: ResourceRequirements, **policies: str) -> v1.Container:
    return v1.Container(
        name=name,
        image="busybox",
        resources=requirements(amounts),
        resize_policy=[v1.ContainerResizePolicy(resource_name=r, restart_policy=p) for r, p in policies.items()],
    )


def new_pod(*containers: v1.Container, **spec: Any) -> v1.Pod:
    metadata = metav1.ObjectMeta(name="foo", namespace="ns", uid=_UID)
    return v1.Pod(metadata=metadata, spec=v1.PodSpec(containers=list(containers), restart_policy="Always", **spec))


def container_id(name: str) -> kubecontainer.ContainerID:
    return kubecontainer.ContainerID("fakeRuntime", f"id-{name}")


def pod_status(pod: v1.Pod, *not_running: str) -> kubecontainer.PodStatus:
    sandbox = runtimeapi.PodSandboxStatus(
        id="sandbox-id",
        state=runtimeapi.SANDBOX_READY,
        metadata=runtimeapi.PodSandboxMetadata(name="foo", uid=_UID, namespace="ns"),
        network=runtimeapi.PodSandboxNetworkStatus(ip="10.0.0.1"),
    )
    statuses = [
        kubecontainer.Status(
            id=container_id(container.name),
            name=container.name,
            state=kubecontainer.State.CREATED if container.name in not_running else kubecontainer.State.RUNNING,
            hash=kubecontainer.hash_container(container),
        )
        for container in (*pod.spec.init_containers, *pod.spec.containers)
    ]
    return kubecontainer.PodStatus(
        id=_UID, name="foo", namespace="ns", sandbox_statuses=[sandbox], container_statuses=statuses
    )


@pytest.fixture
def resizes(tmp_path: Path) -> Resizes:
    return Resizes(tmp_path)


# ---- compute_pod_actions ----

_OLD = figures(100, 100, 100, 100)


@pytest.mark.parametrize(
    ("policies", "desired", "updated", "restarted"),
    [
        ({}, figures(200, 200, 200, 200), ["memory", "cpu"], False),
        ({}, figures(200, 100, 200, 100), ["cpu"], False),
        ({}, figures(100, 200, 100, 200), ["memory"], False),
        ({}, figures(200, 100, 100, 100), ["cpu"], False),
        ({}, figures(100, 200, 100, 100), ["memory"], False),
        ({}, _OLD, [], False),
        ({"cpu": _NOT, "memory": _NOT}, figures(200, 200, 200, 200), ["memory", "cpu"], False),
        ({"cpu": _NOT, "memory": _RESTART}, figures(200, 100, 200, 100), ["cpu"], False),
        ({"cpu": _NOT, "memory": _RESTART}, figures(100, 200, 100, 200), [], True),
        ({"cpu": _NOT, "memory": _RESTART}, figures(200, 200, 200, 200), [], True),
        ({"cpu": _RESTART, "memory": _RESTART}, figures(100, 100, 50, 100), [], True),
        ({"cpu": _RESTART, "memory": _NOT}, figures(50, 100, 100, 100), [], True),
        ({"cpu": _RESTART}, figures(100, 50, 100, 50), ["memory"], False),
        ({"cpu": _RESTART, "memory": _RESTART}, _OLD, [], False),
    ],
)
def test_compute_pod_actions_for_pod_resize(
    resizes: Resizes, policies: dict[str, str], desired: ResourceRequirements, updated: list[str], restarted: bool
) -> None:
    pod = new_pod(new_container("a", _OLD), new_container("b", desired, **policies))
    resizes.actuate(pod, _OLD, _OLD)
    actions = resizes.actions(pod)
    assert not actions.kill_pod
    assert {name: [info.container.name for info in infos] for name, infos in actions.containers_to_update.items()} == {
        name: ["b"] for name in updated
    }
    for infos in actions.containers_to_update.values():
        assert (infos[0].desired_container_resources, infos[0].current_container_resources) == (desired, _OLD)
    assert actions.containers_to_start == ([1] if restarted else [])
    assert actions.update_pod_resources is restarted
    messages = {id: info.message for id, info in actions.containers_to_kill.items()}
    assert messages == ({container_id("b"): "Container b resize requires restart"} if restarted else {})


def test_what_shrinks_comes_before_what_grows(resizes: Resizes) -> None:
    new = (
        figures(100, 200, 100, 200),
        figures(100, 50, 100, 50),
        figures(100, 300, 100, 300),
        figures(50, 100, 50, 40),
    )
    pod = new_pod(*(new_container(name, amounts) for name, amounts in zip("abcd", new, strict=True)))
    resizes.actuate(pod, *(_OLD,) * 4)
    actions = resizes.actions(pod)
    assert [info.container.name for info in actions.containers_to_update["memory"]] == ["d", "b", "a", "c"]
    assert [info.container.name for info in actions.containers_to_update["cpu"]] == ["d"]
    memory, cpu = actions.containers_to_update["memory"][0], actions.containers_to_update["cpu"][0]
    assert memory.current_container_resources is cpu.current_container_resources, (
        "each update sees the changes of the other"
    )


def test_what_does_not_run_is_not_resized(resizes: Resizes) -> None:
    pod = new_pod(new_container("a", figures(200)), new_container("b", figures(200)))
    resizes.actuate(pod, figures(100), figures(100))
    actions = resizes.actions(pod, "b")
    assert [info.container.name for info in actions.containers_to_update["cpu"]] == ["a"]
    assert actions.containers_to_start == [1]


@pytest.mark.parametrize(
    ("actuated", "changes"),
    [(figures(100), True), (figures(200), False), (None, False)],
    ids=["other resources", "the same", "never started"],
)
def test_pod_grows_for_a_container_that_starts_again(
    resizes: Resizes, actuated: ResourceRequirements | None, changes: bool
) -> None:
    """A container that crashes because it lacks memory gets more only if the pod's cgroup grows too."""
    pod = new_pod(new_container("a", figures(200)))
    resizes.actuate(pod, actuated)
    actions = resizes.actions(pod, "a")
    assert actions.containers_to_start == [0]
    assert actions.update_pod_resources is changes
    assert not actions.containers_to_update


def test_pod_grows_for_an_init_container_that_starts_again(resizes: Resizes) -> None:
    pod = new_pod(new_container("main", figures(100)), init_containers=[new_container("init", figures(200))])
    resizes.actuate(pod, figures(100))
    status = pod_status(pod)
    del status.container_statuses[1]
    status.container_statuses[0].state = kubecontainer.State.EXITED
    status.container_statuses[0].exit_code = 1
    actions = resizes.manager.compute_pod_actions(pod, status, False)
    assert actions.init_containers_to_start == [0]
    assert actions.update_pod_resources


@pytest.mark.parametrize("unified", [True, False])
def test_pod_that_has_grown_is_left_alone(resizes: Resizes, unified: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sync does not reinspect a pod of the right size whose container is starting: the syncs would never end."""
    monkeypatch.setattr(cgroup_manager, "is_cgroup2_unified_mode", lambda: unified)
    pod = new_pod(new_container("a", figures(100, 200, 100, 200)))
    config = cm.resource_config_for_pod(pod, True, 100_000)
    assert config.cpu_shares is not None
    # In cgroup version 2 one weight stands for many requests.
    shares = (
        cgroup_v2_manager.cpu_weight_to_cpu_shares(cm.cpu_shares_to_weight(config.cpu_shares))
        if unified
        else config.cpu_shares
    )
    resizes.cgroups.config = dataclasses.replace(config, cpu_shares=shares, memory=100)
    resizes.actuate(pod, figures(100, 100, 100, 100))
    for memory in (100, 200, 200):
        resizes.in_force.memory = memory
        actions = resizes.actions(pod, "a")
        assert actions.update_pod_resources
        assert resizes.manager.do_pod_resize_action(_CTX, pod, pod_status(pod, "a"), actions).error is None
        if memory == 100:
            assert resizes.cgroups.updates[0] == cm.ResourceConfig(memory=200)
            before = len(resizes.cgroups.updates), len(resizes.calls)
    assert (len(resizes.cgroups.updates), len(resizes.calls)) == before
    assert resizes.fake.helper.reinspected == [_UID]


@pytest.mark.parametrize("sidecar", [True, False])
@pytest.mark.parametrize("enabled", [True, False])
def test_init_containers_are_resized(resizes: Resizes, sidecar: bool, enabled: bool) -> None:
    init = new_container("init", figures(200))
    init.restart_policy = v1.CONTAINER_RESTART_POLICY_ALWAYS if sidecar else None
    pod = new_pod(new_container("a", figures(100)), init_containers=[init])
    resizes.actuate(pod, figures(100), figures(100))
    status = pod_status(pod)
    del status.container_statuses[1:]
    gate = features.IN_PLACE_POD_VERTICAL_SCALING_INIT_CONTAINERS
    with set_feature_gate_during_test(features.feature_gate, gate, enabled):
        actions = resizes.manager.compute_pod_actions(pod, status, False)
    assert ("cpu" in actions.containers_to_update) is (sidecar or enabled)
    assert actions.init_containers_to_start == []


def test_sidecar_is_restarted_for_its_resources(resizes: Resizes) -> None:
    sidecar = new_container("sidecar", figures(200), cpu=_RESTART)
    sidecar.restart_policy = v1.CONTAINER_RESTART_POLICY_ALWAYS
    pod = new_pod(new_container("a", figures(100)), init_containers=[sidecar])
    resizes.actuate(pod, figures(100), figures(100))
    actions = resizes.actions(pod)
    assert actions.init_containers_to_start == [0]
    assert list(actions.containers_to_kill) == [container_id("sidecar")]
    assert actions.update_pod_resources


def test_pod_grows_before_its_init_containers_start(resizes: Resizes, monkeypatch: pytest.MonkeyPatch) -> None:
    """With cgroup version 1, the kernel allows init containers no more CPU than their pod's cgroup has."""
    sidecar = new_container("sidecar", figures(cpu_limit=200), cpu=_RESTART)
    sidecar.restart_policy = v1.CONTAINER_RESTART_POLICY_ALWAYS
    pod = new_pod(new_container("a", figures(cpu_limit=200), cpu=_RESTART), init_containers=[sidecar])
    resizes.actuate(pod, figures(cpu_limit=100), figures(cpu_limit=100))
    resizes.in_force.cpu_quota = 20_000
    order: list[str] = []

    def start_container(ctx: golang.Context, context: object, spec: StartSpec, image_volumes: object) -> None:
        order.append(spec.container.name)

    def set_pod_cgroup_config(pod: v1.Pod, config: cm.ResourceConfig) -> None:
        order.append(f"pod {config.cpu_quota}")

    monkeypatch.setattr(resizes.manager, "kill_container", lambda *args: None)
    monkeypatch.setattr(resizes.manager, "start_container", start_container)
    monkeypatch.setattr(resizes.cgroups, "set_pod_cgroup_config", set_pod_cgroup_config)
    status = pod_status(pod)
    result = resizes.manager.sync_pod(_CTX, pod, status, [], resizes.fake.back_off(), False)
    assert result.error() is None
    assert [line for line in order if line != "pod None"] == ["pod 40000", "sidecar", "a"]


@pytest.mark.parametrize(
    ("actuated", "wanted", "expected"),
    [
        (figures(cpu_limit=100), figures(cpu_limit=200), True),
        (figures(cpu_limit=100), figures(cpu_limit=100), False),
        (None, None, False),
        (None, figures(cpu_limit=100), True),
    ],
)
def test_pod_level_resources_resize(
    resizes: Resizes, actuated: ResourceRequirements | None, wanted: ResourceRequirements | None, expected: bool
) -> None:
    own = requirements(wanted) if wanted is not None else None
    pod = new_pod(new_container("a", figures(cpu_limit=50)), resources=own)
    resizes.actuate(pod, figures(cpu_limit=50))
    if actuated is not None:
        resizes.manager.actuated_state.set_pod_level_resources(_UID, requirements(actuated))
    actions = resizes.actions(pod)
    assert actions.update_pod_level_resources is expected
    assert actions.containers_to_update == {}, "the container has a limit of its own"
    gate = features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING
    with set_feature_gate_during_test(features.feature_gate, gate, False):
        assert not resizes.actions(pod).update_pod_level_resources


def test_containers_without_limits_follow_those_of_their_pod(resizes: Resizes) -> None:
    pod = new_pod(new_container("a", figures(10)), resources=requirements(figures(cpu_limit=200, memory_limit=100)))
    resizes.actuate(pod, figures(10, cpu_limit=100, memory_limit=100))
    resizes.manager.actuated_state.set_pod_level_resources(_UID, requirements(figures(cpu_limit=100, memory_limit=100)))
    actions = resizes.actions(pod)
    assert list(actions.containers_to_update) == ["cpu"]
    assert actions.update_pod_level_resources


# ---- do_pod_resize_action ----


def memory_usage(pod: int | None, containers: dict[str, int | None]) -> statsapi.PodStats:
    return statsapi.PodStats(
        memory=statsapi.MemoryStats(usage_bytes=pod),
        containers=[
            statsapi.ContainerStats(name=name, memory=statsapi.MemoryStats(usage_bytes=used))
            for name, used in containers.items()
        ],
    )


def do_resize(
    resizes: Resizes, current: ResourceRequirements, desired: ResourceRequirements, others_limited: bool = False
) -> kubecontainer.SyncResult:
    """Resize the first of two containers."""
    other = figures(100, 100, 100 if others_limited else 0, 100 if others_limited else 0)
    pod = new_pod(new_container("a", desired), new_container("b", other))
    before = new_pod(new_container("a", current), new_container("b", other))
    config = cm.resource_config_for_pod(before, True, 100_000)
    cgroup = resizes.in_force
    cgroup.cpu_shares = config.cpu_shares
    cgroup.cpu_quota = config.cpu_quota if config.cpu_quota is not None else -1
    cgroup.memory = config.memory if config.memory is not None else -1
    resizes.actuate(pod, current, other)
    resizes.fake.helper.pod_stats[_UID] = memory_usage(10, {"a": 5, "b": 5})
    status = pod_status(pod)
    return resizes.manager.do_pod_resize_action(_CTX, pod, status, resizes.actions(pod))


@pytest.mark.parametrize(
    ("current", "desired", "others_limited", "order"),
    [
        (
            figures(100, 100, 100, 100),
            figures(200, 200, 200, 200),
            True,
            ["pod memory 300", "a 102 10000 200", "pod quota 30000", "pod shares 307", "a 204 20000 200"],
        ),
        (
            figures(200, 200, 200, 200),
            figures(100, 100, 100, 100),
            True,
            ["a 204 20000 100", "pod memory 200", "a 102 10000 100", "pod shares 204", "pod quota 20000"],
        ),
        (
            figures(100, 100, 100, 100),
            figures(200, 200, 200, 200),
            False,
            ["a 102 10000 200", "pod shares 307", "a 204 20000 200"],
        ),
        (figures(100, 100, 200, 200), figures(150, 100, 200, 200), False, ["pod shares 256", "a 153 20000 200"]),
        (figures(100, 100), figures(200, 100), False, ["pod shares 307", "a 204 0 0"]),
        (figures(100, 100), figures(100, 100, 100, 100), False, ["a 102 0 100", "a 102 10000 100"]),
        (
            figures(100, 100),
            figures(100, 100, 100, 100),
            True,
            ["pod memory 200", "a 102 0 100", "pod quota 20000", "a 102 10000 100"],
        ),
    ],
    ids=[
        "all grow",
        "all shrink",
        "without limits of the pod",
        "cpu request",
        "cpu request without limits",
        "limits are added",
        "limits are added, and to the pod",
    ],
)
def test_do_pod_resize_action(
    resizes: Resizes,
    current: ResourceRequirements,
    desired: ResourceRequirements,
    others_limited: bool,
    order: list[str],
) -> None:
    log: list[str] = []

    def set_pod_cgroup_config(pod: v1.Pod, config: cm.ResourceConfig) -> None:
        figures = {"memory": config.memory, "shares": config.cpu_shares, "quota": config.cpu_quota}
        log.extend(f"pod {name} {value}" for name, value in figures.items() if value is not None)

    def update(ctx: golang.Context, id: str, resources: runtimeapi.ContainerResources) -> None:
        linux = resources.linux
        log.append(f"{id.removeprefix('id-')} {linux.cpu_shares} {linux.cpu_quota} {linux.memory_limit_in_bytes}")

    fakes: Any = (resizes.cgroups, resizes.manager.runtime_service)
    fakes[0].set_pod_cgroup_config = set_pod_cgroup_config
    fakes[1].update_container_resources = update
    result = do_resize(resizes, current, desired, others_limited)
    assert result.error is None
    growing = [line for line in log if line.startswith("pod ")]
    if current.cpu_limit == 0 and desired.cpu_limit and others_limited:
        # The limit is new. The value -1 of the missing limit counts as less than any limit.
        assert sorted(log) == sorted(order)
    else:
        assert log == order
    assert len(resizes.calls) == len(growing), "the runtime is notified of every change of the pod's cgroup"
    assert resizes.fake.helper.reinspected == [_UID]
    found = resizes.manager.actuated_state.get_container_resources(_UID, "a")
    assert cpu_memory_resources_equal(found, requirements(desired))


def test_runtime_refuses_a_container(resizes: Resizes) -> None:
    resizes.errors["container"] = crierror.RemoteError(grpc.StatusCode.UNKNOWN, "error updating container resources")
    with metricstesting.moves(metrics.POD_RESIZE_DURATION_MILLISECONDS.labels("false")):
        result = do_resize(resizes, figures(100, 100, 100, 100), figures(200, 200, 200, 200), True)
    assert isinstance(result.error, kubecontainer.ErrResizePodInPlace)
    assert "error updating container resources" in result.message
    assert len(resizes.cgroups.updates) == 1
    assert resizes.fake.helper.reinspected == [_UID]
    found = resizes.manager.actuated_state.get_container_resources(_UID, "a")
    assert cpu_memory_resources_equal(found, requirements(figures(100, 100, 100, 100)))


@pytest.mark.parametrize(
    ("code", "message", "refused"),
    [
        (grpc.StatusCode.UNKNOWN, "runtime sandbox update failed", True),
        (grpc.StatusCode.UNIMPLEMENTED, "not supported", False),
        (grpc.StatusCode.UNKNOWN, "not implemented yet", False),
    ],
)
def test_runtime_is_told_of_the_pod_first(resizes: Resizes, code: grpc.StatusCode, message: str, refused: bool) -> None:
    resizes.errors["sandbox"] = crierror.RemoteError(code, message)
    result = do_resize(resizes, figures(100, 0, 100), figures(200, 0, 200))
    if not refused:
        assert result.error is None
        assert len(resizes.cgroups.updates) == 1
        return
    assert result.message.startswith(
        "failed to notify runtime for UpdatePodSandboxResources (resource=cpu); resize rejected: "
        'updatePodSandboxResources failed for sanboxID "sandbox-id": '
    )
    assert message in result.message
    assert resizes.cgroups.updates == []


def test_kernel_refuses_the_pod(resizes: Resizes) -> None:
    resizes.cgroups.err = OSError("cgroup update failed")
    result = do_resize(resizes, figures(100, 0, 100), figures(200, 0, 200))
    assert result.message == "cgroup update failed"
    sandbox = [call for call in resizes.calls if call[0] == "sandbox-id"]
    assert [call[1] for call in sandbox] == [307, 204], "the runtime is notified of the rollback"


def test_cgroup_that_cannot_be_read(resizes: Resizes) -> None:
    resizes.cgroups.read_err = OSError("gone")
    result = do_resize(resizes, figures(100), figures(200))
    assert result.message == 'unable to get pod cgroup cpu config for pod "foo_ns(12345678)"'
    assert resizes.calls == []


def test_pods_without_cgroups_are_resized_all_the_same(tmp_path: Path) -> None:
    resizes = Resizes(tmp_path, cm.ContainerManagerStub())
    result = do_resize(resizes, figures(100, 100, 100, 100), figures(200, 200, 200, 200), True)
    assert result.error is None
    assert [call[0] for call in resizes.calls] == ["id-a", "id-a"]


def test_resize_of_the_pod_as_a_whole(resizes: Resizes) -> None:
    pod = new_pod(new_container("a", figures(10, 10, 10, 10)), resources=requirements(figures(200, 200, 200, 300)))
    resizes.actuate(pod, figures(10, 10, 10, 10))
    resizes.manager.update_actuated_pod_level_resources(
        new_pod(pod.spec.containers[0], resources=requirements(figures(100, 100, 100, 300)))
    )
    resizes.cgroups.config = cm.ResourceConfig(memory=300, cpu_shares=102, cpu_quota=10000)
    status = pod_status(pod)
    assert resizes.manager.is_pod_resize_in_progress(pod, status)
    result = resizes.manager.do_pod_resize_action(_CTX, pod, status, resizes.actions(pod))
    assert result.error is None
    assert [(c.memory, c.cpu_quota, c.cpu_shares) for c in resizes.cgroups.updates] == [
        (None, 20000, None),
        (None, None, 204),
    ]
    found = resizes.manager.actuated_state.get_pod_level_resources(_UID)
    assert cpu_memory_resources_equal(found, pod.spec.resources)
    assert not resizes.manager.is_pod_resize_in_progress(pod, status)


# ---- validate_pod_resize_action ----


@pytest.mark.parametrize(
    ("pod_limits", "container_limits", "usage", "fault"),
    [
        ((300, 200), [], (200, {}), "attempting to set pod memory limit (200) below current usage (200)"),
        ((300, 200), [], (199, {}), None),
        ((300, 200), [], (None, {}), "missing pod memory usage"),
        ((None, 200), [], (300, {}), "attempting to set pod memory limit (200) below current usage (300)"),
        ((200, 300), [], (500, {}), None),
        (
            (300, 300),
            [(200, 100)],
            (250, {"c0": 150}),
            'attempting to set container "c0" memory limit (100) below current usage (150)',
        ),
        ((300, 300), [(200, 100)], (250, {"c0": 99}), None),
        ((300, 300), [(100, 200)], (250, {"c0": 250}), None),
        (
            (300, 300),
            [(0, 100)],
            (250, {"c0": 150}),
            'attempting to set container "c0" memory limit (100) below current usage (150)',
        ),
        ((300, 300), [(100, 0)], (250, {"c0": 250}), None),
        ((300, 300), [(200, 100)], (250, {"c0": None}), 'missing container "c0" memory usage'),
        (
            (300, 200),
            [(200, 100), (200, 100)],
            (250, {"c0": 150, "c1": 50}),
            "[attempting to set pod memory limit (200) below current usage (250), "
            'attempting to set container "c0" memory limit (100) below current usage (150)]',
        ),
    ],
)
def test_validate_pod_resize_action(
    resizes: Resizes,
    pod_limits: tuple[int | None, int],
    container_limits: list[tuple[int, int]],
    usage: tuple[int | None, dict[str, int | None]],
    fault: str | None,
) -> None:
    pod = new_pod(new_container("c0", figures()), new_container("c1", figures()))
    changes = PodActions(update_pod_resources=True)
    for i, (current, desired) in enumerate(container_limits):
        info = ContainerToUpdateInfo(
            pod.spec.containers[i], container_id("x"), figures(memory_limit=desired), figures(memory_limit=current)
        )
        changes.containers_to_update.setdefault("memory", []).append(info)
    resizes.fake.helper.pod_stats[_UID] = memory_usage(*usage)
    current_config, desired_config = (cm.ResourceConfig(memory=limit) for limit in pod_limits)

    def validate() -> None:
        resizes.manager.validate_pod_resize_action(_CTX, pod, pod_status(pod), current_config, desired_config, changes)

    if fault is None:
        validate()
        return
    with pytest.raises(Exception) as raised:
        validate()
    assert str(raised.value) == f"cannot decrease memory limits: {fault}"


@pytest.mark.parametrize("before", [300, -1, None], ids=["less", "where there was none", "where nobody knows"])
@pytest.mark.parametrize("usage", [199, 200])
def test_memory_of_the_pod_as_a_whole_is_not_taken_away(resizes: Resizes, before: int | None, usage: int) -> None:
    """The check also applies if the containers keep their own limits."""
    pod = new_pod(new_container("a", figures(memory_limit=150)), new_container("b", figures(memory_limit=150)))
    resizes.fake.helper.pod_stats[_UID] = memory_usage(usage, {"a": 100, "b": 100})
    current, desired = (cm.ResourceConfig(memory=limit) for limit in (before, 200))
    changes = PodActions(update_pod_level_resources=True)

    def validate() -> None:
        resizes.manager.validate_pod_resize_action(_CTX, pod, pod_status(pod), current, desired, changes)

    if usage < 200:
        validate()
        return
    with pytest.raises(ResizeError, match=r"attempting to set pod memory limit \(200\) below current usage \(200\)"):
        validate()


def test_usage_that_nobody_knows(resizes: Resizes) -> None:
    result = do_resize(resizes, figures(memory_limit=200), figures(memory_limit=100))
    assert result.error is None
    helper: containertest.FakeRuntimeHelper = resizes.fake.helper
    helper.pod_stats.clear()
    pod = new_pod(new_container("a", figures(memory_limit=50)))
    changes = resizes.actions(pod)
    result = resizes.manager.do_pod_resize_action(_CTX, pod, pod_status(pod), changes)
    assert result.message == 'unable to read memory usage for pod "foo_ns(12345678)"'


# ---- Actuated resources ----


@pytest.mark.parametrize(
    ("actuated", "not_running", "expected"),
    [
        (figures(100, 100, 100, 100), (), False),
        (figures(200, 100, 100, 100), (), True),
        (figures(100, 200, 100, 100), (), True),
        (figures(100, 100, 200, 100), (), True),
        (figures(100, 100, 100, 200), (), True),
        (None, (), True),
        (figures(200, 100, 100, 100), ("a",), False),
    ],
)
def test_is_pod_resize_in_progress(
    resizes: Resizes, actuated: ResourceRequirements | None, not_running: tuple[str, ...], expected: bool
) -> None:
    pod = new_pod(new_container("a", figures(100, 100, 100, 100)))
    resizes.actuate(pod, actuated)
    assert resizes.manager.is_pod_resize_in_progress(pod, pod_status(pod, *not_running)) is expected


def test_resize_of_an_init_container_is_in_progress(resizes: Resizes) -> None:
    init = new_container("init", figures(200))
    pod = new_pod(new_container("a", figures(100)), init_containers=[init])
    resizes.actuate(pod, figures(100), figures(100))
    assert resizes.manager.is_pod_resize_in_progress(pod, pod_status(pod))
    resizes.actuate(pod, figures(200), figures(100))
    assert not resizes.manager.is_pod_resize_in_progress(pod, pod_status(pod))


def test_what_is_in_force_is_known_after_a_restart(tmp_path: Path) -> None:
    first = Resizes(tmp_path)
    pod = new_pod(new_container("a", figures(100, cpu_limit=100)))
    set_actuated_container_resources(first.manager.actuated_state, pod, pod.spec.containers[0])
    assert (tmp_path / ACTUATED_PODS_STATE_FILE).exists()
    again = Resizes(tmp_path)
    assert not again.actions(pod).resizes()
    again.fake.pod_state.removed.add(_UID)
    again.manager.garbage_collect(_CTX, kubecontainer.GCPolicy(0, 1, -1), True, False)
    assert again.manager.actuated_state.get_pod_resource_info_map() == {}


def test_what_is_in_force_is_known_as_long_as_the_pod(resizes: Resizes) -> None:
    pod = new_pod(new_container("a", figures(100)))
    resizes.actuate(pod, figures(100))
    provider = resizes.fake.pod_state
    policy = kubecontainer.GCPolicy(0, -1, -1)
    provider.terminated.add(_UID)
    resizes.manager.garbage_collect(_CTX, policy, True, False)
    assert resizes.manager.actuated_state.get_pod_resource_info_map(), "the pod's status still shows its resources"
    provider.removed.add(_UID)
    resizes.manager.garbage_collect(_CTX, policy, True, False)
    assert not resizes.manager.actuated_state.get_pod_resource_info_map()


def test_status_fills_in_what_the_runtime_does_not_tell(resizes: Resizes) -> None:
    pod = new_pod(new_container("a", figures(100, 200, 300, 400)))
    resizes.actuate(pod, figures(100, 200, 300, 400))
    labels = {"io.kubernetes.container.name": "a", "io.kubernetes.pod.uid": _UID}
    silent = runtimeapi.ContainerStatus(id="x", labels=labels)
    found = resizes.manager.to_kube_container_status(_UID, silent).resources
    assert found is not None
    told = (found.cpu_request, found.cpu_limit, found.memory_request, found.memory_limit)
    assert [str(each) for each in told] == ["100m", "300m", "200", "400"]
    silent.resources.linux.cpu_shares = 204
    found = resizes.manager.to_kube_container_status(_UID, silent).resources
    assert found is not None
    assert (str(found.cpu_request), found.cpu_limit, str(found.memory_request)) == ("200m", None, "200")
