from __future__ import annotations

import contextlib
import errno
import threading
from pathlib import Path

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.waiting import threads_named, wait_for
from watchdog.observers import inotify_c

from kubelet.cri import errors as crierror
from kubelet.cri import testing
from kubelet.kuberuntime import logs
from kubelet.kuberuntime.logs import followers
from pkg import golang
from pkg.util.testing import open_inotify_instances

_CTX = golang.background()
_LINE = b"2026-01-02T03:04:05.6Z stdout F text\n"


def _runtime(ids: list[str]) -> testing.FakeRuntimeService:
    runtime = testing.FakeRuntimeService()
    runtime.set_fake_containers(
        testing.FakeContainer(runtimeapi.ContainerStatus(id=each, state=runtimeapi.CONTAINER_RUNNING), "sandbox")
        for each in ids
    )
    return runtime


def _watchers() -> set[threading.Thread]:
    """Return the threads that receive inotify events."""
    return set(threads_named("log-followers"))


@pytest.fixture
def _no_force_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the periodic check, so that only events wake a follower."""
    monkeypatch.setattr(followers, "LOG_FORCE_CHECK_PERIOD", 3600.0)


class _Reader:
    """Follow a log in a thread."""

    def __init__(self, path: Path, container_id: str, runtime: testing.FakeRuntimeService) -> None:
        self.data = b""
        self.ctx, self.cancel = golang.with_cancel(_CTX)
        self.error: Exception | None = None
        self.thread = golang.go(self._run, path, container_id, runtime, name=f"reader-{container_id}")

    def _run(self, path: Path, container_id: str, runtime: testing.FakeRuntimeService) -> None:
        opts = logs.LogOptions(follow=True)
        try:
            logs.read_logs(self.ctx, str(path), container_id, opts, runtime, self, self)
        except (golang.ContextError, crierror.RemoteError) as err:
            self.error = err

    def write(self, data: bytes, /) -> int:
        self.data += data
        return len(data)

    def join(self) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive()


def test_two_hundred_followers_share_one_inotify_instance(tmp_path: Path) -> None:
    """More followers than the 128 instances of a user share one instance, and release everything at the end."""
    ids = [f"c{i}" for i in range(20)]
    for each in ids:
        (tmp_path / each).mkdir()
        (tmp_path / each / "0.log").write_bytes(_LINE)
    runtime = _runtime(ids)
    before, threads = open_inotify_instances(), _watchers()
    readers = [_Reader(tmp_path / each / "0.log", each, runtime) for each in ids for _ in range(10)]
    wait_for("all readers have the first line", lambda: all(reader.data for reader in readers))
    assert len(open_inotify_instances() - before) == 1
    assert len(_watchers() - threads) == 1

    for each in ids:
        with (tmp_path / each / "0.log").open("ab") as f:
            f.write(_LINE)
    wait_for("all readers have both lines", lambda: all(reader.data == b"text\n" * 2 for reader in readers))

    # Half of the followers leave, and the containers of the others exit.
    for reader in readers[:100]:
        reader.cancel()
    for reader in readers[:100]:
        reader.join()
    for each in ids:
        runtime.exit_container(each, 0)
    for reader in readers[100:]:
        reader.join()
    assert all(isinstance(reader.error, golang.Canceled) for reader in readers[:100])
    assert all(reader.error is None for reader in readers[100:])
    assert open_inotify_instances() <= before
    assert _watchers() <= threads


def test_follower_that_leaves_before_the_thread_has_begun_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = inotify_c.InotifyFD.run

    def begin_late(self: inotify_c.InotifyFD) -> None:
        self.stopped_event.wait(30)
        run(self)

    monkeypatch.setattr(inotify_c.InotifyFD, "run", begin_late)
    before = open_inotify_instances()
    with followers.Follower(str(tmp_path / "0.log"), "c", _runtime(["c"])):
        assert len(open_inotify_instances() - before) == 1
    assert open_inotify_instances() <= before


@pytest.mark.usefixtures("_no_force_check")
def test_followers_of_a_container_ask_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(_LINE)
    runtime = _runtime(["c"])
    path = str(tmp_path / "0.log")
    with followers.Follower(path, "c", runtime) as one, followers.Follower(path, "c", runtime) as two:
        one.on_event(_event(0))
        two.on_event(_event(0))
        assert one.wait(_CTX)
        assert two.wait(_CTX)
    assert runtime.called().count("ContainerStatus") == 1


@pytest.mark.usefixtures("_no_force_check")
def test_followers_leave_each_other_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that grows all the time must not keep all its followers busy all the time."""
    monkeypatch.setattr(followers, "MAX_LOOKS_PER_SECOND", 0.001)
    ctx, cancel = golang.with_timeout(_CTX, 0.5)
    with followers.Follower(str(tmp_path / "0.log"), "c", _runtime(["c"])) as follower:
        follower.wake()
        assert follower.wait(ctx)
        follower.wake()
        with pytest.raises(golang.DeadlineExceeded):
            follower.wait(ctx)
    cancel()


def test_more_followers_look_less_often_each(tmp_path: Path) -> None:
    runtime, path = _runtime(["c"]), str(tmp_path / "0.log")
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(followers.Follower(path, "c", runtime))
        assert followers._shared.pause() == 100 / followers.MAX_LOOKS_PER_SECOND


def _event(mask: int, name: bytes = b"0.log") -> inotify_c.InotifyEvent:
    return inotify_c.InotifyEvent(inotify_c.WatchDescriptor(1), inotify_c.Mask(mask), 0, name)


@pytest.mark.usefixtures("_no_force_check")
def test_closed_log_makes_the_follower_ask_at_once(tmp_path: Path) -> None:
    runtime = _runtime(["c"])
    with followers.Follower(str(tmp_path / "0.log"), "c", runtime) as follower:
        follower.on_event(_event(inotify_c.InotifyConstants.IN_MODIFY))
        assert follower.wait(_CTX)
        runtime.exit_container("c", 0)
        follower.on_event(_event(inotify_c.InotifyConstants.IN_CLOSE_WRITE, b"1.log"))
        follower.on_event(_event(inotify_c.InotifyConstants.IN_CLOSE_WRITE))
        assert not follower.wait(_CTX)


@pytest.mark.parametrize(("code", "running"), [(grpc.StatusCode.UNAVAILABLE, True), (grpc.StatusCode.NOT_FOUND, False)])
def test_container_of_which_the_runtime_does_not_tell(code: grpc.StatusCode, running: bool) -> None:
    runtime = _runtime([])
    runtime.inject_error("ContainerStatus", crierror.RemoteError(code, "no"))
    assert followers.is_container_running(_CTX, "c", runtime) is running


def test_other_errors_of_the_runtime_end_the_follower(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(_LINE)
    runtime = _runtime([])
    runtime.inject_error("ContainerStatus", crierror.RemoteError(grpc.StatusCode.INTERNAL, "no"))
    reader = _Reader(tmp_path / "0.log", "c", runtime)
    reader.join()
    assert reader.data == b"text\n"
    assert isinstance(reader.error, crierror.RemoteError)


@pytest.mark.parametrize(
    ("step", "err"),
    [
        ("_create_inotify_fd", OSError(errno.EMFILE, "inotify instance limit reached")),
        ("start", RuntimeError("no thread")),
    ],
)
def test_log_is_followed_without_inotify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, err: Exception
) -> None:
    def refuse(*_: object) -> int:
        raise err

    monkeypatch.setattr(inotify_c.InotifyFD, step, refuse)
    before = open_inotify_instances()
    (tmp_path / "0.log").write_bytes(_LINE)
    runtime = _runtime(["c"])
    reader = _Reader(tmp_path / "0.log", "c", runtime)
    wait_for("the reader has the first line", lambda: bool(reader.data))
    with (tmp_path / "0.log").open("ab") as f:
        f.write(_LINE)
    wait_for("the reader has both lines", lambda: reader.data == b"text\n" * 2)
    runtime.exit_container("c", 0)
    reader.join()
    assert open_inotify_instances() <= before


def test_one_follower_hears_of_the_end_and_tells_the_others(tmp_path: Path) -> None:
    runtime = _runtime(["c"])
    path = str(tmp_path / "0.log")
    with followers.Follower(path, "c", runtime) as one, followers.Follower(path, "c", runtime) as two:
        runtime.exit_container("c", 0)
        assert not one.wait(_CTX)
        assert not two.wait(_CTX)
    assert runtime.called().count("ContainerStatus") == 1


@pytest.mark.usefixtures("_no_force_check")
def test_runtime_that_hangs_keeps_one_follower_and_not_all(tmp_path: Path) -> None:
    """The other followers keep reading, because reading the log does not need the runtime."""
    runtime = _runtime(["c"])
    path = str(tmp_path / "0.log")
    with followers.Follower(path, "c", runtime) as one, followers.Follower(path, "c", runtime) as two:
        # The request of the first follower is still in progress.
        assert followers._shared.answer(one._key, 0.0) is None
        two.wake()
        assert two.wait(_CTX)
    assert runtime.called() == []
