"""Test which actions compute_pod_actions derives from a pod's spec and status.

Go: pkg/kubelet/kuberuntime/kuberuntime_manager_test.go (TestComputePodActions and similar tests)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet.kuberuntime import PodActions, testing
from kubelet.prober import results as proberesults
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1

_EXITED = kubecontainer.CONTAINER_STATE_EXITED
_RUNNING = kubecontainer.CONTAINER_STATE_RUNNING
_CREATED = kubecontainer.CONTAINER_STATE_CREATED
_UNKNOWN = kubecontainer.CONTAINER_STATE_UNKNOWN


@dataclass
class _World:
    """Hold a pod, its status and its probe results, which a test case changes."""

    fake: testing.TestRuntime
    pod: v1.Pod
    status: kubecontainer.PodStatus

    def policy(self, policy: str) -> None:
        self.pod.spec.restart_policy = policy

    def own_policy(self, policy: str, *indexes: int) -> None:
        for index in indexes:
            self.pod.spec.containers[index].restart_policy = policy

    def state(self, index: int, state: kubecontainer.State, exit_code: int = 0) -> None:
        self.status.container_statuses[index].state = state
        self.status.container_statuses[index].exit_code = exit_code

    def states(self, state: kubecontainer.State) -> None:
        for index in range(len(self.status.container_statuses)):
            self.state(index, state)

    def keep(self, kept: slice) -> None:
        self.status.container_statuses = self.status.container_statuses[kept]

    def sandbox_dead(self, attempt: int = 0) -> None:
        self.status.sandbox_statuses[0].state = runtimeapi.SANDBOX_NOTREADY
        self.status.sandbox_statuses[0].metadata.attempt = attempt

    def liveness(self, index: int, result: proberesults.Result | None) -> None:
        self._probe(self.fake.manager.liveness_manager, index, result)

    def startup(self, index: int, result: proberesults.Result | None) -> None:
        self._probe(self.fake.manager.startup_manager, index, result)

    def _probe(self, manager: proberesults.Manager, index: int, result: proberesults.Result | None) -> None:
        container_id = self.status.container_statuses[index].id
        manager.remove(container_id)
        if result is not None:
            manager.set(container_id, result, self.pod)

    def main_containers(self, state: kubecontainer.State) -> None:
        for container in self.pod.spec.containers:
            self.status.container_statuses.append(_status(container, f"id-{container.name}", state))


@dataclass
class _Case:
    """Describe a change and the expected actions.

    The expected actions name containers to kill by the index of their status. The test ID is Go's description.
    """

    change: Callable[[_World], object] = lambda world: None
    kill_pod: bool = False
    create: bool = False
    attempt: int = 0
    start: list[int] = field(default_factory=list)
    init: list[int] = field(default_factory=list)
    ephemeral: list[int] = field(default_factory=list)
    kill: list[int] = field(default_factory=list)
    sandbox: str = "sandboxID"


def _do(*steps: Callable[[_World], object]) -> Callable[[_World], None]:
    def change(world: _World) -> None:
        for step in steps:
            step(world)

    return change


def _status(
    container: v1.Container | v1.EphemeralContainer, container_id: str, state: kubecontainer.State
) -> kubecontainer.Status:
    spec = v1.Container(name=container.name, image=container.image)
    return kubecontainer.Status(
        id=kubecontainer.ContainerID("fake", container_id),
        name=container.name,
        state=state,
        hash=kubecontainer.hash_container(spec),
    )


def _base(fake: testing.TestRuntime) -> _World:
    """Return a pod with three running containers.

    Go: makeBasePodAndStatus
    """
    containers = [v1.Container(name=f"foo{i}", image="busybox") for i in (1, 2, 3)]
    pod = v1.Pod(
        metadata=metav1.ObjectMeta(uid=types.UID("12345678"), name="foo", namespace="foo-ns"),
        spec=v1.PodSpec(containers=containers, restart_policy="Always"),
    )
    status = kubecontainer.PodStatus(
        id=types.UID("12345678"),
        name="foo",
        namespace="foo-ns",
        sandbox_statuses=[
            runtimeapi.PodSandboxStatus(
                id="sandboxID",
                state=runtimeapi.SANDBOX_READY,
                metadata=runtimeapi.PodSandboxMetadata(name="foo", namespace="foo-ns", uid="12345678"),
                network=runtimeapi.PodSandboxNetworkStatus(ip="10.0.0.1"),
            )
        ],
        container_statuses=[_status(c, f"id{i}", _RUNNING) for i, c in enumerate(containers, 1)],
    )
    return _World(fake, pod, status)


def _with_init(fake: testing.TestRuntime) -> _World:
    """Return a pod with three exited init containers.

    Go: makeBasePodAndStatusWithInitContainers
    """
    world = _base(fake)
    inits = [v1.Container(name=f"init{i}", image="bar-image") for i in (1, 2, 3)]
    world.pod.spec.init_containers = inits
    world.status.container_statuses = [_status(c, f"initid{i}", _EXITED) for i, c in enumerate(inits, 1)]
    return world


def _with_sidecars(fake: testing.TestRuntime) -> _World:
    """Return a pod with three running sidecars.

    Go: makeBasePodAndStatusWithRestartableInitContainers
    """
    world = _base(fake)
    inits = [v1.Container(name=f"sidecar{i}", image="bar-image", restart_policy="Always") for i in (1, 2, 3)]
    for container in inits[1:]:
        container.liveness_probe = v1.Probe()
        container.startup_probe = v1.Probe()
    world.pod.spec.init_containers = inits
    world.status.container_statuses = [_status(c, f"initid{i}", _RUNNING) for i, c in enumerate(inits, 1)]
    for index in (1, 2):
        world.liveness(index, proberesults.SUCCESS)
        world.startup(index, proberesults.SUCCESS)
    return world


def _with_ephemeral(fake: testing.TestRuntime) -> _World:
    """Return a pod with an ephemeral container.

    Go: makeBasePodAndStatusWithInitAndEphemeralContainers
    """
    world = _base(fake)
    init = v1.Container(name="init1", image="bar-image")
    debug = v1.EphemeralContainer(name="debug", image="busybox")
    world.pod.spec.init_containers = [init]
    world.pod.spec.ephemeral_containers = [debug]
    world.status.container_statuses.append(_status(init, "initid1", _EXITED))
    world.status.container_statuses.append(_status(debug, "debug1", _RUNNING))
    return world


def _verify(world: _World, case: _Case) -> None:
    case.change(world)
    statuses = list(world.status.container_statuses)
    actions = world.fake.manager.compute_pod_actions(world.pod, world.status, False)
    assert list(actions.containers_to_kill) == [statuses[i].id for i in case.kill]
    assert [info.name for info in actions.containers_to_kill.values()] == [statuses[i].name for i in case.kill]
    actions.containers_to_kill = {}
    assert actions == PodActions(
        kill_pod=case.kill_pod,
        create_sandbox=case.create,
        sandbox_id=case.sandbox,
        attempt=case.attempt,
        containers_to_start=case.start,
        init_containers_to_start=case.init,
        ephemeral_containers_to_start=case.ephemeral,
    )


def _params(cases: dict[str, _Case]) -> list[Any]:
    return [pytest.param(case, id=name) for name, case in cases.items()]


def _always(world: _World) -> None:
    world.policy("Always")


def _on_failure(world: _World) -> None:
    world.policy("OnFailure")


def _never(world: _World) -> None:
    world.policy("Never")


def _two_ended(world: _World) -> None:
    world.state(0, _EXITED, 0)
    world.state(1, _EXITED, 111)


_BASE_CASES = {
    "everything is good; do nothing": _Case(),
    "new pod; start sandbox and all containers": _Case(
        _do(lambda w: w.status.sandbox_statuses.clear(), lambda w: w.status.container_statuses.clear()),
        kill_pod=True,
        create=True,
        start=[0, 1, 2],
        sandbox="",
    ),
    "Always: restart exited containers": _Case(_do(_always, _two_ended), start=[0, 1]),
    "OnFailure: restart failed containers": _Case(_do(_on_failure, _two_ended), start=[1]),
    "OnFailure: restart created but not started containers": _Case(
        _do(_on_failure, lambda w: w.state(0, _EXITED), lambda w: w.state(1, _CREATED)), start=[1]
    ),
    "Never: do not restart containers": _Case(_do(_never, _two_ended)),
    "Always: dead sandbox; recreate everything": _Case(
        _do(_always, _World.sandbox_dead), kill_pod=True, create=True, attempt=1, start=[0, 1, 2]
    ),
    "OnFailure: dead sandbox; recreate all but the succeeded": _Case(
        _do(_on_failure, _World.sandbox_dead, lambda w: w.state(1, _EXITED)),
        kill_pod=True,
        create=True,
        attempt=1,
        start=[0, 2],
    ),
    "sandbox without IP; recreate everything": _Case(
        lambda w: setattr(w.status.sandbox_statuses[0].network, "ip", ""),
        kill_pod=True,
        create=True,
        attempt=1,
        start=[0, 1, 2],
    ),
    "spec changed; kill and recreate the container": _Case(
        lambda w: setattr(w.status.container_statuses[1], "hash", 432423432), start=[1], kill=[1]
    ),
    "liveness failed; kill and recreate the container": _Case(
        lambda w: w.liveness(1, proberesults.FAILURE), start=[1], kill=[1]
    ),
    "startup failed; kill and recreate the container": _Case(
        lambda w: w.startup(1, proberesults.FAILURE), start=[1], kill=[1]
    ),
    "Never: liveness failed; kill only": _Case(_do(_never, lambda w: w.liveness(1, proberesults.FAILURE)), kill=[1]),
    "Never: no ready sandbox, all exited; create no sandbox": _Case(
        _do(_never, lambda w: w.sandbox_dead(1), lambda w: w.states(_EXITED)), kill_pod=True, attempt=2
    ),
    "OnFailure: no ready sandbox, all succeeded; create no sandbox": _Case(
        _do(_on_failure, lambda w: w.sandbox_dead(1), lambda w: w.states(_EXITED)), kill_pod=True, attempt=2
    ),
    "Never: no ready sandbox, no container ever created; create a sandbox": _Case(
        _do(_never, lambda w: w.sandbox_dead(2), lambda w: w.status.container_statuses.clear()),
        kill_pod=True,
        create=True,
        attempt=3,
        start=[0, 1, 2],
    ),
    "Never: dead sandbox, none started; recreate everything": _Case(
        _do(_never, _World.sandbox_dead, lambda w: w.states(_CREATED)),
        kill_pod=True,
        create=True,
        attempt=1,
        start=[0, 1, 2],
    ),
    "Never: dead sandbox, one container not started; create the sandbox and that container": _Case(
        _do(_never, _World.sandbox_dead, lambda w: w.states(_EXITED), lambda w: w.state(1, _CREATED)),
        kill_pod=True,
        create=True,
        attempt=1,
        start=[1],
    ),
    "Never: unknown state; kill and recreate": _Case(_do(_never, lambda w: w.state(1, _UNKNOWN)), start=[1], kill=[1]),
    "Never: created state; restart": _Case(_do(_never, lambda w: w.state(1, _CREATED)), start=[1]),
    "own policy Always over Never": _Case(
        _do(_never, lambda w: w.own_policy("Always", 0, 1), _two_ended), start=[0, 1]
    ),
    "own policy OnFailure over Never": _Case(
        _do(_never, lambda w: w.own_policy("OnFailure", 0, 1), _two_ended), start=[1]
    ),
    "own policy Never over Always": _Case(_do(_always, lambda w: w.own_policy("Never", 0, 1), _two_ended)),
    "own policy OnFailure: dead sandbox; recreate all but the succeeded": _Case(
        _do(
            _always,
            lambda w: w.own_policy("OnFailure", 1),
            _World.sandbox_dead,
            lambda w: w.state(1, _EXITED),
        ),
        kill_pod=True,
        create=True,
        attempt=1,
        start=[0, 2],
    ),
    "two ready sandboxes; recreate everything": _Case(
        lambda w: w.status.sandbox_statuses.append(w.status.sandbox_statuses[0]),
        kill_pod=True,
        create=True,
        attempt=1,
        start=[0, 1, 2],
    ),
}


@pytest.mark.parametrize("case", _params(_BASE_CASES))
def test_compute_pod_actions(fake: testing.TestRuntime, case: _Case) -> None:
    _verify(_base(fake), case)


def _last_failed(world: _World) -> None:
    world.state(2, _EXITED, 137)


_INIT_CASES = {
    "initialization completed; start all containers": _Case(start=[0, 1, 2]),
    "none started; start the first": _Case(lambda w: w.status.container_statuses.clear(), init=[0]),
    "in progress; do nothing": _Case(lambda w: w.state(2, _RUNNING)),
    "dead sandbox; begin with the first": _Case(_World.sandbox_dead, kill_pod=True, create=True, attempt=1, init=[0]),
    "Always: failed; restart the last": _Case(_do(_always, _last_failed), init=[2]),
    "OnFailure: failed; restart the last": _Case(_do(_on_failure, _last_failed), init=[2]),
    "Never: failed; kill the pod": _Case(_do(_never, _last_failed), kill_pod=True),
    "Always: unknown; kill and recreate the last": _Case(lambda w: w.state(2, _UNKNOWN), init=[2], kill=[2]),
    "OnFailure: unknown; kill and recreate the last": _Case(
        _do(_on_failure, lambda w: w.state(2, _UNKNOWN)), init=[2], kill=[2]
    ),
    "Never: unknown; kill the pod": _Case(_do(_never, lambda w: w.state(2, _UNKNOWN)), kill_pod=True),
    "Never: dead sandbox; kill the pod only": _Case(_do(_never, _World.sandbox_dead), kill_pod=True, attempt=1),
    "Never: dead sandbox, the last not started; begin with the first": _Case(
        _do(_never, _World.sandbox_dead, lambda w: w.state(2, _CREATED)),
        kill_pod=True,
        create=True,
        attempt=1,
        init=[0],
    ),
    "Never: dead sandbox, main containers not started; begin with the first": _Case(
        _do(_never, _World.sandbox_dead, lambda w: w.main_containers(_CREATED)),
        kill_pod=True,
        create=True,
        attempt=1,
        init=[0],
    ),
    "Never: dead sandbox, no init container seen; create a sandbox": _Case(
        _do(_never, _World.sandbox_dead, lambda w: w.status.container_statuses.clear()),
        kill_pod=True,
        create=True,
        attempt=1,
        init=[0],
    ),
    "OnFailure: dead sandbox, failed; create a sandbox": _Case(
        _do(_on_failure, _World.sandbox_dead, _last_failed), kill_pod=True, create=True, attempt=1, init=[0]
    ),
    "earlier statuses missing, the last runs; do nothing": _Case(
        _do(lambda w: w.state(2, _RUNNING), lambda w: w.keep(slice(2, None)))
    ),
    "created state; restart": _Case(lambda w: w.state(2, _CREATED), init=[2]),
    "out of memory with code 0; restart": _Case(
        lambda w: setattr(w.status.container_statuses[2], "reason", "OOMKilled"), init=[2]
    ),
}


@pytest.mark.parametrize("case", _params(_INIT_CASES))
def test_compute_pod_actions_with_init_containers(fake: testing.TestRuntime, case: _Case) -> None:
    _verify(_with_init(fake), case)


_SIDECAR_CASES = {
    "initialization completed; start all containers": _Case(start=[0, 1, 2]),
    "none started; start the first": _Case(lambda w: w.status.container_statuses.clear(), init=[0]),
    "stuck in created; restart": _Case(lambda w: w.state(2, _CREATED), init=[2]),
    "started; start the next": _Case(lambda w: w.keep(slice(1)), init=[1]),
    "liveness not run; start the next": _Case(_do(lambda w: w.liveness(1, None), lambda w: w.keep(slice(2))), init=[2]),
    "liveness in progress; start the next": _Case(
        _do(lambda w: w.liveness(1, proberesults.UNKNOWN), lambda w: w.keep(slice(2))), init=[2]
    ),
    "liveness failed; kill and recreate": _Case(
        lambda w: w.liveness(2, proberesults.FAILURE), init=[2], kill=[2], start=[0, 1, 2]
    ),
    "startup not run; do nothing": _Case(_do(lambda w: w.startup(1, None), lambda w: w.keep(slice(2)))),
    "startup in progress; do nothing": _Case(
        _do(lambda w: w.startup(1, proberesults.UNKNOWN), lambda w: w.keep(slice(2)))
    ),
    "startup completed; start the next": _Case(lambda w: w.keep(slice(2)), init=[2]),
    "startup failed; kill and recreate": _Case(lambda w: w.startup(2, proberesults.FAILURE), init=[2], kill=[2]),
    "definition changed; kill and recreate": _Case(
        lambda w: setattr(w.pod.spec.init_containers[2], "image", "foo-image"),
        init=[2],
        kill=[2],
        start=[0, 1, 2],
    ),
    "ended; restart it and the last": _Case(
        _do(lambda w: w.state(0, _EXITED), lambda w: w.state(2, _EXITED)), init=[0, 2]
    ),
    "ended; restart it and regular containers": _Case(lambda w: w.state(0, _EXITED), init=[0], start=[0, 1, 2]),
    "Never: dead sandbox, failed; kill the pod only": _Case(
        _do(_never, _World.sandbox_dead, _last_failed), kill_pod=True, attempt=1
    ),
    "Never: dead sandbox, none seen; create a sandbox": _Case(
        _do(_never, _World.sandbox_dead, lambda w: w.status.container_statuses.clear()),
        kill_pod=True,
        create=True,
        attempt=1,
        init=[0],
    ),
    "Always: dead sandbox, failed; create a sandbox": _Case(
        _do(_always, _World.sandbox_dead, _last_failed), kill_pod=True, create=True, attempt=1, init=[0]
    ),
    "Never: failed; restart all the same": _Case(_do(_never, _last_failed), init=[2]),
    "Never: unknown; kill and recreate all the same": _Case(
        _do(_never, lambda w: w.state(2, _UNKNOWN)), init=[2], kill=[2]
    ),
    "Never: failed while regular containers run; restart": _Case(
        _do(_never, _last_failed, lambda w: w.main_containers(_RUNNING)), init=[2]
    ),
    "Never: all main containers succeeded; kill the pod": _Case(
        _do(_never, lambda w: w.main_containers(_EXITED)), kill_pod=True
    ),
    "earlier statuses missing, the last runs; restart sidecars and regular containers": _Case(
        lambda w: w.keep(slice(2, None)), init=[0, 1], start=[0, 1, 2]
    ),
}


@pytest.mark.parametrize("case", _params(_SIDECAR_CASES))
def test_compute_pod_actions_with_restartable_init_containers(fake: testing.TestRuntime, case: _Case) -> None:
    _verify(_with_sidecars(fake), case)


_EPHEMERAL_CASES = {
    "steady state; do nothing": _Case(),
    "none runs; start it": _Case(lambda w: w.keep(slice(4)), ephemeral=[0]),
    "start the second": _Case(
        lambda w: w.pod.spec.ephemeral_containers.append(v1.EphemeralContainer(name="debug2", image="busybox")),
        ephemeral=[1],
    ),
    "exited; do not restart": _Case(lambda w: w.state(4, _EXITED)),
    "initialization in progress; start it": _Case(
        _do(lambda w: w.state(3, _RUNNING), lambda w: w.keep(slice(3, 4))), ephemeral=[0]
    ),
    "dead sandbox; do not restart it": _Case(_World.sandbox_dead, kill_pod=True, create=True, attempt=1, init=[0]),
    "Never: all others exited; kill the pod": _Case(
        _do(_never, *(lambda w, i=i: w.state(i, _EXITED) for i in range(3))),
        kill_pod=True,
    ),
    "unknown state; leave it alone": _Case(_do(_never, lambda w: w.state(4, _UNKNOWN))),
}


@pytest.mark.parametrize("case", _params(_EPHEMERAL_CASES))
def test_compute_pod_actions_with_init_and_ephemeral_containers(fake: testing.TestRuntime, case: _Case) -> None:
    _verify(_with_ephemeral(fake), case)


def test_kill_messages_tell_what_will_happen(fake: testing.TestRuntime) -> None:
    world = _base(fake)
    world.liveness(0, proberesults.FAILURE)
    world.startup(1, proberesults.FAILURE)
    world.status.container_statuses[2].hash = 1
    actions = fake.manager.compute_pod_actions(world.pod, world.status, False)
    assert [(info.message, info.reason) for info in actions.containers_to_kill.values()] == [
        ("Container foo1 failed liveness probe, will be restarted", "LivenessProbe"),
        ("Container foo2 failed startup probe, will be restarted", "StartupProbe"),
        ("Container foo3 definition changed, will be restarted", ""),
    ]


_RESTART_ALL = v1.ContainerRestartRule(
    action="RestartAllContainers",
    exit_codes=v1.ContainerRestartRuleOnExitCodes(operator="In", values=[42]),
)


def _trigger(container: v1.Container, policy: str = "Never") -> None:
    container.restart_policy = policy
    container.restart_policy_rules = [_RESTART_ALL]


def _init_exits(world: _World) -> None:
    world.pod.spec.init_containers[1].restart_policy = "Always"
    _trigger(world.pod.spec.init_containers[2])
    world.state(1, _RUNNING)
    world.state(2, _EXITED, 42)


def _sidecar_exits(world: _World) -> None:
    _trigger(world.pod.spec.init_containers[2], "Always")
    world.state(2, _EXITED, 42)
    world.status.container_statuses.append(_status(world.pod.spec.containers[0], "id1", _RUNNING))


def _regular_exits(world: _World) -> None:
    _trigger(world.pod.spec.containers[2])
    world.main_containers(_RUNNING)
    world.state(5, _EXITED, 42)


def _exits_again(world: _World) -> None:
    _trigger(world.pod.spec.containers[2], "Always")
    world.state(2, _EXITED, 42)
    for container in world.pod.spec.containers:
        past = _status(container, f"past-{container.name}", _EXITED)
        past.exit_code = 99
        world.status.container_statuses.append(past)


def _nothing(world: _World) -> None:
    """Leave the pod without a restart rule, because the pod was marked for the restart earlier."""


@pytest.mark.parametrize(
    ("base", "change", "expected"),
    [
        (_base, _nothing, "id1! id2! id3!"),
        (_with_init, _nothing, "initid1 initid2 initid3"),
        (_with_sidecars, _nothing, "initid1! initid2! initid3!"),
        (_with_init, _init_exits, "initid1 initid2! initid3"),
        (_with_sidecars, _sidecar_exits, "id1! initid1! initid2! initid3"),
        (_with_sidecars, _regular_exits, "id-foo1! id-foo2! initid1! initid2! initid3! id-foo3"),
        (_base, _exits_again, "id1! past-foo1 id2! past-foo2 past-foo3 id3"),
    ],
    ids=[
        "marked",
        "marked, with init containers",
        "marked, with sidecars",
        "init container exits",
        "sidecar exits",
        "regular container exits",
        "runs before the last are removed, too",
    ],
)
def test_restart_of_all_containers(
    fake: testing.TestRuntime,
    base: Callable[[testing.TestRuntime], _World],
    change: Callable[[_World], None],
    expected: str,
) -> None:
    """Containers are removed in this order, the trigger last; a "!" marks those that are killed first."""
    world = base(fake)
    change(world)
    actions = fake.manager.compute_pod_actions(world.pod, world.status, True)
    reset = actions.containers_to_reset
    assert " ".join(info.container_id.id + "!" * info.kill for info in reset) == expected
    by_id = {status.id: status.name for status in world.status.container_statuses}
    assert [info.container.name for info in reset] == [by_id[info.container_id] for info in reset]
    actions.containers_to_reset = []
    assert actions == PodActions(sandbox_id="sandboxID")


@pytest.mark.parametrize(
    ("base", "init", "start"), [(_with_init, [0], []), (_base, [], [0, 1, 2])], ids=["init container", "regular ones"]
)
def test_after_the_restart_of_all_containers(
    fake: testing.TestRuntime, base: Callable[[testing.TestRuntime], _World], init: list[int], start: list[int]
) -> None:
    """Containers without a status start as in a new sandbox."""
    _verify(base(fake), _Case(lambda w: w.status.container_statuses.clear(), init=init, start=start))


def test_deleted_pod_restarts_nothing(fake: testing.TestRuntime) -> None:
    world = _base(fake)
    world.states(_EXITED)
    world.pod.metadata.deletion_timestamp = fake.clock.now()
    actions = fake.manager.compute_pod_actions(world.pod, world.status, False)
    assert actions == PodActions(kill_pod=True, sandbox_id="sandboxID")
