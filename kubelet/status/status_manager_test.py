"""Test the status manager."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NoReturn

import pytest
from framework.waiting import threads_named

from kubelet import container as kubecontainer
from kubelet import metrics, status
from kubelet import pod as kubepod
from kubelet import types as kubetypes
from kubelet.status import status_manager
from kubelet.status.testing import (
    FakePodDeletionSafetyProvider,
    FakePodStartupLatencyStateHelper,
)
from pkg import golang
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import types, watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.client_go import kubernetes, rest
from pkg.client_go.kubernetes.testing import Action, FakeClientset
from pkg.client_go.rest import testing as resttesting
from pkg.component_base.metrics import testing as metricstesting

TRUE, FALSE = v1.CONDITION_TRUE, v1.CONDITION_FALSE
CTX = golang.background()
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
CUT = NOW.replace(microsecond=0)

_messages = itertools.count()


class Manager(status.Manager):
    """Run a status manager with fake dependencies."""

    def __init__(self, *pods: v1.Pod) -> None:
        self.client = FakeClientset()
        self.pods = kubepod.BasicManager()
        self.pods.set_pods(pods)
        self.safety = FakePodDeletionSafetyProvider()
        self.latency = FakePodStartupLatencyStateHelper()
        super().__init__(self.client, self.pods, self.safety, self.latency)

    def consume_updates(self) -> int:
        """Send all pending statuses; return their number."""
        updates = 0
        while self._pod_status_channel.try_recv()[2]:
            updates += self.sync_batch(CTX, all=False)
        return updates

    def actions(self) -> list[str]:
        """Return the verbs of the requests to the API server."""
        self.consume_updates()
        actions = [action.verb for action in self.client.actions()]
        self.client.clear_actions()
        return actions

    def expect(self, pod: v1.Pod) -> v1.PodStatus:
        pod_status = self.get_pod_status(pod.metadata.uid)
        assert pod_status is not None
        return pod_status


def make_pod() -> v1.Pod:
    meta = metav1.ObjectMeta(uid=types.UID("12345678"), name="foo", namespace="new")
    return v1.Pod(api_version="v1", kind="Pod", metadata=meta)


def static_and_mirror_pod() -> tuple[v1.Pod, v1.Pod]:
    static, mirror = make_pod(), make_pod()
    static.metadata.annotations = {kubetypes.CONFIG_SOURCE_ANNOTATION_KEY: "file"}
    mirror.metadata.uid = types.UID("mirror-12345678")
    mirror.metadata.annotations = {
        kubetypes.CONFIG_SOURCE_ANNOTATION_KEY: "api",
        kubetypes.CONFIG_MIRROR_ANNOTATION_KEY: "mirror",
    }
    return static, mirror


def random_status() -> v1.PodStatus:
    return v1.PodStatus(message=str(next(_messages)))


def ready_status(value: str = TRUE) -> v1.PodStatus:
    return v1.PodStatus(conditions=[v1.PodCondition(type=v1.POD_READY, status=value)])


# ---- Storing statuses ----


def test_new_status() -> None:
    m = Manager(make_pod())
    m.set_pod_status(make_pod(), random_status())
    assert m.consume_updates() == 1
    assert m.expect(make_pod()).start_time is not None


def test_new_status_preserves_pod_start_time() -> None:
    m, pod = Manager(), make_pod()
    pod.status.start_time = NOW - timedelta(minutes=1)
    m.set_pod_status(pod, random_status())
    assert m.expect(pod).start_time == CUT - timedelta(minutes=1)


def test_new_status_sets_ready_transition_time() -> None:
    m, pod = Manager(), make_pod()
    m.set_pod_status(pod, ready_status())
    condition = podutil.get_pod_ready_condition(m.expect(pod))
    assert condition is not None
    assert condition.last_transition_time is not None
    assert condition.last_transition_time.microsecond == 0


def test_changed_status() -> None:
    m = Manager(make_pod())
    for _ in range(2):
        m.set_pod_status(make_pod(), random_status())
        assert m.consume_updates() == 1


def test_changed_status_keeps_start_time() -> None:
    m, first = Manager(make_pod()), random_status()
    first.start_time = NOW
    m.set_pod_status(make_pod(), first)
    m.set_pod_status(make_pod(), random_status())
    assert m.expect(make_pod()).start_time == CUT


def test_the_transition_time_changes_only_with_the_conditions_status() -> None:
    m, pod = Manager(), make_pod()
    pod.status = ready_status()
    pod.status.conditions[0].last_transition_time = NOW

    def transition_time(value: str) -> datetime:
        m.set_pod_status(pod, ready_status(value))
        condition = podutil.get_pod_ready_condition(m.expect(pod))
        assert condition is not None and condition.last_transition_time is not None
        return condition.last_transition_time

    assert transition_time(TRUE) == CUT
    assert transition_time(TRUE) == CUT
    assert transition_time(FALSE) > CUT


def test_unchanged_status() -> None:
    m, pod_status = Manager(make_pod()), random_status()
    assert m.set_pod_status(make_pod(), pod_status)
    got = m.expect(make_pod())
    assert got.message == pod_status.message
    assert not m.set_pod_status(make_pod(), pod_status)
    got = m.expect(make_pod())
    assert got.message == pod_status.message
    assert m.consume_updates() == 1


def test_statuses_are_copied_in() -> None:
    m, pod_status = Manager(), random_status()
    m.set_pod_status(make_pod(), pod_status)
    pod_status.message = "changed afterwards"
    assert m.expect(make_pod()).message != "changed afterwards"


def test_an_update_of_a_pod_being_deleted_is_forced() -> None:
    m, pod = Manager(), make_pod()
    pod.metadata.deletion_timestamp = NOW
    pod_status = random_status()
    assert m.set_pod_status(pod, pod_status)
    assert m.set_pod_status(pod, pod_status)


def test_the_observed_generation_never_goes_back() -> None:
    m, pod = Manager(), make_pod()
    for generation, expected in ((3, 3), (2, 3), (4, 4)):
        pod.metadata.generation = generation
        m.set_pod_status(pod, random_status())
        assert m.expect(pod).observed_generation == expected


def test_remove_orphaned_statuses() -> None:
    m, other = Manager(), make_pod()
    other.metadata.uid = types.UID("other")
    for pod in (make_pod(), other):
        m.set_pod_status(pod, random_status())
    # This pod disappeared just before its worker recorded the condition.
    m.set_pod_resize_pending_condition(types.UID("gone"), v1.POD_REASON_DEFERRED, "", 1)
    m.remove_orphaned_statuses({types.UID("other")})
    assert m.get_pod_status(make_pod().metadata.uid) is None
    assert m.get_pod_status(types.UID("other")) is not None
    assert not m.get_pod_resize_conditions(types.UID("gone"))
    assert sorted(m.latency.deleted) == sorted([make_pod().metadata.uid, "gone"])


class _Notifier:
    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def on_pod_updated(self, pod: v1.Pod, pod_status: v1.PodStatus, is_added: bool) -> None:
        assert pod.status is pod_status
        self.seen.append(("updated", pod.metadata.uid, pod_status.message, is_added))

    def on_pod_removed(self, pod: v1.Pod) -> None:
        self.seen.append(("removed", pod.metadata.uid))


def test_notifiers_hear_of_changes() -> None:
    m, notifier, pod = Manager(), _Notifier(), make_pod()
    m.add_pod_update_notifier(notifier)
    for message in ("one", "one", "two"):
        m.set_pod_status(pod, v1.PodStatus(phase=v1.POD_FAILED, message=message))
    m.terminate_pod(pod)
    uid = pod.metadata.uid
    assert notifier.seen == [
        ("updated", uid, "one", True),
        ("updated", uid, "two", False),
        ("removed", uid),
    ]


# ---- Normalization and comparison ----


def test_status_equality() -> None:
    names = [f"container{i}" for i in range(10)]
    pod = v1.Pod(spec=v1.PodSpec(init_containers=[v1.Container(name=name) for name in names]))
    shuffler = random.Random(1)

    def shuffled() -> list[v1.ContainerStatus]:
        return [v1.ContainerStatus(name=name) for name in shuffler.sample(names, len(names))]

    def pod_status() -> v1.PodStatus:
        return v1.PodStatus(
            container_statuses=shuffled(),
            init_container_statuses=shuffled(),
            ephemeral_container_statuses=shuffled(),
        )

    equal = status_manager.is_pod_status_by_kubelet_equal
    old, new = (status_manager.normalize_status(pod, pod_status()) for _ in range(2))
    assert [s.name for s in new.init_container_statuses] == names
    assert equal(old, new)

    theirs = "www.example.com/feature"
    old.conditions.append(v1.PodCondition(type=theirs, status=FALSE))
    new.conditions.append(v1.PodCondition(type=theirs, status=TRUE))
    assert equal(old, new), "the condition belongs to another writer"

    old.resource_claim_statuses = [v1.PodResourceClaimStatus(name="my-claim", resource_claim_name="claim")]
    old.extended_resource_claim_status = v1.PodExtendedResourceClaimStatus(resource_claim_name="claim")
    old.node_allocatable_resource_claim_statuses = [
        v1.NodeAllocatableResourceClaimStatus(
            resource_claim_name="my-claim", resources={v1.RESOURCE_MEMORY: resource.must_parse("100Mi")}
        )
    ]
    assert equal(old, new), "the claims belong to another writer"

    for change in (
        lambda s: s.conditions.append(v1.PodCondition(type=v1.POD_READY, status=TRUE)),
        lambda s: setattr(s, "phase", v1.POD_RUNNING),
        lambda s: setattr(s.container_statuses[0], "restart_count", 1),
    ):
        changed = v1.deepcopy(new)
        change(changed)
        assert not equal(old, changed)


def test_status_normalization_enforces_max_bytes() -> None:
    """The pod's containers share the limit on messages, and cutting never splits a character."""

    def ended(name: str, message: str) -> v1.ContainerStatus:
        terminated = v1.ContainerStateTerminated(message=message)
        return v1.ContainerStatus(name=name, last_state=v1.ContainerState(terminated=terminated))

    names = [f"container{i}" for i in range(48)]
    pod = v1.Pod(spec=v1.PodSpec(containers=[v1.Container(name=name) for name in names]))
    pod_status = v1.PodStatus(
        init_container_statuses=[ended(name, "abcdefgh" * 40) for name in names[:16]],
        container_statuses=[ended(name, "é" * 200) for name in names[16:32]],
        ephemeral_container_statuses=[ended(name, "a" + "é" * 200) for name in names[32:]],
    )
    result = status_manager.normalize_status(pod, pod_status)
    limit = kubecontainer.MAX_POD_TERMINATION_MESSAGE_LOG_LENGTH // 48
    for statuses, length in (
        (result.init_container_statuses, limit),
        (result.container_statuses, limit),
        (result.ephemeral_container_statuses, limit - 1),
    ):
        for container_status in statuses:
            assert container_status.last_state.terminated is not None
            assert len(container_status.last_state.terminated.message.encode()) == length


def test_status_normalize_time_stamp() -> None:
    def pod_status(t: datetime) -> v1.PodStatus:
        def statuses() -> list[v1.ContainerStatus]:
            running = v1.ContainerState(running=v1.ContainerStateRunning(started_at=t))
            ended = v1.ContainerState(terminated=v1.ContainerStateTerminated(started_at=t, finished_at=t))
            return [v1.ContainerStatus(name="a", state=running, last_state=ended)]

        return v1.PodStatus(
            start_time=t,
            conditions=[v1.PodCondition(type=v1.POD_READY, last_probe_time=t, last_transition_time=t)],
            container_statuses=statuses(),
            init_container_statuses=statuses(),
            ephemeral_container_statuses=statuses(),
        )

    assert status_manager.normalize_status(v1.Pod(), pod_status(NOW)) == pod_status(CUT)


@pytest.mark.parametrize(
    ("condition", "old_condition", "expect_update"),
    [
        pytest.param(None, None, None, id="no such condition"),
        pytest.param(TRUE, None, True, id="a new one"),
        pytest.param(TRUE, FALSE, True, id="changed"),
        pytest.param(FALSE, FALSE, False, id="unchanged"),
    ],
)
def test_update_last_transition_time(
    condition: str | None, old_condition: str | None, expect_update: bool | None
) -> None:
    new, old = v1.PodStatus(), v1.PodStatus()
    if condition is not None:
        new.conditions.append(v1.PodCondition(type="test-type", status=condition))
    if old_condition is not None:
        old.conditions.append(v1.PodCondition(type="test-type", status=old_condition, last_transition_time=NOW))
    status_manager.update_last_transition_time(new, old, "test-type")
    times = [c.last_transition_time for c in new.conditions]
    if expect_update is None:
        assert times == []
    else:
        assert (times != [NOW]) is expect_update


# ---- Probe results ----

C1, C2 = kubecontainer.ContainerID("test", "1"), kubecontainer.ContainerID("test", "2")
UNKNOWN_CONTAINER = kubecontainer.ContainerID("test", "foo")


def probed_pod() -> tuple[v1.Pod, v1.PodStatus]:
    pod = make_pod()
    pod.spec.containers = [v1.Container(name="c1"), v1.Container(name="c2")]
    pod_status = ready_status(FALSE)
    pod_status.container_statuses = [
        v1.ContainerStatus(name="c1", container_id=str(C1)),
        v1.ContainerStatus(name="c2", container_id=str(C2)),
    ]
    return pod, pod_status


def test_set_container_readiness() -> None:
    pod, pod_status = probed_pod()
    m, uid = Manager(pod), pod.metadata.uid

    def readiness() -> list[object]:
        held = m.expect(pod)
        return [*(c.ready for c in held.container_statuses), podutil.is_pod_ready_condition_true(held)]

    m.set_container_readiness(uid, C1, True)
    assert m.consume_updates() == 0, "there is no status yet"
    assert m.get_pod_status(uid) is None

    m.set_pod_status(pod, pod_status)
    assert m.consume_updates() == 1
    initial = m.expect(pod)
    for container_id, ready, updates, expected in (
        (C1, False, 0, [False, False, False]),
        (C1, True, 1, [True, False, False]),
        (C2, True, 1, [True, True, True]),
        (UNKNOWN_CONTAINER, True, 0, [True, True, True]),
        (C1, False, 1, [False, True, False]),
    ):
        m.set_container_readiness(uid, container_id, ready)
        assert m.consume_updates() == updates
        assert readiness() == expected
    assert not any(c.ready for c in initial.container_statuses), "returned statuses do not change"
    conditions = {c.type: c.status for c in m.expect(pod).conditions}
    assert conditions == {v1.POD_READY: FALSE, v1.CONTAINERS_READY: FALSE}

    m.set_container_readiness(types.UID("unknown"), C1, True)
    assert m.consume_updates() == 0


def test_who_asks_for_a_status_does_not_wait_for_who_sets_one() -> None:
    """Readers of a status do not wait for the lock: all probes read, while the sync loop writes."""
    pod, pod_status = probed_pod()
    m = Manager(pod)
    m.set_pod_status(pod, pod_status)
    with m._pod_statuses_lock:
        asking = golang.go(m.get_pod_status, pod.metadata.uid, name="asks")
        asking.join(30)
        assert not asking.is_alive()


@pytest.mark.parametrize("setter", ["set_container_readiness", "set_container_startup"])
def test_result_of_a_probe_leaves_other_containers_as_they_are(setter: str) -> None:
    """A probe result leaves the statuses of other containers alone.

    A pod may have thousands of containers with three probes each.
    """
    pod, pod_status = probed_pod()
    m, uid = Manager(pod), pod.metadata.uid
    m.set_pod_status(pod, pod_status)
    before = m.expect(pod)
    kept = v1.deepcopy(before)
    getattr(m, setter)(uid, C1, True)
    after = m.expect(pod)
    assert after.container_statuses[0] != before.container_statuses[0]
    assert after.container_statuses[1] is before.container_statuses[1]
    assert before == kept, "returned statuses do not change"


def test_set_container_startup() -> None:
    pod, pod_status = probed_pod()
    m, uid = Manager(pod), pod.metadata.uid
    m.set_container_startup(uid, C1, True)
    assert m.consume_updates() == 0, "there is no status yet"
    m.set_pod_status(pod, pod_status)
    assert m.consume_updates() == 1
    for container_id, started, updates, expected in (
        (C1, False, 1, [False, None]),
        (C1, False, 0, [False, None]),
        (C1, True, 1, [True, None]),
        (C2, True, 1, [True, True]),
        (UNKNOWN_CONTAINER, True, 0, [True, True]),
    ):
        m.set_container_startup(uid, container_id, started)
        assert m.consume_updates() == updates
        assert [c.started for c in m.expect(pod).container_statuses] == expected


# ---- The end of a pod ----


def waiting() -> v1.ContainerState:
    return v1.ContainerState(waiting=v1.ContainerStateWaiting())


def running() -> v1.ContainerState:
    return v1.ContainerState(running=v1.ContainerStateRunning())


def ended(exit_code: int) -> v1.ContainerState:
    return v1.ContainerState(terminated=v1.ContainerStateTerminated(exit_code=exit_code))


def cstatus(
    name: str, state: v1.ContainerState | None = None, last: v1.ContainerState | None = None
) -> v1.ContainerStatus:
    none = v1.ContainerState()
    return v1.ContainerStatus(name=name, state=state or none, last_state=last or none)


UNKNOWN_END = "ended in an unknown way"


def describe(state: v1.ContainerState) -> object:
    if state.terminated is not None:
        if state.terminated.reason == kubecontainer.CONTAINER_REASON_STATUS_UNKNOWN:
            assert state.terminated.exit_code == 137
            assert state.terminated.message
            return UNKNOWN_END
        return state.terminated.exit_code
    return "waiting" if state.waiting is not None else "nothing"


def test_terminate_pod() -> None:
    """The stored status counts, and not the status of the pod object, which may be outdated."""
    m, pod = Manager(), make_pod()
    pod.spec.init_containers = [v1.Container(name=f"init-{i}") for i in (1, 2, 3)]
    pod.spec.containers = [v1.Container(name=f"test-{i}") for i in (1, 2, 3)]
    held = random_status()
    held.phase = v1.POD_FAILED
    held.init_container_statuses = [
        cstatus("init-1"),
        cstatus("init-2", ended(0)),
        cstatus("init-3", ended(3)),
    ]
    held.container_statuses = [
        cstatus("test-1"),
        cstatus("test-2", ended(2)),
        cstatus("test-3", ended(0)),
    ]
    m.set_pod_status(pod, held)
    pod.status = random_status()
    pod.status.phase = v1.POD_RUNNING
    pod.status.container_statuses = [cstatus(f"test-{i}", running()) for i in (1, 2, 3)]
    m.terminate_pod(pod)
    got = m.expect(pod)
    assert [describe(s.state) for s in got.init_container_statuses] == [UNKNOWN_END, 0, 3]
    assert [describe(s.state) for s in got.container_statuses] == [UNKNOWN_END, 2, 0]
    assert (got.phase, got.message) == (held.phase, held.message)


def test_terminate_pod_waiting() -> None:
    m, pod = Manager(), make_pod()
    pod.spec.init_containers = [v1.Container(name=f"init-{i}") for i in (1, 2, 3)]
    pod.spec.containers = [v1.Container(name=f"test-{i}") for i in (1, 2, 3)]
    held = random_status()
    held.phase = v1.POD_FAILED
    held.init_container_statuses = [
        cstatus("init-1"),
        cstatus("init-2", ended(0)),
        cstatus("init-3", waiting()),
    ]
    held.container_statuses = [
        cstatus("test-1"),
        cstatus("test-2", ended(2)),
        cstatus("test-3", waiting()),
    ]
    m.set_pod_status(pod, held)
    pod.status.container_statuses = [cstatus("test-1", running())]
    m.terminate_pod(pod)
    got = m.expect(pod)
    assert [describe(s.state) for s in got.init_container_statuses] == [UNKNOWN_END, 0, "waiting"]
    assert [describe(s.state) for s in got.container_statuses] == [UNKNOWN_END, 2, UNKNOWN_END]


@pytest.mark.parametrize(
    ("phase", "init_statuses", "statuses", "expect_init", "expect"),
    [
        pytest.param(v1.POD_RUNNING, [], [cstatus("0", ended(2))], [], [2], id="a known end is kept"),
        pytest.param(
            v1.POD_RUNNING,
            [],
            [cstatus("0", waiting(), last=ended(2))],
            [],
            [UNKNOWN_END],
            id="ended before, now waiting",
        ),
        pytest.param(v1.POD_RUNNING, [], [cstatus("0", waiting())], [], [UNKNOWN_END], id="waiting"),
        pytest.param(
            v1.POD_PENDING,
            [waiting()],
            [cstatus("0", waiting())],
            [UNKNOWN_END],
            ["waiting"],
            id="not initialized: the first init container has failed",
        ),
        pytest.param(
            v1.POD_PENDING,
            [waiting(), waiting()],
            [cstatus("0", waiting())],
            [UNKNOWN_END, "waiting"],
            ["waiting"],
            id="not initialized: and only the first",
        ),
        pytest.param(
            v1.POD_PENDING,
            [waiting(), waiting(), ended(1), waiting()],
            [cstatus("0", waiting())],
            [UNKNOWN_END, UNKNOWN_END, 1, "waiting"],
            ["waiting"],
            id="not initialized: those before one that has run have run too",
        ),
        pytest.param(
            v1.POD_PENDING,
            [waiting(), waiting(), ended(1)],
            [cstatus("0", waiting())],
            [UNKNOWN_END, UNKNOWN_END, 1],
            ["waiting"],
            id="not initialized: the last has failed",
        ),
        pytest.param(
            v1.POD_RUNNING,
            [waiting(), waiting(), ended(0)],
            [cstatus("0", waiting())],
            [UNKNOWN_END, UNKNOWN_END, 0],
            [UNKNOWN_END],
            id="initialized: the last has succeeded",
        ),
        pytest.param(
            v1.POD_RUNNING,
            [waiting(), waiting(), (waiting(), ended(0))],
            [cstatus("0", waiting())],
            [UNKNOWN_END, UNKNOWN_END, UNKNOWN_END],
            [UNKNOWN_END],
            id="initialized: the last had succeeded before",
        ),
        pytest.param(
            v1.POD_RUNNING,
            [waiting()],
            [cstatus("0", running())],
            [UNKNOWN_END],
            [UNKNOWN_END],
            id="initialized: a container runs",
        ),
        pytest.param(
            v1.POD_RUNNING,
            [waiting()],
            [cstatus("0", ended(0))],
            [UNKNOWN_END],
            [0],
            id="initialized: a container has ended",
        ),
        pytest.param(
            v1.POD_RUNNING,
            [waiting()],
            [cstatus("0", last=ended(0))],
            [UNKNOWN_END],
            [UNKNOWN_END],
            id="initialized: a container had ended before",
        ),
    ],
)
def test_terminate_pod_default_unknown_status(
    phase: str,
    init_statuses: list[v1.ContainerState | tuple[v1.ContainerState, v1.ContainerState]],
    statuses: list[v1.ContainerStatus],
    expect_init: list[object],
    expect: list[object],
) -> None:
    m, pod = Manager(), make_pod()
    pod.spec.restart_policy = v1.RESTART_POLICY_NEVER
    pod.spec.containers = [v1.Container(name="0")]
    for i, state in enumerate(init_statuses):
        pod.spec.init_containers.append(v1.Container(name=f"init-{i}"))
        state, last = state if isinstance(state, tuple) else (state, None)
        pod.status.init_container_statuses.append(cstatus(f"init-{i}", state, last))
    pod.status.phase = phase
    pod.status.container_statuses = statuses
    pod = v1.deepcopy(pod)
    m.set_pod_status(pod, pod.status)
    m.terminate_pod(v1.deepcopy(pod))
    got = m.expect(pod)
    assert [describe(s.state) for s in got.init_container_statuses] == expect_init
    assert [describe(s.state) for s in got.container_statuses] == expect
    assert got.phase == v1.POD_FAILED


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (v1.POD_PENDING, v1.POD_FAILED),
        (v1.POD_RUNNING, v1.POD_FAILED),
        (v1.POD_SUCCEEDED, v1.POD_SUCCEEDED),
        (v1.POD_FAILED, v1.POD_FAILED),
        ("Unknown", v1.POD_FAILED),
        ("SomeUnknownPhase", v1.POD_FAILED),
    ],
)
def test_terminate_pod_ensures_pod_phase_is_terminal(phase: str, expected: str) -> None:
    m, pod = Manager(), make_pod()
    pod.status.phase = phase
    m.terminate_pod(pod)
    assert m.expect(pod).phase == expected

    m, (static, _) = Manager(), static_and_mirror_pod()
    static.status.phase = phase
    m.terminate_pod(static)
    assert m.expect(static).phase == phase, "static pods keep their phase"


def _policy_pod(policy: str) -> v1.Pod:
    pod = make_pod()
    pod.spec.restart_policy = policy
    pod.spec.init_containers = [
        v1.Container(name="init"),
        v1.Container(name="sidecar", restart_policy=v1.CONTAINER_RESTART_POLICY_ALWAYS),
    ]
    pod.spec.containers = [v1.Container(name="c")]
    return pod


@pytest.mark.parametrize(
    ("policy", "exit_code", "revived", "allowed"),
    [
        (v1.RESTART_POLICY_ALWAYS, 0, "c", True),
        (v1.RESTART_POLICY_ALWAYS, 1, "init", True),
        (v1.RESTART_POLICY_ON_FAILURE, 0, "c", False),
        (v1.RESTART_POLICY_ON_FAILURE, 1, "c", True),
        (v1.RESTART_POLICY_ON_FAILURE, 0, "init", False),
        (v1.RESTART_POLICY_ON_FAILURE, 1, "init", True),
        (v1.RESTART_POLICY_NEVER, 0, "c", False),
        (v1.RESTART_POLICY_NEVER, 1, "c", False),
        (v1.RESTART_POLICY_NEVER, 1, "init", False),
        (v1.RESTART_POLICY_NEVER, 1, "sidecar", True),
    ],
)
def test_check_container_state_transition(policy: str, exit_code: int, revived: str, allowed: bool) -> None:
    def pod_status(state: v1.ContainerState) -> v1.PodStatus:
        def of(name: str) -> v1.ContainerStatus:
            return cstatus(name, state if name == revived else waiting())

        return v1.PodStatus(init_container_statuses=[of("init"), of("sidecar")], container_statuses=[of("c")])

    pod = _policy_pod(policy)
    old, new = pod_status(ended(exit_code)), pod_status(running())
    fault = status_manager.check_container_state_transition(old, new, pod.spec)
    assert (fault is None) is allowed

    m = Manager()
    m.set_pod_status(pod, old)
    assert m.set_pod_status(pod, new) is allowed, "the status manager applies the check"


def test_check_container_state_transition_with_a_containers_own_policy() -> None:
    pod = _policy_pod(v1.RESTART_POLICY_NEVER)
    pod.spec.containers[0].restart_policy = v1.CONTAINER_RESTART_POLICY_ON_FAILURE
    for exit_code, allowed in ((1, True), (0, False)):
        old = v1.PodStatus(container_statuses=[cstatus("c", ended(exit_code))])
        new = v1.PodStatus(container_statuses=[cstatus("c", running())])
        fault = status_manager.check_container_state_transition(old, new, pod.spec)
        assert (fault is None) is allowed


def test_container_termination_metric() -> None:
    m, pod = Manager(), make_pod()

    def count(exit_code: int) -> float:
        labels = (metrics.CONTAINER, str(exit_code), "metric-test")
        return metricstesting.value(metrics.TERMINATED_CONTAINERS_TOTAL.labels(*labels))

    def stopped(exit_code: int) -> v1.ContainerState:
        terminated = v1.ContainerStateTerminated(exit_code=exit_code, reason="metric-test")
        return v1.ContainerState(terminated=terminated)

    before = count(0), count(1)
    pod.spec.restart_policy = v1.RESTART_POLICY_ALWAYS
    for first, second in (
        (running(), running()),
        (stopped(0), running()),
        (stopped(0), stopped(1)),
        (stopped(0), running()),
        (stopped(0), stopped(1)),
    ):
        pod_status = random_status()
        pod_status.container_statuses = [cstatus("a", first), cstatus("b", second)]
        m.set_pod_status(pod, pod_status)
    assert (count(0) - before[0], count(1) - before[1]) == (1, 2)


# ---- Sending to the API server ----


def test_start_without_a_client_does_nothing() -> None:
    m = status.Manager(
        None, kubepod.BasicManager(), FakePodDeletionSafetyProvider(), FakePodStartupLatencyStateHelper()
    )
    threads = set(threading.enumerate())
    m.start(CTX)
    assert set(threading.enumerate()) <= threads
    m.set_pod_status(make_pod(), random_status())
    assert m.get_pod_status(make_pod().metadata.uid) is not None


def test_start_sends_statuses_until_stopped() -> None:
    patched: golang.Channel[None] = golang.Channel(1)

    def tell(action: Action) -> tuple[bool, object]:
        patched.send(None)
        return False, None

    m = Manager(make_pod())
    m.client.prepend_reactor("patch", "pods/status", tell)
    m.client.add(make_pod())
    ctx, cancel = golang.with_cancel(CTX)
    m.start(ctx)
    [thread] = threads_named("status-manager")
    m.set_pod_status(make_pod(), random_status())
    assert patched.recv(30) == (None, True)
    cancel()
    thread.join(30)
    assert not thread.is_alive()


def test_sync_pod_ignores_not_found() -> None:
    m = Manager(make_pod())
    m.set_pod_status(make_pod(), random_status())
    assert m.actions() == ["get"]


def test_sync_pod() -> None:
    m = Manager(make_pod())
    m.client.add(make_pod())
    with metricstesting.moves(metrics.POD_STATUS_SYNC_DURATION):
        m.set_pod_status(make_pod(), random_status())
        assert m.actions() == ["get", "patch"]
    assert m.latency.updated == [make_pod().metadata.uid]


def test_sync_pod_checks_mismatched_uid() -> None:
    first, second = make_pod(), make_pod()
    first.metadata.uid, second.metadata.uid = types.UID("first"), types.UID("second")
    m = Manager(first, second)
    m.client.add(first)
    m.set_pod_status(second, random_status())
    assert m.actions() == ["get"]
    assert m.get_pod_status(types.UID("second")) is None
    assert m.latency.deleted == ["second"]


def test_sync_pod_goes_on_after_faults() -> None:
    pod = make_pod()
    m = Manager(pod)
    m.client.add(pod)
    away = [RuntimeError("injected")]
    m.client.prepend_reactor("get", "pods", lambda action: (True, away.pop()) if away else (False, None))
    m.set_pod_status(pod, random_status())
    assert m.actions() == ["get"]
    m.set_pod_status(pod, random_status())
    assert m.actions() == ["get", "patch"]


def test_status_that_changes_while_others_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_manager, "MAX_PARALLEL_SYNCS", 1)
    first, second = make_pod(), make_pod()
    second.metadata.uid, second.metadata.name = types.UID("second"), "second"
    m = Manager(first, second)
    m.client.add(first)
    m.client.add(second)

    def change_second(action: Action) -> tuple[bool, object]:
        if action.name == first.metadata.name:
            m.set_pod_status(second, v1.PodStatus(message="new"))
        return False, None

    m.client.prepend_reactor("get", "pods", change_second)
    m.set_pod_status(first, random_status())
    m.set_pod_status(second, v1.PodStatus(message="old"))
    assert m.actions() == ["get", "patch", "get", "patch"], "the old status is not sent"
    assert m.client.core_v1.pods("new").get(CTX, "second").status.message == "new"


def test_pod_that_the_api_server_does_not_answer_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch ends, so that other pods' later statuses are sent, and the next batch retries this pod."""
    monkeypatch.setattr(status_manager, "SYNC_TIMEOUT", 0.01)
    hangs, other = make_pod(), make_pod()
    other.metadata.uid, other.metadata.name = types.UID("other"), "other"
    m = Manager(hangs, other)
    m.client.add(hangs)
    m.client.add(other)
    stuck, ended = [True], []

    def hang(ctx: golang.Context, client: object, namespace: str, name: str) -> v1.Pod:
        if name == hangs.metadata.name and stuck:
            ended.append(ctx.wait(30))
            raise ctx.err() or TimeoutError
        return m.client.core_v1.pods(namespace).get(CTX, name)

    monkeypatch.setattr("kubelet.status.status_manager.statusutil.get_pod", hang)
    m.set_pod_status(hangs, v1.PodStatus(message="first"))
    m.consume_updates()
    m.set_pod_status(other, v1.PodStatus(message="second"))
    m.consume_updates()
    assert ended and all(ended), "the time limit must end the call"
    assert m.client.core_v1.pods("new").get(CTX, "other").status.message == "second"
    stuck.clear()
    m.sync_batch(CTX, all=True)
    assert m.client.core_v1.pods("new").get(CTX, hangs.metadata.name).status.message == "first"


def test_stale_updates() -> None:
    pod = make_pod()
    m = Manager(pod)
    m.client.add(pod)
    for message in ("initial status", "first version bump", "second version bump"):
        m.set_pod_status(pod, v1.PodStatus(message=message))
    m.sync_batch(CTX, all=True)
    assert m.consume_updates() == 0
    assert m.actions() == ["get", "patch"], "only the latest is sent"
    assert m.actions() == []

    m.set_pod_status(pod, v1.PodStatus(message="second version bump"))
    assert m.consume_updates() == 0
    m.api_status_versions[kubetypes.MirrorPodUID(pod.metadata.uid)] -= 1
    m.sync_batch(CTX, all=True)
    assert m.actions() == ["get"], "the server has it already"


def test_static_pod() -> None:
    static, mirror = static_and_mirror_pod()
    m = Manager(static)
    m.client.add(mirror)
    m.set_pod_status(static, random_status())
    held = m.expect(static)
    m.sync_batch(CTX, all=True)
    assert m.actions() == [], "there is no mirror pod to update"

    m.pods.add_pod(mirror)
    assert m.get_pod_status(mirror.metadata.uid) == held
    assert m.sync_batch(CTX, all=True) == 1
    assert m.actions() == ["get", "patch"]
    mirror.status = m.expect(static)
    m.sync_batch(CTX, all=True)
    assert m.actions() == []

    # Another mirror pod has replaced this one, and the API server does not know it yet.
    m.pods.remove_pod(mirror)
    mirror = v1.deepcopy(mirror)
    mirror.metadata.uid = types.UID("new-mirror-pod")
    mirror.status = v1.PodStatus()
    m.pods.add_pod(mirror)
    assert m.sync_batch(CTX, all=True) == 1
    assert m.actions() == ["get"]


@pytest.mark.parametrize("is_set_first", [True, False], ids=["set first", "told first"])
def test_static_pod_goes_on_with_the_times_of_its_mirror(is_set_first: bool) -> None:
    """The times are kept whether the mirror pod arrives after the pod's first status or before it."""
    static, mirror = static_and_mirror_pod()
    old, new = CUT - timedelta(hours=1), CUT - timedelta(minutes=1)
    ready = v1.PodCondition(type=v1.POD_READY, status=TRUE, last_transition_time=old)
    initialized = v1.PodCondition(type=v1.POD_INITIALIZED, status=FALSE, last_transition_time=old)
    mirror.status = v1.PodStatus(start_time=old, conditions=[ready, initialized])
    m = Manager(static)
    found = ready_status()
    found.conditions.append(v1.PodCondition(type=v1.POD_INITIALIZED, status=TRUE, last_transition_time=new))
    if is_set_first:
        m.set_pod_status(static, found)
    m.inherit(static.metadata.uid, mirror.status)
    if not is_set_first:
        m.set_pod_status(static, found)
    status = m.expect(static)
    times = {condition.type: condition.last_transition_time or old for condition in status.conditions}
    assert (status.start_time, times[v1.POD_READY]) == (old, old)
    assert times[v1.POD_INITIALIZED] > old, "the condition has changed since then"


def test_static_pod_inherits_nothing_from_a_mirror_without_status_or_once_it_is_forgotten() -> None:
    static, _ = static_and_mirror_pod()
    m = Manager(static)
    m.set_pod_status(static, random_status())
    started = m.expect(static).start_time
    m.inherit(static.metadata.uid, v1.PodStatus())
    assert m.expect(static).start_time == started
    m.inherit(static.metadata.uid, v1.PodStatus(start_time=CUT))
    m.remove_orphaned_statuses([])
    m.set_pod_status(static, random_status())
    assert m.expect(static).start_time != CUT


def test_a_request_that_is_never_answered_holds_up_no_status_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen request does not delay other statuses, even behind a proxy that still acknowledges packets."""
    monkeypatch.setattr("pkg.client_go.rest.with_retry._AFTER_CUT", 0)
    frozen, other = make_pod(), make_pod()
    other.metadata.uid, other.metadata.name = types.UID("87654321"), "other"
    patched, end = threading.Event(), threading.Event()

    def answer(request: resttesting.Request) -> None:
        if "/pods/foo" not in request.uri:
            request.answer(body=codec.encode_json(other))
            if request.verb == "PATCH":
                patched.set()
        elif patched.is_set():
            end.wait(30)
        else:
            # The limit may become short only after the other pod's requests have been answered.
            patched.wait(30)
            monkeypatch.setattr("pkg.client_go.rest.client.ATTEMPT_TIMEOUT", 0.05)
            request.handler.close_connection = True

    with resttesting.serve(answer) as server:
        m = Manager(frozen, other)
        client = kubernetes.new_for_config(rest.Config(host=server.url, qps=-1))
        m.kube_client = client
        for pod in (frozen, other):
            m.set_pod_status(pod, random_status())
        m.sync_batch(CTX, all=False)
        client.close()
        end.set()
    asked = [(request.verb, request.uri.rpartition("/pods/")[2]) for request in server.requests]
    assert ("PATCH", "other/status") in asked
    assert ("PATCH", "foo/status") not in asked and ("GET", "foo") in asked


def test_sync_batch_cleans_up_versions() -> None:
    static, mirror = static_and_mirror_pod()
    static.metadata.uid, static.metadata.name, mirror.metadata.name = types.UID("static"), "static", "static"
    versions = {kubetypes.MirrorPodUID(p.metadata.uid): 100 for p in (make_pod(), mirror)}
    m = Manager(make_pod())
    m.api_status_versions = dict(versions)
    m.sync_batch(CTX, all=True)
    assert m.api_status_versions == {}

    m.set_pod_status(make_pod(), random_status())
    m.pods.add_pod(static)
    m.pods.add_pod(mirror)
    with_status = make_pod()
    with_status.status = m.expect(with_status)
    m.pods.update_pod(with_status)
    m.api_status_versions = dict(versions)
    m.sync_batch(CTX, all=True)
    assert m.api_status_versions == versions


def test_fault_of_one_pod_does_not_keep_the_statuses_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [make_pod(), make_pod(), make_pod()]
    for i, pod in enumerate(pods):
        pod.metadata.name = pod.metadata.uid = types.UID(f"p{i}")
    m = Manager(*pods)
    for pod in pods:
        m.set_pod_status(pod, random_status())
    sent: list[str] = []

    def sync_pod(ctx: golang.Context, uid: str, versioned: status_manager.VersionedPodStatus) -> None:
        if uid == "p1":
            raise KeyError("a fault of ours")
        sent.append(uid)

    monkeypatch.setattr(m, "sync_pod", sync_pod)
    assert m.sync_batch(CTX, all=False) == 3
    assert sorted(sent) == ["p0", "p2"]


def test_reconcile_pod_status() -> None:
    pod = make_pod()
    m, uid = Manager(pod), make_pod().metadata.uid
    m.client.add(pod)
    m.set_pod_status(pod, random_status())
    m.sync_batch(CTX, all=True)
    m.actions()
    held = m.expect(pod)

    pod.status = v1.deepcopy(held)
    assert not m.needs_reconcile(uid, held)
    assert pod.status.start_time is not None
    pod.status.start_time = pod.status.start_time.replace(microsecond=5)
    assert not m.needs_reconcile(uid, held), "the server keeps seconds only"
    m.sync_batch(CTX, all=True)
    assert m.actions() == []

    changed = random_status()
    assert m.needs_reconcile(uid, changed)
    pod.status = changed
    m.client.add(pod)
    m.sync_batch(CTX, all=True)
    assert m.actions() == ["get", "patch"], "the kubelet's status takes precedence"
    assert not m.needs_reconcile(types.UID("unknown"), held)


def test_status_with_what_is_no_text_is_sent_once() -> None:
    """A status with invalid text is sent once; a message may quote a file name that is not UTF-8."""
    pod = make_pod()
    m = Manager(pod)
    m.client.add(pod)
    name = b"\xff".decode(errors="surrogateescape")
    ended = v1.ContainerState(terminated=v1.ContainerStateTerminated(exit_code=1, message=f"no file {name}"))
    status = v1.PodStatus(message=f"no {name}", container_statuses=[v1.ContainerStatus(name="c", state=ended)])
    for _ in range(2):
        m.set_pod_status(pod, v1.deepcopy(status))
    m.sync_batch(CTX, all=True)
    assert m.actions() == ["get", "patch"]
    pod.status = m.client.core_v1.pods(pod.metadata.namespace).get(CTX, pod.metadata.name).status
    assert pod.status.message == "no \ufffd"
    terminated = pod.status.container_statuses[0].state.terminated
    assert terminated is not None and terminated.message == "no file \ufffd"
    m.actions()
    m.sync_batch(CTX, all=True)
    assert m.actions() == []


def test_status_of_many_containers_that_wait_with_long_messages() -> None:
    """The status is cut below the API server's request limit of 3 MiB; otherwise the pod could not be deleted."""

    def refuse_large(action: Action) -> tuple[bool, object]:
        return len(action.patch) > 3 << 20, apierrors.new_bad_request("request entity too large")

    pod = make_pod()
    names = [f"container{i}" for i in range(200)]
    pod.spec = v1.PodSpec(containers=[v1.Container(name=name) for name in names])
    waiting = v1.ContainerState(waiting=v1.ContainerStateWaiting(reason="ErrImagePull", message="\x01" * (10 << 10)))
    m = Manager(pod)
    m.client.add(pod)
    m.client.prepend_reactor("patch", "pods/status", refuse_large)
    statuses = [v1.ContainerStatus(name=name, state=waiting) for name in names]
    m.set_pod_status(pod, v1.PodStatus(phase=v1.POD_FAILED, container_statuses=statuses))
    assert m.actions() == ["get", "patch"]
    sent = m.client.core_v1.pods("new").get(CTX, "foo")
    assert sent.status.phase == v1.POD_FAILED
    m.pods.add_pod(sent)
    assert not m.needs_reconcile(pod.metadata.uid, m.expect(pod))


def test_delete_pod_before_finished() -> None:
    pod = make_pod()
    pod.metadata.deletion_timestamp = NOW
    m = Manager(pod)
    m.client.add(pod)
    m.set_pod_status(pod, v1.PodStatus(phase=v1.POD_FAILED))
    assert m.actions() == ["get", "patch"]


def test_delete_pod_finished() -> None:
    pod = make_pod()
    pod.metadata.deletion_timestamp = NOW
    m = Manager(pod)
    m.client.add(pod)
    m.terminate_pod(pod)
    assert m.actions() == ["get", "patch", "delete"]
    assert m.get_pod_status(pod.metadata.uid) is None
    assert m.latency.deleted == [pod.metadata.uid]


def test_delete_pod_that_cannot_be_decoded() -> None:
    """The pod is deleted even if neither the response to GET nor the response to PATCH can be decoded completely."""
    pod = make_pod()
    m = Manager(pod)
    m.client.add(pod)
    partial = make_pod()
    partial.metadata.deletion_timestamp = NOW

    def refuse(action: Action) -> NoReturn:
        if action.verb == "patch":
            partial.status.phase = v1.POD_FAILED
        raise watch.UndecodableError("spec.containers", v1.deepcopy(partial))

    m.client.prepend_reactor("get", "pods", refuse)
    m.client.prepend_reactor("patch", "pods/status", refuse)
    m.terminate_pod(pod)
    assert m.actions() == ["get", "patch", "delete"]


def test_delete_pod_whose_init_containers_cannot_be_decoded() -> None:
    pod = make_pod()
    pod.metadata.deletion_timestamp = NOW
    pod.spec.restart_policy = v1.RESTART_POLICY_NEVER
    pod.spec.init_containers = [v1.Container(name="init")]
    pod.status.init_container_statuses = [cstatus("init", ended(0))]
    partial = v1.PartialPod.of(v1.deepcopy(pod))
    partial.spec.init_containers = []
    m = Manager(partial)
    m.client.add(pod)
    m.terminate_pod(partial)
    assert m.actions() == ["get", "patch", "delete"]


def test_do_not_delete_pods_that_are_not_terminal_for_the_server() -> None:
    pod = make_pod()
    pod.metadata.deletion_timestamp = NOW
    m = Manager(pod)
    m.client.add(pod)
    m.safety.has_running = True
    m.terminate_pod(pod)
    assert m.actions() == ["get", "patch"]
    m.safety.has_running = False
    pod.status.phase = v1.POD_FAILED
    m.sync_batch(CTX, all=True)
    assert m.actions() == ["get", "patch", "delete"]


def test_do_not_delete_mirror_pods() -> None:
    static, mirror = static_and_mirror_pod()
    mirror.metadata.deletion_timestamp = NOW
    m = Manager(static, mirror)
    m.client.add(mirror)
    m.set_pod_status(static, random_status())
    assert m.actions() == ["get", "patch"]


def test_the_time_to_send_is_counted_from_the_first_status_not_sent() -> None:
    pod = make_pod()
    m = Manager(pod)
    m.client.add(pod)
    uid = pod.metadata.uid
    m.set_pod_status(pod, random_status())
    first = m._pod_statuses[uid].at
    assert first is not None
    m.set_pod_status(pod, random_status())
    assert m._pod_statuses[uid].at == first
    m.consume_updates()
    assert m._pod_statuses[uid].at is None
    m.set_pod_status(pod, random_status())
    assert m._pod_statuses[uid].at is not None


# ---- Merging with the fields of other writers ----


def merged(
    conditions: dict[str, str | tuple[str, str]],
    phase: str = v1.POD_RUNNING,
    reason: str = "",
    message: str = "",
) -> v1.PodStatus:
    got = v1.PodStatus(phase=phase, reason=reason, message=message or "Message")
    for type, value in conditions.items():
        value, why = value if isinstance(value, tuple) else (value, "")
        got.conditions.append(v1.PodCondition(type=type, status=value, reason=why))
    return got


Change = Callable[[v1.PodStatus], object]
FEATURE = "example.com/feature"
READY = {v1.POD_READY: TRUE, v1.POD_SCHEDULED: TRUE}
UNREADY: dict[str, str | tuple[str, str]] = {
    v1.POD_READY: (FALSE, status.POD_FAILED),
    v1.CONTAINERS_READY: (FALSE, status.POD_FAILED),
    v1.POD_SCHEDULED: TRUE,
}


def unchanged(s: v1.PodStatus) -> None: ...


def add(type: str, value: str = TRUE, reason: str = "") -> Change:
    return lambda s: s.conditions.append(v1.PodCondition(type=type, status=value, reason=reason))


def disrupt(reason: str = "TerminationByKubelet") -> Change:
    return add(v1.DISRUPTION_TARGET, TRUE, reason)


def become(phase: str, reason: str = "", message: str = "Message") -> Change:
    def change(s: v1.PodStatus) -> None:
        s.phase, s.reason, s.message = phase, reason, message

    return change


def both(first: Change, second: Change) -> Change:
    return lambda s: (first(s), second(s))


def unready(s: v1.PodStatus) -> None:
    s.conditions[0].status = FALSE


DISRUPTED = {v1.DISRUPTION_TARGET: (TRUE, "TerminationByKubelet")}
EVICTED = {v1.DISRUPTION_TARGET: (TRUE, "EvictedByEvictionAPI")}
FAIL_DISRUPTED = both(become(v1.POD_FAILED), disrupt())


@pytest.mark.parametrize(
    ("has_running", "old", "new", "expected"),
    [
        pytest.param(False, unchanged, unchanged, merged({**READY}), id="no change"),
        pytest.param(
            False,
            unchanged,
            FAIL_DISRUPTED,
            merged({**DISRUPTED, **UNREADY}, v1.POD_FAILED),
            id="DisruptionTarget comes with the failure",
        ),
        pytest.param(True, unchanged, FAIL_DISRUPTED, merged({**READY}), id="but not while containers may run"),
        pytest.param(False, disrupt(), unchanged, merged({**READY, **DISRUPTED}), id="DisruptionTarget is kept"),
        pytest.param(
            False,
            disrupt("EvictedByEvictionAPI"),
            FAIL_DISRUPTED,
            merged({**UNREADY, **DISRUPTED}, v1.POD_FAILED),
            id="DisruptionTarget is replaced at the failure",
        ),
        pytest.param(
            False,
            disrupt("EvictedByEvictionAPI"),
            disrupt(),
            merged({**EVICTED, **READY}),
            id="but not while the pod runs",
        ),
        pytest.param(
            True,
            disrupt("EvictedByEvictionAPI"),
            FAIL_DISRUPTED,
            merged({**EVICTED, **READY}),
            id="nor while containers may run",
        ),
        pytest.param(False, unchanged, unready, merged({**READY, v1.POD_READY: FALSE}), id="readiness changes"),
        pytest.param(False, add(FEATURE), unchanged, merged({**READY, FEATURE: TRUE}), id="another's condition"),
        pytest.param(
            False,
            add(FEATURE),
            unready,
            merged({**READY, v1.POD_READY: FALSE, FEATURE: TRUE}),
            id="another's condition and readiness changes",
        ),
        pytest.param(
            False,
            add(FEATURE),
            add(FEATURE, FALSE),
            merged({**READY, FEATURE: TRUE}),
            id="another's condition is not ours to change",
        ),
        pytest.param(
            False,
            become(v1.POD_RUNNING, "Unknown"),
            become(v1.POD_FAILED, "Evicted", "Was Evicted"),
            merged(UNREADY, v1.POD_FAILED, "Evicted", "Was Evicted"),
            id="failed, and nothing runs",
        ),
        pytest.param(
            True,
            become(v1.POD_RUNNING, "Unknown"),
            become(v1.POD_FAILED, "Evicted", "Was Evicted"),
            merged({**READY}, v1.POD_RUNNING, "Unknown"),
            id="failed, but something may run",
        ),
        pytest.param(
            True,
            become(v1.POD_FAILED, "GivenUp"),
            unchanged,
            merged(UNREADY, v1.POD_FAILED, "GivenUp"),
            id="another has called it failed",
        ),
        pytest.param(
            False,
            become(v1.POD_FAILED, "GivenUp"),
            become(v1.POD_SUCCEEDED),
            merged(UNREADY, v1.POD_FAILED, "GivenUp"),
            id="what has failed does not succeed",
        ),
    ],
)
def test_merge_pod_status(has_running: bool, old: Change, new: Change, expected: v1.PodStatus) -> None:
    old_status, new_status = merged({**READY}), merged({**READY})
    old(old_status)
    new(new_status)
    given = v1.deepcopy(old_status), v1.deepcopy(new_status)
    got = status_manager.merge_pod_status(v1.Pod(status=old_status), old_status, new_status, has_running)
    assert (old_status, new_status) == given, "neither argument is modified"
    for condition in got.conditions:
        condition.last_transition_time = None
    for s in (got, expected):
        s.conditions.sort(key=lambda c: c.type)
    assert got == expected


def test_merge_pod_status_lets_static_pods_run_again() -> None:
    mirror = v1.Pod(metadata=metav1.ObjectMeta(annotations={kubetypes.CONFIG_MIRROR_ANNOTATION_KEY: "hash"}))
    old, new = v1.PodStatus(phase=v1.POD_FAILED), v1.PodStatus(phase=v1.POD_RUNNING)

    assert status_manager.merge_pod_status(mirror, old, new, False).phase == v1.POD_RUNNING


@pytest.mark.parametrize(
    ("gates", "gate_status", "ready", "expected"),
    [
        ([], None, TRUE, False),
        (["gate"], TRUE, TRUE, False),
        (["gate"], FALSE, TRUE, True),
        (["gate"], TRUE, FALSE, True),
        (["gate"], TRUE, None, False),
    ],
)
def test_need_to_reconcile_pod_readiness(
    gates: list[str], gate_status: str | None, ready: str | None, expected: bool
) -> None:
    pod = make_pod()
    pod.spec.readiness_gates = [v1.PodReadinessGate(condition_type=gate) for gate in gates]
    pod.status.container_statuses = [v1.ContainerStatus(name="c", ready=True)]
    pod.spec.containers = [v1.Container(name="c")]
    if gate_status is not None:
        add("gate", gate_status)(pod.status)
    if ready is not None:
        add(v1.POD_READY, ready)(pod.status)
    assert status.need_to_reconcile_pod_readiness(pod) is expected


@failures
@pytest.mark.parametrize("all", [False, True])
def test_status_that_cannot_be_looked_at_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, all: bool, err: Exception
) -> None:
    pods = []
    for name in ("a", "bad", "z"):
        pod = make_pod()
        pod.metadata.name, pod.metadata.uid = name, types.UID(f"uid-{name}")
        pods.append(pod)
    manager = Manager(*pods)
    for pod in pods:
        manager.set_pod_status(pod, random_status())
    monkeypatch.setattr(manager, "_should_sync", failing_once(manager._should_sync, err, "uid-bad"))
    assert manager.sync_batch(CTX, all=all) == 2
    assert manager.sync_batch(CTX, all=all) == 3
