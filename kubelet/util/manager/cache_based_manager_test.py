"""Test objects that are fetched again when they are too old."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NoReturn

import pytest

from kubelet.util import manager as manager_
from pkg import golang
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.golang.testing import Held

UID = types.UID("pod")


def secret(name: str, version: str = "1", namespace: str = "ns1") -> v1.Secret:
    return v1.Secret(metadata=metav1.ObjectMeta(namespace=namespace, name=name, resource_version=version))


class Server:
    """Return a secret with the requested name, or what the test has set."""

    def __init__(self) -> None:
        self.gets: list[tuple[str, str, str]] = []
        self.answer: Callable[[str, str], v1.Secret] = lambda namespace, name: secret(name, "1", namespace)
        # The API server's cache returns this object, if it is set.
        self.cached: v1.Secret | None = None

    def get(self, namespace: str, name: str, options: metav1.GetOptions) -> v1.Secret:
        self.gets.append((namespace, name, options.resource_version))
        if self.cached is not None and options.resource_version == "0":
            return self.cached
        return self.answer(namespace, name)

    def fail(self, err: Exception) -> None:
        def answer(namespace: str, name: str) -> v1.Secret:
            raise err

        self.answer = answer

    def taken(self) -> list[str]:
        """Return the names requested since the last call."""
        names = [name for _, name, _ in self.gets]
        self.gets.clear()
        return names


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> testingclock.FakeClock:
    return testingclock.FakeClock()


def new_store(
    server: Server, clock: testingclock.FakeClock, ttl: float = 60.0, get_ttl: manager_.GetObjectTTLFunc = lambda: None
) -> manager_.ObjectStore[v1.Secret]:
    return manager_.ObjectStore(server.get, clock, get_ttl, ttl)


def secret_names(pod: v1.Pod) -> set[str]:
    names: list[str] = []
    podutil.visit_pod_secret_names(pod, lambda name: names.append(name) or True)  # type: ignore[func-returns-value]
    return set(names)


def pod_with(*names: str, pod: str = "pod", namespace: str = "ns1", uid: str = "") -> v1.Pod:
    """Return a pod that refers to secrets in each of the possible places.

    The pod refers to the first secret for image pulls, to the second one in a variable, and to the others in envFrom.
    """
    metadata = metav1.ObjectMeta(namespace=namespace, name=pod, uid=types.UID(uid or f"{namespace}/{pod}"))
    container = v1.Container(
        name="c",
        env=[v1.EnvVar(name="A", value_from=v1.EnvVarSource(secret_key_ref=v1.SecretKeySelector(name=n, key="k")))
             for n in names[1:2]],
        env_from=[v1.EnvFromSource(secret_ref=v1.SecretEnvSource(name=name)) for name in names[2:]],
    )  # fmt: skip
    pulls = [v1.LocalObjectReference(name=name) for name in names[:1]]
    return v1.Pod(metadata=metadata, spec=v1.PodSpec(image_pull_secrets=pulls, containers=[container]))


def test_only_what_is_referred_to_can_be_got(server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock)
    for namespace, name, pod in (("ns1", "a", "p1"), ("ns2", "b", "p2"), ("ns1", "a", "p3"), ("ns3", "c", "p5")):
        store.add_reference(namespace, name, types.UID(pod))
    store.delete_reference("ns1", "a", types.UID("p1"))
    store.delete_reference("ns2", "b", types.UID("p2"))
    store.delete_reference("ns9", "never", types.UID("p2"))
    assert server.taken() == []  # References cause no request.
    assert store.get("ns1", "a").metadata.name == "a"
    assert store.get("ns3", "c").metadata.name == "c"
    for namespace, name in (("ns2", "b"), ("ns4", "d")):
        with pytest.raises(LookupError, match=f'^object "{namespace}"/"{name}" not registered$'):
            store.get(namespace, name)
    assert server.taken() == ["a", "c"]


def test_a_deleted_secret_is_not_found(server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock, ttl=0)
    store.add_reference("ns1", "a", UID)
    assert store.get("ns1", "a").metadata.resource_version == "1"
    server.fail(apierrors.new_not_found("secrets", "a"))
    with pytest.raises(apierrors.StatusError, match='secrets "a" not found'):
        store.get("ns1", "a")
    server.answer = lambda namespace, name: secret(name, "3")
    assert store.get("ns1", "a").metadata.resource_version == "3"


def test_an_old_answer_is_better_than_none_and_a_newer_one_stays(server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock, ttl=0)
    store.add_reference("ns1", "a", UID)
    server.fail(apierrors.new_resource_expired("expired"))
    with pytest.raises(apierrors.StatusError, match="expired"):
        store.get("ns1", "a")
    server.answer = lambda namespace, name: secret(name, "5")
    store.get("ns1", "a")
    server.fail(ConnectionRefusedError("down"))
    assert store.get("ns1", "a").metadata.resource_version == "5"
    server.answer = lambda namespace, name: secret(name, "5")
    server.cached = secret("a", "4")
    assert store.get("ns1", "a").metadata.resource_version == "5"
    # Only an object that was read before may come from the API server's cache.
    assert [version for _, _, version in server.gets] == ["", "", "0", "0", ""]


def test_an_older_state_that_the_storage_was_given_back_is_taken(server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock, ttl=0)
    store.add_reference("ns1", "a", UID)
    server.answer = lambda namespace, name: secret(name, "500")
    store.get("ns1", "a")
    server.answer = lambda namespace, name: secret(name, "4")
    assert store.get("ns1", "a").metadata.resource_version == "4"


def test_a_secret_that_was_not_found_is_asked_for_each_time(server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock)
    store.add_reference("ns1", "a", UID)
    server.fail(apierrors.new_not_found("secrets", "a"))
    for _ in range(2):
        with pytest.raises(apierrors.StatusError):
            store.get("ns1", "a")
    server.fail(ConnectionRefusedError("down"))
    with pytest.raises(apierrors.StatusError, match="not found"):
        store.get("ns1", "a")
    assert [version for _, _, version in server.gets] == ["", "", ""]


def test_nothing_is_kept_of_who_has_asked_for_a_secret_in_vain(server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock)
    store.add_reference("ns1", "a", UID)
    held = Held()

    def answer(namespace: str, name: str) -> NoReturn:
        raise apierrors.new_not_found("secrets", name)

    def ask() -> None:
        _large = held.new()
        with contextlib.suppress(apierrors.StatusError):
            store.get("ns1", "a")

    server.answer = answer
    ask()
    ask()
    assert held.freed() == [True, True]


@pytest.mark.parametrize(("ttl", "expected"), [(0.0, 100), (60.0, 10)], ids=["always", "once"])
def test_many_threads_get(ttl: float, expected: int, server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock, ttl)
    for i in range(10):
        store.add_reference(f"ns-{i}", f"name-{i}", types.UID(f"pod-{i}"))
    threads = [golang.go(store.get, f"ns-{i % 10}", f"name-{i % 10}", name=f"get-{i}") for i in range(100)]
    for thread in threads:
        thread.join()
    assert len(server.gets) == expected


def test_a_ttl_from_elsewhere(server: Server, clock: testingclock.FakeClock) -> None:
    ttl: float | None = None
    store = new_store(server, clock, 60.0, lambda: ttl)
    store.add_reference("ns1", "a", UID)

    def asked() -> bool:
        store.get("ns1", "a")
        return bool(server.taken())

    assert asked()
    ttl = 0.0
    assert asked()
    ttl = 300.0
    assert not asked()
    clock.step(240)
    assert not asked()
    clock.step(60)
    assert asked()
    ttl = None
    clock.step(55)
    assert not asked()
    clock.step(5)
    assert asked()


@pytest.mark.parametrize(
    ("annotations", "ttl"),
    [
        ({}, None),
        ({v1.OBJECT_TTL_ANNOTATION_KEY: "bad"}, None),
        ({v1.OBJECT_TTL_ANNOTATION_KEY: "1_0"}, None),
        ({v1.OBJECT_TTL_ANNOTATION_KEY: "9" * 5000}, None),
        ({v1.OBJECT_TTL_ANNOTATION_KEY: "0"}, 0.0),
        ({v1.OBJECT_TTL_ANNOTATION_KEY: "60"}, 60.0),
    ],
)
def test_ttl_of_the_node(annotations: dict[str, str], ttl: float | None) -> None:
    node = v1.Node(metadata=metav1.ObjectMeta(name="node", annotations=annotations))
    assert manager_.get_object_ttl_from_node_func(golang.background(), lambda ctx: node)() == ttl


def test_no_ttl_without_a_node() -> None:
    client = FakeClientset()
    get_ttl = manager_.get_object_ttl_from_node_func(
        golang.background(), lambda ctx: client.core_v1.nodes().get(ctx, "node")
    )
    assert get_ttl() is None


@pytest.mark.parametrize("fault", [ConnectionRefusedError("down"), ValueError("no node"), RecursionError()])
def test_no_ttl_from_a_node_that_cannot_be_read(fault: Exception) -> None:
    """The default TTL applies if the node cannot be read, because the requested object may still be readable."""

    def refuse(ctx: golang.Context) -> v1.Node:
        raise fault

    assert manager_.get_object_ttl_from_node_func(golang.background(), refuse)() is None


def test_another_pod_asks_anew(server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock)
    manager = manager_.CacheBasedManager(store, secret_names)
    manager.register_pod(pod_with("s1", "s2", "s10"))
    for name in ("s1", "s10", "s2"):
        manager.get_object("ns1", name)
    assert sorted(server.taken()) == ["s1", "s10", "s2"]
    # An update of the pod requests its new objects.
    manager.register_pod(pod_with("s1", "s2", "s20", "s3"))
    for name in ("s1", "s2", "s20", "s3"):
        manager.get_object("ns1", name)
    assert sorted(server.taken()) == ["s20", "s3"]
    manager.register_pod(pod_with("s1", "s2", "s10", pod="other"))
    for name in ("s1", "s10", "s2", "s20", "s3"):
        manager.get_object("ns1", name)
    assert sorted(server.taken()) == ["s1", "s10", "s2"]


def test_registering_is_idempotent(server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock)
    manager = manager_.CacheBasedManager(store, secret_names)
    one, two = pod_with("s1"), pod_with("s1", pod="two")
    counts = []
    for step in (manager.register_pod, manager.unregister_pod):
        for pod in (one, one, two):
            step(pod)
            counts.append(store.reference_count("ns1", "s1"))
    assert counts == [1, 1, 2, 1, 1, 0]


def test_references_follow_the_pods(server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock)
    manager = manager_.CacheBasedManager(store, secret_names)
    manager.register_pod(pod_with("s1", "s2", "s3"))
    manager.register_pod(pod_with("s4", "s2", pod="two"))
    manager.register_pod(pod_with("s5", pod="two"))
    manager.register_pod(pod_with("s1", namespace="ns2"))
    manager.register_pod(pod_with("s6", pod="gone"))
    # The registered references count, not those of the pod's last version.
    manager.unregister_pod(pod_with(pod="gone"))
    counts = {name: store.reference_count("ns1", name) for name in ("s1", "s2", "s3", "s4", "s5", "s6")}
    assert counts == {"s1": 1, "s2": 1, "s3": 1, "s4": 0, "s5": 1, "s6": 0}
    assert store.reference_count("ns2", "s1") == 1


def test_reference_that_could_not_be_counted_is_counted_later(
    server: Server, clock: testingclock.FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: str) -> None:
        raise MemoryError

    store = new_store(server, clock)
    manager = manager_.CacheBasedManager(store, secret_names)
    with monkeypatch.context() as patch:
        patch.setattr(store, "add_reference", fail)
        with pytest.raises(MemoryError):
            manager.register_pod(pod_with("s1"))
    manager.register_pod(pod_with("s1"))
    assert manager.get_object("ns1", "s1").metadata.name == "s1"
    manager.unregister_pod(pod_with("s1"))
    assert store.reference_count("ns1", "s1") == 0


def test_pods_of_one_name_and_different_uids(server: Server, clock: testingclock.FakeClock) -> None:
    store = new_store(server, clock)
    manager = manager_.CacheBasedManager(store, secret_names)
    manager.register_pod(pod_with("s1", uid="1"))
    manager.register_pod(pod_with("s2", uid="2"))
    assert (store.reference_count("ns1", "s1"), store.reference_count("ns1", "s2")) == (1, 1)
    manager.unregister_pod(pod_with(uid="1"))
    assert (store.reference_count("ns1", "s1"), store.reference_count("ns1", "s2")) == (0, 1)
    manager.unregister_pod(pod_with(uid="2"))
    assert store.reference_count("ns1", "s2") == 0
