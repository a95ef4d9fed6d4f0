"""Test the removal of dead containers."""

from __future__ import annotations

import io
import threading
from datetime import UTC, datetime

import pytest
from framework.waiting import threads_named

from kubelet import container as kubecontainer
from kubelet import pod_container_deletor
from kubelet.container import testing as containertest
from pkg import golang
from pkg.apimachinery import types

EXITED, RUNNING = kubecontainer.CONTAINER_STATE_EXITED, kubecontainer.CONTAINER_STATE_RUNNING


def status(id: str, name: str, minute: int | None, state: kubecontainer.State = EXITED) -> kubecontainer.Status:
    created = None if minute is None else datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
    return kubecontainer.Status(id=kubecontainer.ContainerID("test", id), name=name, state=state, created_at=created)


def pod_status(*statuses: kubecontainer.Status) -> kubecontainer.PodStatus:
    return kubecontainer.PodStatus(id=types.UID("pod"), container_statuses=list(statuses))


FIVE = pod_status(
    status("1", "foo", 1),
    status("2", "bar", 2),
    status("3", "bar", 3),
    status("4", "bar", 4),
    status("5", "foo", 5, RUNNING),
)


@pytest.mark.parametrize(
    ("filter_id", "keep", "expected"),
    [
        pytest.param("4", 0, ["4", "3", "2"], id="all dead ones of the name"),
        pytest.param("4", 1, ["3", "2"], id="but the latest"),
        pytest.param("4", 2, ["2"], id="but the two latest"),
        pytest.param("4", 3, [], id="there are no more than that"),
        pytest.param("5", 0, ["1"], id="the one named need not be dead"),
        pytest.param("", 0, ["4", "3", "2", "1"], id="of all names"),
        pytest.param("", 3, ["1"], id="of all names but the latest"),
        pytest.param("6", 0, [], id="no such container"),
    ],
)
def test_get_containers_to_delete_in_pod(filter_id: str, keep: int, expected: list[str]) -> None:
    got = pod_container_deletor.get_containers_to_delete_in_pod(filter_id, FIVE, keep)
    assert [s.id.id for s in got] == expected


def test_containers_without_a_time_count_as_oldest() -> None:
    given = pod_status(status("1", "foo", None), status("2", "foo", 1))
    got = pod_container_deletor.get_containers_to_delete_in_pod("", given, 0)
    assert [s.id.id for s in got] == ["2", "1"]


class Runtime(containertest.FakeRuntime):
    """Record the deletions. The first one fails, and the test can block them."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: golang.Channel[str] = golang.Channel(100)
        self.may_go_on = threading.Event()
        self.fail = True

    def delete_container(self, ctx: golang.Context, container_id: kubecontainer.ContainerID) -> None:
        assert self.may_go_on.wait(30)
        self.deleted.send(container_id.id)
        if self.fail:
            self.fail = False
            raise RuntimeError("injected")


@pytest.mark.parametrize(("remove_all", "expected"), [(False, ["3", "2"]), (True, ["4", "3", "2", "1"])])
def test_delete_containers_in_pod(remove_all: bool, expected: list[str]) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    runtime = Runtime()
    runtime.may_go_on.set()
    deletor = pod_container_deletor.PodContainerDeletor(ctx, runtime, 1)
    [thread] = threads_named("pod-container-deletor")
    deletor.delete_containers_in_pod("4", FIVE, remove_all)
    assert [runtime.deleted.recv(30)[0] for _ in expected] == expected
    cancel()
    thread.join(30)
    assert not thread.is_alive()


def test_requests_beyond_the_limit_are_dropped(log: io.StringIO) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    runtime = Runtime()
    deletor = pod_container_deletor.PodContainerDeletor(ctx, runtime, 0)
    many = pod_status(*(status(str(i), "foo", i % 60) for i in range(80)))
    deletor.delete_containers_in_pod("", many, True)
    runtime.may_go_on.set()
    limit = pod_container_deletor.CONTAINER_DELETOR_BUFFER_LIMIT
    for _ in range(limit):
        assert runtime.deleted.recv(30)[1]
    cancel()
    [thread] = threads_named("pod-container-deletor")
    thread.join(30)
    # The channel holds one deletion if the thread had taken the first request before the buffer was full.
    assert len(runtime.deleted) <= 1
    # With a line for each, a pod with thousands of containers would write as many lines at each exit.
    assert log.getvalue().count("Failed to issue the request to remove container") == 1
