"""Test the merging of pod sources."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from kubelet import config
from kubelet import types as kubetypes
from kubelet.config import config as config_module
from kubelet.config import mux as muxconfig
from kubelet.config.testing import FakePodStartupSLIObserver
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import failing_once, failures, raising
from pkg.client_go.tools.record import testing as recordtesting

TEST_SOURCE = "test"
_DEADLINE = 30.0


def valid_pod(name: str, namespace: str, **spec: object) -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(uid=types.UID(name + namespace), name=name, namespace=namespace),
        spec=v1.PodSpec(
            restart_policy="Always",
            containers=[v1.Container(name="ctr", image="image")],
            **spec,  # type: ignore[arg-type]
        ),
    )


@dataclass
class Harness:
    """Run a PodConfig with one source, and check what it sends."""

    ctx: golang.Context
    pod_config: config.PodConfig
    channel: golang.Channel[kubetypes.PodUpdate]
    recorder: recordtesting.FakeRecorder
    observer: FakePodStartupSLIObserver

    def send(self, *pods: v1.Pod, op: kubetypes.PodOperation = kubetypes.SET) -> None:
        self.channel.send(kubetypes.PodUpdate(list(pods), op, TEST_SOURCE), self.ctx)

    def expect(self, *expected: tuple[kubetypes.PodOperation, list[v1.Pod]]) -> None:
        """Receive these updates, and check that no others follow once the source is idle."""
        for op, pods in expected:
            update, ok = self.pod_config.updates().recv(timeout=_DEADLINE)
            assert ok and update is not None
            assert (update.op, update.source) == (op, TEST_SOURCE)
            got = sorted(update.pods, key=lambda p: p.metadata.name)
            assert [p.metadata.name for p in got] == [p.metadata.name for p in pods]
            for want, have in zip(pods, got, strict=True):
                assert have.spec == want.spec and have.status == want.status
                assert have.metadata.labels == want.metadata.labels
        self.expect_nothing()

    def expect_nothing(self) -> None:
        # An invalid operation changes nothing. Once PodConfig has received it, all earlier updates have been merged.
        self.send(op=99)  # type: ignore[arg-type]
        self.send(op=99)  # type: ignore[arg-type]
        _, _, ready = self.pod_config.updates().try_recv()
        assert not ready


NewHarness = Callable[..., Harness]


@pytest.fixture
def new_tester() -> Iterator[NewHarness]:
    ctx, cancel = golang.with_cancel(golang.background())

    def new(mode: config.PodConfigNotificationMode = config.POD_CONFIG_NOTIFICATION_INCREMENTAL) -> Harness:
        recorder = recordtesting.FakeRecorder(100)
        observer = FakePodStartupSLIObserver()
        pod_config = config.PodConfig(mode, recorder, observer)
        return Harness(ctx, pod_config, pod_config.channel(ctx, TEST_SOURCE), recorder, observer)

    yield new
    cancel()


@pytest.fixture
def tester(new_tester: NewHarness) -> Harness:
    return new_tester()


@pytest.mark.parametrize("namespace", ["new", "", "default"])
def test_new_pod_added(tester: Harness, namespace: str) -> None:
    tester.send(valid_pod("foo", namespace))
    tester.expect((kubetypes.ADD, [valid_pod("foo", namespace)]))


def test_new_pod_added_has_local_annotations(tester: Harness) -> None:
    tester.send(valid_pod("foo", "new"))
    update, _ = tester.pod_config.updates().recv(timeout=_DEADLINE)
    assert update is not None
    annotations = update.pods[0].metadata.annotations
    assert annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] == TEST_SOURCE
    assert annotations[kubetypes.CONFIG_FIRST_SEEN_ANNOTATION_KEY]
    assert tester.observer.observed == []  # A static pod is not observed.


def test_pod_that_cannot_be_taken_in_leaves_the_others(
    tester: Harness, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    check = config_module._check_and_update_pod

    def failing(existing: v1.Pod, ref: v1.Pod) -> object:
        if ref.metadata.name == "bad":
            raise RecursionError("surprise")
        return check(existing, ref)

    monkeypatch.setattr(config_module, "_check_and_update_pod", failing)
    tester.send(valid_pod("bad", "new"), valid_pod("good", "new"))
    tester.expect((kubetypes.ADD, [valid_pod("bad", "new"), valid_pod("good", "new")]))
    updated = valid_pod("good", "new")
    updated.spec.priority = 1
    changed = valid_pod("bad", "new")
    changed.spec.priority = 1
    tester.send(changed, updated)
    tester.expect((kubetypes.UPDATE, [updated]))
    monkeypatch.undo()
    tester.send(valid_pod("good", "new"))
    tester.expect((kubetypes.REMOVE, [valid_pod("bad", "new")]), (kubetypes.UPDATE, [valid_pod("good", "new")]))
    klog.flush()
    assert "Unable to merge a pod" in capfd.readouterr().err


@pytest.mark.parametrize("deleted", [False, True])
def test_pod_that_can_be_read_at_last_is_an_update(tester: Harness, deleted: bool) -> None:
    pod = valid_pod("foo", "new")
    tester.send(v1.PartialPod.of(v1.deepcopy(pod)))
    tester.expect((kubetypes.ADD, [pod]))
    if deleted:
        pod.metadata.deletion_timestamp = datetime.datetime.now(datetime.UTC)
    tester.send(v1.deepcopy(pod))
    tester.expect((kubetypes.DELETE if deleted else kubetypes.UPDATE, [pod]))
    (merged,) = tester.pod_config._pods.merged_state()
    assert type(merged) is v1.Pod
    assert merged.metadata.annotations[kubetypes.CONFIG_FIRST_SEEN_ANNOTATION_KEY]


def test_change_that_could_not_be_copied_is_told_later(tester: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    deepcopy = v1.deepcopy

    def failing(pod: v1.Pod) -> v1.Pod:
        if pod.metadata.name == "bad":
            raise MemoryError
        return deepcopy(pod)

    def send(*pods: v1.Pod, told: kubetypes.PodOperation) -> None:
        """Send the same objects twice: after the failure, the pod that was not sent is still new to the reader."""
        with monkeypatch.context() as patch:
            patch.setattr(v1, "deepcopy", failing)
            tester.send(*pods)
            tester.expect((told, [pods[1]]))
        tester.send(*pods)
        tester.expect((told, [pods[0]]))

    send(valid_pod("bad", "new"), valid_pod("good", "new"), told=kubetypes.ADD)
    bad, good = valid_pod("bad", "new"), valid_pod("good", "new")
    bad.spec.priority = good.spec.priority = 1
    send(bad, good, told=kubetypes.UPDATE)


def test_pod_for_which_there_was_no_memory_is_missing(tester: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod without memory to merge it is missing from the state, so the state must not count as complete.

    The pod may have been running since before a restart. A reader that takes the other pods for the full state would
    stop it.
    """
    pods = [valid_pod("bad", "new"), valid_pod("good", "new")]

    def told() -> tuple[list[str], bool]:
        update, _ = tester.pod_config.updates().recv(timeout=_DEADLINE)
        assert update is not None
        return [pod.metadata.name for pod in update.pods], update.complete

    with monkeypatch.context() as patch:
        patch.setattr(v1, "deepcopy", failing_once(v1.deepcopy, MemoryError()))
        tester.send(*pods)
        assert told() == (["good"], False)
        assert not tester.pod_config.seen_all_sources({TEST_SOURCE})
    tester.send(*pods)
    assert told() == (["bad"], True)
    assert tester.pod_config.seen_all_sources({TEST_SOURCE})


def test_pods_are_told_completely_with_the_last_update(tester: Harness) -> None:
    """The last update alone is complete when a source sends an ADD and then its full state."""
    tester.send(valid_pod("old", "new"), op=kubetypes.ADD)
    tester.send(valid_pod("new", "new"))
    updates = [tester.pod_config.updates().recv(timeout=_DEADLINE)[0] for _ in range(3)]
    assert [(update.op, update.complete) for update in updates if update is not None] == [
        (kubetypes.ADD, False),
        (kubetypes.REMOVE, False),
        (kubetypes.ADD, True),
    ]


@pytest.mark.parametrize("fails", ["_record_first_seen_time", "_incremental"])
@failures
def test_what_fails_once_is_told_though_the_source_sends_nothing_more(
    tester: Harness, monkeypatch: pytest.MonkeyPatch, err: Exception, fails: str
) -> None:
    monkeypatch.setattr(muxconfig, "_RETRY_PERIOD", 0.01)
    monkeypatch.setattr(config_module, fails, failing_once(getattr(config_module, fails), err))
    tester.send(valid_pod("foo", "new"))
    while True:
        update, ok = tester.pod_config.updates().recv(timeout=_DEADLINE)
        assert ok and update is not None
        if update.pods:
            break
    assert [pod.metadata.name for pod in update.pods] == ["foo"]
    assert tester.pod_config.seen_all_sources({TEST_SOURCE})


@pytest.mark.parametrize("op", [kubetypes.ADD, kubetypes.UPDATE, kubetypes.REMOVE, kubetypes.SET])
@pytest.mark.parametrize("empty", [False, True])
def test_update_that_could_not_be_told_is_told_later(
    tester: Harness, monkeypatch: pytest.MonkeyPatch, op: kubetypes.PodOperation, empty: bool
) -> None:
    """The source sends the same object again, and now there is enough memory for it."""
    if op is not kubetypes.SET:
        tester.send(valid_pod("old", "new"))
        tester.expect((kubetypes.ADD, [valid_pod("old", "new")]))
    changed = valid_pod("old", "new")
    changed.spec.priority = 1
    pods = [] if empty else [changed]
    told: dict[kubetypes.PodOperation, tuple[kubetypes.PodOperation, list[v1.Pod]]] = {
        kubetypes.ADD: (kubetypes.UPDATE, pods),
        kubetypes.UPDATE: (kubetypes.UPDATE, pods),
        kubetypes.REMOVE: (kubetypes.REMOVE, [valid_pod("old", "new")]),
        kubetypes.SET: (kubetypes.ADD, pods),
    }
    with monkeypatch.context() as patch:
        patch.setattr(config_module, "_incremental", raising(MemoryError()))
        tester.send(*pods, op=op)
        tester.expect_nothing()
    assert not tester.pod_config.seen_all_sources({TEST_SOURCE}) or op is not kubetypes.SET
    tester.send(*pods, op=op)
    tester.expect(*([] if empty and op is not kubetypes.SET else [told[op]]))


@pytest.mark.parametrize(
    "mode", [config.POD_CONFIG_NOTIFICATION_SNAPSHOT, config.POD_CONFIG_NOTIFICATION_SNAPSHOT_AND_UPDATES]
)
def test_snapshot_for_which_there_is_no_memory_is_told_later(
    new_tester: NewHarness, monkeypatch: pytest.MonkeyPatch, mode: config.PodConfigNotificationMode
) -> None:
    tester, pod = new_tester(mode), valid_pod("foo", "new")
    copies = 0
    deepcopy = v1.deepcopy

    def failing(pod: v1.Pod) -> v1.Pod:
        nonlocal copies
        copies += 1
        if copies == 2:  # The first copy is that of the change.
            raise MemoryError
        return deepcopy(pod)

    monkeypatch.setattr(v1, "deepcopy", failing)
    tester.send(pod)
    tester.expect_nothing()
    tester.send(pod)
    tester.expect((kubetypes.SET, [pod]))


def test_new_pod_added_different_namespaces(tester: Harness) -> None:
    tester.send(valid_pod("foo", "default"))
    tester.expect((kubetypes.ADD, [valid_pod("foo", "default")]))
    tester.send(valid_pod("foo", "default"), valid_pod("foo", "new"))
    tester.expect((kubetypes.ADD, [valid_pod("foo", "new")]))


def test_pods_given_out_are_copies(tester: Harness) -> None:
    pod = valid_pod("foo", "new")
    tester.send(pod)
    update, _ = tester.pod_config.updates().recv(timeout=_DEADLINE)
    assert update is not None
    update.pods[0].spec.containers[0].image = "other"
    tester.send(valid_pod("foo", "new"))
    tester.expect_nothing()


@pytest.mark.parametrize(
    ("name", "uid", "message"),
    [("foo", "twin", 'duplicate pod name "foo", ignoring'), ("twin", "foonew", 'duplicate pod uid "foonew", ignoring')],
)
def test_duplicate_filtered_with_event(tester: Harness, name: str, uid: str, message: str) -> None:
    twin = valid_pod(name, "new", priority=1)
    twin.metadata.uid = types.UID(uid)
    tester.send(valid_pod("foo", "new"), twin)
    tester.expect((kubetypes.ADD, [valid_pod("foo", "new")]))
    event, ok = tester.recorder.events.recv(timeout=_DEADLINE)
    assert ok and event is not None
    assert "FailedValidation" in event and message in event
    tester.send(valid_pod("foo", "new"), twin)
    tester.expect_nothing()


def test_new_pod_added_updated_removed(tester: Harness) -> None:
    tester.send(valid_pod("foo", "new"))
    tester.expect((kubetypes.ADD, [valid_pod("foo", "new")]))
    changed = valid_pod("foo", "new", hostname="other")
    tester.send(changed)
    tester.expect((kubetypes.UPDATE, [valid_pod("foo", "new", hostname="other")]))
    tester.send()
    tester.expect((kubetypes.REMOVE, [valid_pod("foo", "new", hostname="other")]))


def test_update_keeps_first_seen(tester: Harness) -> None:
    tester.send(valid_pod("foo", "new"))
    added, _ = tester.pod_config.updates().recv(timeout=_DEADLINE)
    tester.send(valid_pod("foo", "new", hostname="other"))
    updated, _ = tester.pod_config.updates().recv(timeout=_DEADLINE)
    assert added is not None and updated is not None
    key = kubetypes.CONFIG_FIRST_SEEN_ANNOTATION_KEY
    assert updated.pods[0].metadata.annotations[key] == added.pods[0].metadata.annotations[key]


def test_new_pod_added_delete(tester: Harness) -> None:
    tester.send(valid_pod("foo", "new"))
    tester.expect((kubetypes.ADD, [valid_pod("foo", "new")]))
    deleted = valid_pod("foo", "new")
    deleted.metadata.deletion_timestamp = datetime.datetime.now(datetime.UTC)
    tester.send(deleted)
    tester.expect((kubetypes.DELETE, [valid_pod("foo", "new")]))


def test_new_pod_added_updated_set(tester: Harness) -> None:
    pods = [valid_pod("foo", "new"), valid_pod("foo2", "new"), valid_pod("foo3", "new")]
    tester.send(*pods)
    tester.expect((kubetypes.ADD, [valid_pod(p.metadata.name, "new") for p in pods]))
    tester.send(*pods)  # The source sends the same objects again.
    tester.expect_nothing()
    tester.send(valid_pod("foo2", "new", hostname="x"), valid_pod("foo3", "new"), valid_pod("foo4", "new"))
    tester.expect(
        (kubetypes.REMOVE, [valid_pod("foo", "new")]),
        (kubetypes.ADD, [valid_pod("foo4", "new")]),
        (kubetypes.UPDATE, [valid_pod("foo2", "new", hostname="x")]),
    )


def test_new_pod_updated_set_sent_again(tester: Harness) -> None:
    first, other = valid_pod("foo", "new"), valid_pod("foo2", "new")
    tester.send(first, other)
    tester.expect((kubetypes.ADD, [first, other]))
    second = valid_pod("foo", "new", hostname="x")
    tester.send(second, other)
    tester.expect((kubetypes.UPDATE, [valid_pod("foo", "new", hostname="x")]))
    tester.send(second, other)  # The source sends the same objects again, one of them not the first for its pod.
    tester.expect_nothing()
    tester.send(other)
    tester.expect((kubetypes.REMOVE, [valid_pod("foo", "new", hostname="x")]))
    tester.send(second, other)  # The source sends again the last object of a pod that was removed.
    tester.expect((kubetypes.ADD, [valid_pod("foo", "new", hostname="x")]))
    tester.send(other, op=kubetypes.REMOVE)
    tester.expect((kubetypes.REMOVE, [other]))
    tester.send(other, op=kubetypes.ADD)
    tester.expect((kubetypes.ADD, [other]))


def test_new_pod_added_set_reconciled(tester: Harness) -> None:
    def pods(message: str = "", hostname: str = "") -> list[v1.Pod]:
        first = valid_pod("changeable", "new", hostname=hostname)
        first.status.message = message
        return [first, valid_pod("constant", "new")]

    tester.send(*pods())
    tester.expect((kubetypes.ADD, pods()))
    tester.send(*pods())
    tester.expect_nothing()
    tester.send(*pods(message="a"))
    tester.expect((kubetypes.RECONCILE, pods(message="a")[:1]))
    # If the spec differs too, the pod only counts as updated.
    tester.send(*pods(message="b", hostname="h"))
    tester.expect((kubetypes.UPDATE, pods(message="b", hostname="h")[:1]))


def test_initial_empty_set(tester: Harness) -> None:
    tester.send()
    tester.expect((kubetypes.ADD, []))
    tester.send()
    tester.expect_nothing()
    tester.send(valid_pod("foo", "new"))
    tester.expect((kubetypes.ADD, [valid_pod("foo", "new")]))


def test_incremental_operations_of_a_source(tester: Harness) -> None:
    tester.send(valid_pod("foo", "new"), op=kubetypes.ADD)
    tester.expect((kubetypes.ADD, [valid_pod("foo", "new")]))
    tester.send(valid_pod("foo", "new", hostname="h"), op=kubetypes.ADD)
    tester.expect((kubetypes.UPDATE, [valid_pod("foo", "new", hostname="h")]))
    tester.send(valid_pod("unknown", "new"), op=kubetypes.REMOVE)
    tester.expect_nothing()
    tester.send(valid_pod("foo", "new"), op=kubetypes.REMOVE)
    tester.expect((kubetypes.REMOVE, [valid_pod("foo", "new", hostname="h")]))


def test_pod_update_annotations(tester: Harness) -> None:
    def pod(**annotations: str) -> v1.Pod:
        it = valid_pod("foo", "new")
        it.metadata.annotations = {f"kubernetes.io/{k}": v for k, v in annotations.items()}
        return it

    tester.send(pod(blah="blah"))
    tester.expect((kubetypes.ADD, [pod()]))
    for changed in (pod(blah="superblah"), pod(blah="superblah", otherblah="doh"), pod(otherblah="doh")):
        wanted = dict(changed.metadata.annotations)
        tester.send(changed)
        update, _ = tester.pod_config.updates().recv(timeout=_DEADLINE)
        assert update is not None and update.op == kubetypes.UPDATE
        assert update.pods[0].metadata.annotations.items() >= wanted.items()
        assert len(update.pods[0].metadata.annotations) == len(wanted) + 2
    # The kubelet's own annotations do not count as a change.
    same = pod(otherblah="doh")
    same.metadata.annotations[kubetypes.CONFIG_FIRST_SEEN_ANNOTATION_KEY] = "never"
    tester.send(same)
    tester.expect_nothing()


def test_pod_update_labels(tester: Harness) -> None:
    def pod(value: str) -> v1.Pod:
        it = valid_pod("foo", "new")
        it.metadata.labels = {"key": value}
        return it

    tester.send(pod("value"))
    tester.expect((kubetypes.ADD, [pod("value")]))
    tester.send(pod("new-value"))
    tester.expect((kubetypes.UPDATE, [pod("new-value")]))


def test_sources_own_their_pods(tester: Harness) -> None:
    tester.send(valid_pod("foo", "new"))
    tester.expect((kubetypes.ADD, [valid_pod("foo", "new")]))
    other = tester.pod_config.channel(tester.ctx, "other")
    other.send(kubetypes.PodUpdate([], kubetypes.SET, "other"), tester.ctx)
    update, _ = tester.pod_config.updates().recv(timeout=_DEADLINE)
    assert update == kubetypes.PodUpdate([], kubetypes.ADD, "other")
    tester.expect_nothing()


def test_seen_all_sources(tester: Harness) -> None:
    other = tester.pod_config.channel(tester.ctx, "other")
    both = {TEST_SOURCE, "other"}
    tester.send()
    tester.expect((kubetypes.ADD, []))
    assert not tester.pod_config.seen_all_sources(both)  # The other source has not sent its pods.
    other.send(kubetypes.PodUpdate([], kubetypes.SET, "other"), tester.ctx)
    tester.pod_config.updates().recv(timeout=_DEADLINE)
    assert not tester.pod_config.seen_all_sources({TEST_SOURCE})  # The kubelet has not seen the other source.
    assert tester.pod_config.seen_all_sources(both)


@pytest.mark.parametrize(
    "mode", [config.POD_CONFIG_NOTIFICATION_SNAPSHOT, config.POD_CONFIG_NOTIFICATION_SNAPSHOT_AND_UPDATES]
)
def test_snapshot_modes(new_tester: NewHarness, mode: config.PodConfigNotificationMode) -> None:
    tester = new_tester(mode)
    tester.send()
    tester.expect((kubetypes.SET, []))
    tester.send(valid_pod("bar", "new"), valid_pod("foo", "new"))
    tester.expect((kubetypes.SET, [valid_pod("bar", "new"), valid_pod("foo", "new")]))
    changed = valid_pod("foo", "new", hostname="h")
    tester.send(valid_pod("bar", "new"), valid_pod("foo", "new", hostname="h"))
    if mode is config.POD_CONFIG_NOTIFICATION_SNAPSHOT:
        tester.expect((kubetypes.SET, [valid_pod("bar", "new"), changed]))
    else:
        tester.expect((kubetypes.UPDATE, [changed]))
    tester.send(valid_pod("bar", "new"))
    tester.expect((kubetypes.SET, [valid_pod("bar", "new")]))


def test_sync(tester: Harness) -> None:
    tester.send(valid_pod("foo", "new"))
    tester.expect((kubetypes.ADD, [valid_pod("foo", "new")]))
    tester.pod_config.sync()
    update, _ = tester.pod_config.updates().recv(timeout=_DEADLINE)
    assert update is not None and (update.op, update.source) == (kubetypes.SET, kubetypes.ALL_SOURCE)
    assert [p.metadata.name for p in update.pods] == ["foo"]


def test_observed_on_watch(tester: Harness) -> None:
    api = tester.pod_config.channel(tester.ctx, kubetypes.APISERVER_SOURCE)
    update = kubetypes.PodUpdate([valid_pod("foo", "new")], kubetypes.SET, kubetypes.APISERVER_SOURCE)
    api.send(update, tester.ctx)
    tester.pod_config.updates().recv(timeout=_DEADLINE)
    assert tester.observer.observed == ["foo"]


def test_pod_config_race(tester: Harness) -> None:
    def make_channels() -> None:
        for i in range(50):
            tester.pod_config.channel(tester.ctx, str(i))

    thread = golang.go(make_channels, name="make-channels")
    for _ in range(50):
        tester.pod_config.seen_all_sources({TEST_SOURCE})
    thread.join(_DEADLINE)
    assert not thread.is_alive()


def test_merge_blocked_on_a_full_channel_ends_with_its_context() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    pod_config = config.PodConfig(
        config.POD_CONFIG_NOTIFICATION_INCREMENTAL, recordtesting.FakeRecorder(1), FakePodStartupSLIObserver()
    )
    channel = pod_config.channel(ctx, TEST_SOURCE)
    for i in range(pod_config.updates().maxsize + 1):
        channel.send(kubetypes.PodUpdate([valid_pod(f"p{i}", "new")], kubetypes.ADD, TEST_SOURCE))
    cancel()  # conftest fails the test if the listener does not end.
