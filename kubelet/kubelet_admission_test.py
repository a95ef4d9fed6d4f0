"""Test the admission of pods that have to wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubelet import container as kubecontainer
from kubelet import lifecycle
from kubelet import types as kubetypes
from kubelet.errors import PodNotAdmittedError
from kubelet.kubelet_admission import WaitingPods
from kubelet.lifecycle import PodAdmitResult
from kubelet.testing import TestKubelet, new_pod
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types

_WAIT = PodAdmitResult(False, "UnexpectedAdmissionError", "waits for a device", wait=True)
_REFUSE = PodAdmitResult(False, "UnexpectedAdmissionError", "no device")


class _AdmitHandler:
    """Return the configured result for each pod's name; admit a pod that has none.

    `asked` records each pod with the names of the other pods.
    """

    def __init__(self) -> None:
        self.answers: dict[str, PodAdmitResult] = {}
        self.asked: list[tuple[str, list[str]]] = []
        # The handler calls this function once while it handles a pod.
        self.meanwhile: Callable[[], None] = lambda: None

    def admit(self, attributes: lifecycle.PodAdmitAttributes) -> PodAdmitResult:
        name = attributes.pod.metadata.name
        self.asked.append((name, [pod.metadata.name for pod in attributes.other_pods]))
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return self.answers.get(name, PodAdmitResult(True))


class _World:
    def __init__(self, kubelet: TestKubelet) -> None:
        self.kubelet = kubelet
        self.handler = _AdmitHandler()
        kubelet.kubelet.allocation_manager.add_pod_admit_handlers([self.handler])

    def add(self, *names: str) -> None:
        """Add pods that have to wait."""
        for name in names:
            self.handler.answers[name] = _WAIT
            self.kubelet.kubelet.handle_pod_additions(self.kubelet.ctx, [new_pod(name)])

    def sync(self, name: str) -> bool:
        """Sync the pod as its worker does; return whether the pod is terminal."""
        pod, status = new_pod(name), kubecontainer.PodStatus(id=types.UID(f"uid-{name}"), name=name, namespace="ns")
        ctx = self.kubelet.ctx
        return self.kubelet.kubelet.sync_pod(ctx, kubetypes.SYNC_POD_SYNC, pod, None, status).is_terminal

    def phase(self, name: str) -> str:
        return self.kubelet.status_of(types.UID(f"uid-{name}")).phase


@pytest.fixture
def world(test_kubelet: TestKubelet) -> _World:
    return _World(test_kubelet)


def test_pod_waits_and_is_admitted(world: _World) -> None:
    world.add("p")
    assert world.kubelet.workers.update_types() == [("CREATE", "p")]
    for _ in range(2):
        with pytest.raises(PodNotAdmittedError, match="pod is not admitted yet: waits for a device"):
            world.sync("p")
    assert world.kubelet.events() == ["Warning WaitingForResources waits for a device"]
    assert (world.phase("p"), world.kubelet.runtime.started_pods) == (v1.POD_PENDING, [])
    del world.handler.answers["p"]
    assert not world.sync("p")
    assert len(world.handler.asked) == 4
    world.sync("p")
    assert len(world.handler.asked) == 4, "the kubelet asks no more about an admitted pod"
    assert len(world.kubelet.runtime.started_pods) == 2


def test_pod_waits_in_vain(world: _World) -> None:
    world.add("p")
    world.handler.answers["p"] = _REFUSE
    assert world.sync("p")
    status = world.kubelet.status_of(types.UID("uid-p"))
    assert (status.phase, status.reason, status.message) == (
        v1.POD_FAILED,
        "UnexpectedAdmissionError",
        "Pod was rejected: no device",
    )
    assert world.kubelet.runtime.started_pods == []


def test_what_a_pod_waits_for_can_change(world: _World) -> None:
    world.add("p")
    world.handler.answers["p"] = PodAdmitResult(False, "X", "waits for another device", wait=True)
    with pytest.raises(PodNotAdmittedError, match="another device"):
        world.sync("p")
    assert world.kubelet.events() == [
        "Warning WaitingForResources waits for a device",
        "Warning WaitingForResources waits for another device",
    ]


def test_pods_that_wait_have_nothing_that_another_could_not_get(world: _World) -> None:
    world.add("one", "two")
    world.kubelet.kubelet.handle_pod_additions(world.kubelet.ctx, [new_pod("runs")])
    world.handler.answers.clear()
    world.handler.asked.clear()
    for name in ("one", "two"):
        world.sync(name)
    assert world.handler.asked == [("one", ["runs"]), ("two", ["one", "runs"])]


def test_of_two_that_are_admitted_at_once_one_counts_for_the_other(world: _World) -> None:
    world.add("one", "two")
    world.handler.answers.clear()
    world.handler.asked.clear()
    threads = []

    def begin_the_other() -> None:
        threads.append(golang.go(world.sync, "two", name="two"))
        # Give the thread time to reach the point at which it waits.
        threads[0].join(0.3)

    world.handler.meanwhile = begin_the_other
    world.sync("one")
    threads[0].join(30)
    assert world.handler.asked == [("one", []), ("two", ["one"])]


def _preempting(victims: list[v1.Pod], make_room: Callable[[], object]) -> PodAdmitResult:
    def end() -> list[v1.Pod]:
        make_room()
        return victims

    return PodAdmitResult(False, "RoomIsToBeMade", "waiting for preempted pods to terminate: ns/v", True, end)


def test_nobody_waits_for_the_victims_of_preemption_but_the_pod_that_they_make_room_for(world: _World) -> None:
    """While a critical pod waits for its victim, the victim's worker and the sync loop can still admit pods."""
    kubelet, handler = world.kubelet.kubelet, world.handler
    world.add("victim")
    admitted_meanwhile: list[str] = []

    def let_the_victim_be_admitted() -> None:
        def admit() -> None:
            with pytest.raises(PodNotAdmittedError, match="not admitted yet"):
                world.sync("victim")
            kubelet.handle_pod_additions(world.kubelet.ctx, [new_pod("new")])
            assert not kubelet.allocation_manager.has_pending_resizes()
            admitted_meanwhile.append("new")

        worker = golang.go(admit, name="victim")
        worker.join(30)
        assert not worker.is_alive(), "the victim must not wait for the pod that preempts it"
        del handler.answers["critical"]

    handler.answers["critical"] = _preempting([new_pod("victim")], let_the_victim_be_admitted)
    kubelet.handle_pod_additions(world.kubelet.ctx, [new_pod("critical")])
    assert admitted_meanwhile == [], "the sync loop must not wait for the victims"
    assert world.kubelet.workers.update_types() == [("CREATE", "victim"), ("CREATE", "critical")]
    assert not world.sync("critical")
    assert admitted_meanwhile == ["new"]
    assert "uid-critical" not in kubelet.waiting_pods


def test_victim_that_does_not_end_in_time_counts_as_gone(world: _World) -> None:
    kubelet, handler = world.kubelet.kubelet, world.handler
    kubelet.handle_pod_additions(world.kubelet.ctx, [new_pod("victim"), new_pod("other")])
    handler.answers["critical"] = _preempting([new_pod("victim")], lambda: handler.answers.clear())
    kubelet.handle_pod_additions(world.kubelet.ctx, [new_pod("critical")])
    handler.asked.clear()
    assert not world.sync("critical")
    assert handler.asked == [("critical", ["victim", "other"]), ("critical", ["other"])]


def test_pod_that_waits_after_a_restart_counts_for_others(world: _World) -> None:
    """The earlier kubelet had admitted the pod, so its containers may be running."""
    world.kubelet.kubelet.allocation_manager.set_allocated_resources(new_pod("ran"))
    world.add("ran", "one")
    world.handler.answers.clear()
    world.handler.asked.clear()
    world.sync("one")
    assert world.handler.asked == [("one", ["ran"])]


def test_pod_that_goes_while_it_waits(world: _World) -> None:
    world.add("p")
    world.kubelet.kubelet.handle_pod_removes(world.kubelet.ctx, [new_pod("p")])
    assert "uid-p" not in world.kubelet.kubelet.waiting_pods


def test_waiting_pods() -> None:
    waiting = WaitingPods()
    uid = types.UID("a")
    assert [waiting.note(uid, "x"), waiting.note(uid, "x"), waiting.note(uid, "y")] == [True, False, True]
    assert "a" in waiting and "b" not in waiting
    for _ in range(2):
        waiting.discard(uid)
    assert "a" not in waiting
