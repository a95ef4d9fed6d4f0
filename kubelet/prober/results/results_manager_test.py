"""Test the cache of probe results."""

from __future__ import annotations

import pytest

from kubelet import container as kubecontainer
from kubelet.prober import results
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.golang.testing import OnlyTurn

FOO = kubecontainer.ContainerID("test", "foo")
BAR = kubecontainer.ContainerID("test", "bar")
POD = v1.Pod(metadata=metav1.ObjectMeta(name="test-pod", uid=types.UID("test-uid")))


def test_cache_operations() -> None:
    m = results.Manager()
    assert m.get(FOO) is None

    m.set(BAR, results.SUCCESS, v1.Pod())
    assert m.get(BAR) is results.SUCCESS

    m.remove(BAR)
    assert m.get(BAR) is None
    m.remove(BAR)


def test_updates() -> None:
    m = results.Manager()
    for container_id, result, expect_update in [
        (FOO, results.SUCCESS, True),  # This result is new.
        (BAR, results.FAILURE, True),  # This result is new.
        (FOO, results.SUCCESS, False),  # This result is unchanged.
        (BAR, results.FAILURE, False),  # This result is unchanged.
        (FOO, results.FAILURE, True),  # This result has changed.
        (BAR, results.SUCCESS, True),  # This result has changed.
    ]:
        m.set(container_id, result, POD)
        update, _, ready = m.updates().try_recv()
        assert ready is expect_update
        assert update == (results.Update(container_id, result, types.UID("test-uid")) if expect_update else None)


def test_remove_makes_the_next_result_new() -> None:
    m = results.Manager()
    m.set(FOO, results.SUCCESS, POD)
    m.remove(FOO)
    m.set(FOO, results.SUCCESS, POD)
    assert len(m.updates()) == 2


def test_set_on_a_full_channel_ends_with_the_context() -> None:
    m = results.Manager()
    for i in range(m.updates().maxsize):
        m.set(kubecontainer.ContainerID("test", str(i)), results.SUCCESS, POD)
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    with pytest.raises(golang.Canceled):
        m.set(FOO, results.SUCCESS, POD, ctx)


def test_set_on_a_full_channel_lets_others_have_their_turn() -> None:
    m, only = results.Manager(), OnlyTurn()
    for i in range(m.updates().maxsize):
        m.set(kubecontainer.ContainerID("test", str(i)), results.SUCCESS, POD)
    ctx, cancel = golang.with_timeout(only.ctx, 30)
    with only.turn:
        thread = golang.go(only.when_free, m.updates().recv, name="reader")
        m.set(FOO, results.SUCCESS, POD, ctx)
    thread.join()
    cancel()


@pytest.mark.parametrize(("result", "expected"), [(results.SUCCESS, 0), (results.FAILURE, 1), (results.UNKNOWN, -1)])
def test_result_to_prometheus_type(result: results.Result, expected: float) -> None:
    assert result.to_prometheus_type() == expected


@pytest.mark.parametrize(
    ("result", "expected"),
    [(results.SUCCESS, "Success"), (results.FAILURE, "Failure"), (results.UNKNOWN, "UNKNOWN")],
)
def test_result_string(result: results.Result, expected: str) -> None:
    assert str(result) == expected
