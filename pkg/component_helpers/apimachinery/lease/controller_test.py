"""Test the lease controller.

Go: k8s.io/component-helpers/apimachinery/lease/controller_test.go
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from kubelet.util.nodelease import set_node_owner_func
from pkg import golang
from pkg.api.coordination import v1 as coordinationv1
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.component_helpers.apimachinery import lease

NODE = v1.Node(metadata=metav1.ObjectMeta(name="foo", uid=types.UID("foo-uid")))
OWNER = metav1.OwnerReference(api_version="v1", kind="Node", name="foo", uid=types.UID("foo-uid"))
CTX = golang.background()
NOT_FOUND = apierrors.new_not_found("leases", "foo")
CONFLICT = apierrors.new_conflict("leases", "foo", "conflict")
NO_CONNECTION = ConnectionError("refused")
Answer = Any


def make_lease(version: str = "") -> coordinationv1.Lease:
    metadata = metav1.ObjectMeta(name="foo", namespace=v1.NAMESPACE_NODE_LEASE, resource_version=version)
    return coordinationv1.Lease(metadata=metadata)


def make_controller(
    client: FakeClientset, clock: FakeClock | None = None, on_failure: Callable[[], None] | None = None
) -> lease.Controller:
    return lease.Controller(
        clock or FakeClock(),
        client,
        "foo",
        40,
        on_failure,
        10.0,
        "foo",
        v1.NAMESPACE_NODE_LEASE,
        set_node_owner_func(CTX, client, "foo"),
    )


def answer(client: FakeClientset, verb: str, *answers: Answer) -> None:
    """Return these results for the calls in order, and the last result for every further call."""
    left = list(answers)
    client.prepend_reactor(verb, "leases", lambda action: (True, left.pop(0) if len(left) > 1 else left[0]))


def calls(client: FakeClientset) -> list[str]:
    return [f"{action.verb} {action.resource}" for action in client.actions()]


@pytest.mark.parametrize("base", [None, make_lease("5")], ids=["nil base lease", "non-nil base lease"])
def test_new_lease(base: coordinationv1.Lease | None) -> None:
    client, clock = FakeClientset(NODE), FakeClock(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    made, err = make_controller(client, clock).new_lease(base)
    assert err is None
    assert made.metadata.owner_references == [OWNER]
    assert made.metadata.resource_version == ("5" if base is not None else "")
    assert made.spec.holder_identity == ("foo" if base is None else None), "somebody else's lease stays somebody else's"
    assert made.spec.lease_duration_seconds == 40
    assert made.spec.renew_time == clock.now().replace(microsecond=1), "with a fraction, or the server refuses it"
    assert base is None or base.spec.renew_time is None, "the base belongs to somebody else"


def test_new_lease_has_one_owner() -> None:
    client = FakeClientset(NODE)
    base = make_lease()
    base.metadata.owner_references = [OWNER]
    made, _ = make_controller(client).new_lease(base)
    assert made.metadata.owner_references == [OWNER]
    assert calls(client) == []


def test_new_lease_without_node() -> None:
    made, err = make_controller(FakeClientset()).new_lease(None)
    assert err is not None
    assert apierrors.is_not_found(err)
    assert made.metadata.owner_references == []


@pytest.mark.parametrize(
    ("answers", "fails", "heartbeat_failures"),
    [
        pytest.param([make_lease()], False, 0, id="no errors"),
        pytest.param([NO_CONNECTION], True, 4, id="connection errors"),
        pytest.param([NO_CONNECTION, CONFLICT, make_lease()], False, 0, id="optimistic lock errors"),
    ],
)
def test_retry_update_lease(answers: list[Answer], fails: bool, heartbeat_failures: int) -> None:
    client = FakeClientset(NODE)
    answer(client, "update", *answers)
    answer(client, "get", make_lease())
    failures: list[None] = []
    controller = make_controller(client, on_failure=lambda: failures.append(None))
    if fails:
        with pytest.raises(lease.LeaseUpdateError, match="failed 5 attempts to update lease"):
            controller.retry_update_lease(CTX, None)
    else:
        controller.retry_update_lease(CTX, None)
        assert controller.latest_lease is not None
    assert len(failures) == heartbeat_failures


def test_lease_is_not_updated_without_node() -> None:
    client = FakeClientset()
    with pytest.raises(lease.LeaseUpdateError, match="failed 5 attempts to update lease"):
        make_controller(client).retry_update_lease(CTX, None)
    assert calls(client) == ["get nodes"] * 5


@pytest.mark.parametrize(
    ("node", "latest", "updates", "gets", "version", "expected_calls"),
    [
        pytest.param(
            NODE, None, [], [NOT_FOUND], "1", ["get leases", "get nodes", "create leases"], id="need to create"
        ),
        pytest.param(None, None, [], [NOT_FOUND], None, ["get leases", "get nodes"], id="node doesn't exist"),
        pytest.param(
            NODE,
            None,
            [make_lease("2")],
            [make_lease("1")],
            "2",
            ["get leases", "get nodes", "update leases"],
            id="need to update",
        ),
        pytest.param(
            NODE, "1", [make_lease("2")], [], "2", ["get nodes", "update leases"], id="latestLease is updated"
        ),
        pytest.param(
            NODE,
            "1",
            [NOT_FOUND, NOT_FOUND, NOT_FOUND, NOT_FOUND, NOT_FOUND, make_lease("3")],
            [make_lease("2")],
            "3",
            [*["get nodes", "update leases"] * 5, "get leases", "get nodes", "update leases"],
            id="update with latest lease failed",
        ),
    ],
)
def test_update_using_latest_lease(
    node: v1.Node | None,
    latest: str | None,
    updates: list[Answer],
    gets: list[Answer],
    version: str | None,
    expected_calls: list[str],
) -> None:
    client = FakeClientset(node) if node is not None else FakeClientset()
    answer(client, "create", make_lease("1"))
    if updates:
        answer(client, "update", *updates)
    if gets:
        answer(client, "get", *gets)
    controller = make_controller(client)
    controller.latest_lease = make_lease(latest) if latest is not None else None
    controller.sync(CTX)
    found = controller.latest_lease
    assert (found.metadata.resource_version if found is not None else None) == version
    assert calls(client) == expected_calls


def test_lease_life() -> None:
    client, clock = FakeClientset(NODE), FakeClock(datetime.datetime(2026, 1, 1, 0, 0, 0, 5, datetime.UTC))
    controller = make_controller(client, clock)
    controller.sync(CTX)
    clock.step(10)
    controller.sync(CTX)
    assert calls(client) == ["get leases", "get nodes", "create leases", "update leases"]
    found = client.coordination_v1.leases(v1.NAMESPACE_NODE_LEASE).get(CTX, "foo")
    assert found.spec.renew_time == clock.now()
    assert found.spec.holder_identity == "foo"


def test_lease_that_cannot_be_had_is_tried_again_later_each_time() -> None:
    client, clock = FakeClientset(NODE), FakeClock()
    answer(client, "get", NO_CONNECTION, NO_CONNECTION, make_lease("1"))
    answer(client, "update", make_lease("2"))
    pauses = clock.skip_pauses()
    make_controller(client, clock).sync(CTX)
    assert pauses == [0.2, 0.4]


def test_run_ends_with_its_context() -> None:
    client, clock = FakeClientset(NODE), FakeClock()
    ctx, cancel = golang.with_cancel(CTX)
    answer(client, "get", NO_CONNECTION)
    thread = golang.go(make_controller(client, clock).run, ctx, name="lease")
    clock.wait_for_waiters()
    cancel()
    thread.join(30)
    assert not thread.is_alive()


def test_no_client_no_lease() -> None:
    controller = lease.Controller(FakeClock(), None, "foo", 40, None, 10.0, "foo", "ns", None)
    controller.run(CTX)
    assert controller.latest_lease is None
