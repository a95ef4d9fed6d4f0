"""Test the rotation of container logs.

Go: pkg/kubelet/logs/container_log_manager_test.go
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.waiting import wait_until_equal

from kubelet import container as kubecontainer
from kubelet import logs
from kubelet.cri import errors as crierror
from kubelet.cri import testing
from pkg import golang
from pkg.apimachinery.clock import testing as testingclock
from pkg.apimachinery.util.runtime.testing import failing_once, failures

_CTX = golang.background()


class _World:
    """Run containers named c1, c2 and so on, which write the logs 1.log, 2.log and so on."""

    def __init__(self, directory: Path, max_files: int = 3, max_size: int = 10) -> None:
        self.directory = directory
        self.clock = testingclock.FakeClock()
        self.runtime = testing.FakeRuntimeService()
        self.manager = logs.ContainerLogManagerImpl(
            self.runtime,
            kubecontainer.RealOS(),
            logs.LogRotatePolicy(max_size, max_files),
            1,
            10.0,
            self.clock,
        )
        self.stamp = self.clock.now().astimezone().strftime("%Y%m%d-%H%M%S")

    def run(self, *states: Any) -> None:
        self.runtime.set_fake_containers(
            testing.FakeContainer(
                runtimeapi.ContainerStatus(id=f"c{i}", state=state, log_path=str(self.directory / f"{i}.log")),
                "sandbox",
            )
            for i, state in enumerate(states, 1)
        )

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())


_RUNNING = runtimeapi.CONTAINER_RUNNING


def _fill(world: _World, files: dict[str, str]) -> None:
    for name, text in files.items():
        (world.directory / name).write_text(text)


def test_rotation(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.run(_RUNNING, _RUNNING, _RUNNING, runtimeapi.CONTAINER_EXITED)
    long = "longer than 10 bytes"
    _fill(
        world,
        {
            "1.log": "short",
            "2.log": long,
            "3.log": long,
            "4.log": long,
            "3.log.00000000-000001": "kept",
            "3.log.00000000-000000.gz": "excess",
        },
    )
    for i in (1, 2, 3):
        world.manager.process_container(_CTX, f"c{i}", 1)
    assert world.files() == [
        "1.log",
        f"2.log.{world.stamp}",
        "3.log.00000000-000001.gz",
        f"3.log.{world.stamp}",
        "4.log",
    ]
    assert gzip.decompress((tmp_path / "3.log.00000000-000001.gz").read_bytes()) == b"kept"
    assert world.runtime.requests("ReopenContainerLog") == [("c2",), ("c3",)]


def test_workers_are_given_running_containers_alone(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.run(_RUNNING, runtimeapi.CONTAINER_EXITED, _RUNNING)
    _fill(world, {f"{i}.log": "longer than 10 bytes" for i in (1, 2, 3)})
    ctx, cancel = golang.with_cancel(_CTX)
    reopened: golang.Channel[str] = golang.Channel(10)

    def on_call(call: testing.Call) -> None:
        if call.method == "ReopenContainerLog":
            reopened.send(call.args[0])

    world.runtime.on_call = on_call
    world.manager.start(ctx)
    assert [reopened.recv(timeout=30)[0] for _ in range(2)] == ["c1", "c3"]
    cancel()
    assert "2.log" in world.files()


def test_rotation_goes_on_after_the_runtime_was_down(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.run(_RUNNING)
    _fill(world, {"1.log": "longer than 10 bytes"})
    world.runtime.inject_error("ReopenContainerLog", crierror.RemoteError(grpc.StatusCode.UNKNOWN, "down"))
    world.manager.process_container(_CTX, "c1", 1)
    assert world.files() == ["1.log"], "moved back"
    world.manager.process_container(_CTX, "c1", 1)
    assert world.files() == [f"1.log.{world.stamp}"]


def test_log_that_the_runtime_has_reopened_is_kept_when_its_answer_is_lost(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.run(_RUNNING)
    _fill(world, {"1.log": "longer than 10 bytes"})

    def on_call(call: testing.Call) -> None:
        if call.method == "ReopenContainerLog":
            (tmp_path / "1.log").write_text("new")

    world.runtime.on_call = on_call
    late = crierror.RemoteError(grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")
    world.runtime.inject_error("ReopenContainerLog", late)
    world.manager.process_container(_CTX, "c1", 1)
    assert world.files() == ["1.log", f"1.log.{world.stamp}"]
    assert (tmp_path / "1.log").read_text() == "new"


def test_log_lost_in_an_interrupted_rotation_is_reopened(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.run(_RUNNING)
    world.manager.process_container(_CTX, "c1", 1)
    assert world.runtime.requests("ReopenContainerLog") == [("c1",)]


def test_unknown_container_is_logged_and_left(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.manager.process_container(_CTX, "gone", 1)
    assert world.runtime.called() == ["ContainerStatus"]


@pytest.mark.parametrize(("suffix", "data"), [("", b"older"), (".gz", gzip.compress(b"older"))], ids=["plain", "gz"])
def test_rotated_log_of_the_same_second_is_kept(tmp_path: Path, suffix: str, data: bytes) -> None:
    world = _World(tmp_path, max_files=5)
    world.run(_RUNNING)
    (tmp_path / f"1.log.{world.stamp}{suffix}").write_bytes(data)
    _fill(world, {"1.log": "longer than 10 bytes"})
    world.manager.process_container(_CTX, "c1", 1)
    assert gzip.decompress((tmp_path / f"1.log.{world.stamp}.gz").read_bytes()) == b"older"
    assert (tmp_path / "1.log").read_text() == "longer than 10 bytes"
    world.clock.step(1)
    world.manager.process_container(_CTX, "c1", 1)
    assert "1.log" not in world.files()
    assert len(world.files()) == 2


def test_clean_removes_all_logs_of_one_container(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.run(_RUNNING, _RUNNING)
    _fill(
        world,
        dict.fromkeys(("1.log", "1.log.00000000-000000.gz", "2.log", "2.log.0.gz", "2.log.1"), ""),
    )
    world.manager.clean(_CTX, "c2")
    assert world.files() == ["1.log", "1.log.00000000-000000.gz"]


class _HeldRotation:
    """Hold the rotation of c1's log until `finish`: the runtime does not respond."""

    def __init__(self, world: _World) -> None:
        held: golang.Channel[None] = golang.Channel()
        self._release: golang.Channel[None] = golang.Channel()

        def on_call(call: testing.Call) -> None:
            if call.method == "ReopenContainerLog":
                held.send(None)
                self._release.recv(timeout=30)

        world.runtime.on_call = on_call
        self._thread = golang.go(world.manager.process_container, _CTX, "c1", 1, name="rotation")
        held.recv(timeout=30)

    def finish(self) -> None:
        self._release.close()
        self._thread.join(timeout=30)


@pytest.mark.parametrize("log_path", ["", "file"])
def test_clean_removes_nothing_for_a_container_without_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    world = _World(tmp_path)
    status = runtimeapi.ContainerStatus(id="c1", state=runtimeapi.CONTAINER_EXITED, log_path=log_path)
    world.runtime.set_fake_containers([testing.FakeContainer(status, "sandbox")])
    _fill(world, {"file": "of somebody"})
    world.manager.clean(_CTX, "c1")
    assert world.files() == ["file"]


def test_clean_waits_for_the_rotation_of_the_container(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.run(_RUNNING)
    _fill(world, {"1.log": "longer than 10 bytes"})
    rotation = _HeldRotation(world)
    cleaning = golang.go(world.manager.clean, _CTX, "c1", name="cleaning")
    # `clean` asks where the logs are, and then waits for the rotation.
    asked = ["ContainerStatus", "ReopenContainerLog", "ContainerStatus"]
    wait_until_equal("calls", world.runtime.called, asked)
    cleaning.join(timeout=0.1)
    assert cleaning.is_alive()
    rotation.finish()
    cleaning.join(timeout=30)
    assert world.files() == []


def test_no_worker_waits_for_another_that_rotates_the_same_log(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.run(_RUNNING)
    _fill(world, {"1.log": "longer than 10 bytes"})
    rotation = _HeldRotation(world)
    world.manager.process_container(_CTX, "c1", 2)
    assert world.runtime.called() == ["ContainerStatus", "ReopenContainerLog"]
    rotation.finish()


def test_unused_logs_go(tmp_path: Path) -> None:
    world = _World(tmp_path, max_files=9)
    world.run(_RUNNING)
    _fill(
        world,
        {
            "1.log": "longer than 10 bytes",
            "1.log.1.tmp": "half written",
            "1.log.2": "compressed already",
            "1.log.2.gz": "",
        },
    )
    world.manager.process_container(_CTX, "c1", 1)
    assert world.files() == ["1.log.2.gz", f"1.log.{world.stamp}"]


@pytest.mark.parametrize(("max_files", "left"), [(2, []), (3, ["4"]), (4, ["3", "4"]), (9, ["1", "2", "3", "4"])])
def test_excess_logs_go_oldest_first(tmp_path: Path, max_files: int, left: list[str]) -> None:
    world = _World(tmp_path, max_files=max_files)
    world.run(_RUNNING)
    _fill(world, {"1.log": "longer than 10 bytes", **{f"1.log.{i}.gz": "" for i in (3, 1, 2, 4)}})
    world.manager.process_container(_CTX, "c1", 1)
    assert world.files() == sorted([*(f"1.log.{i}.gz" for i in left), f"1.log.{world.stamp}"])


def test_get_all_logs(tmp_path: Path) -> None:
    names = ("1.log", "1.log.20060102-150405", "1.log.20060101-150405.gz", "1.log.20060101-150405", "1.log.x.tmp")
    for name in names:
        (tmp_path / name).touch()
    assert [Path(path).name for path in logs.get_all_logs(str(tmp_path / "1.log"))] == [
        "1.log.20060101-150405.gz",
        "1.log.20060102-150405",
        "1.log",
    ]


def test_compressed_log_keeps_its_mode(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.run(_RUNNING)
    _fill(world, {"1.log": "longer than 10 bytes", "1.log.1": "text"})
    (tmp_path / "1.log.1").chmod(0o640)
    world.manager.process_container(_CTX, "c1", 1)
    assert (tmp_path / "1.log.1.gz").stat().st_mode & 0o777 == 0o640


def test_compressed_log_is_on_the_disk_before_the_other_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []

    def fsync(descriptor: int) -> None:
        assert (tmp_path / "1.log.1").exists()
        synced.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())

    monkeypatch.setattr(os, "fsync", fsync)
    world = _World(tmp_path)
    world.run(_RUNNING)
    _fill(world, {"1.log": "longer than 10 bytes", "1.log.1": "text"})
    world.manager.process_container(_CTX, "c1", 1)
    assert [gzip.decompress(data) for data in synced] == [b"text"]


@pytest.mark.parametrize(
    ("max_size", "max_files", "fault"),
    [("10Mi", 1, "invalid MaxFiles 1, must be > 1"), ("lots", 2, 'failed to parse container log max size "lots"')],
)
def test_bad_settings(max_size: str, max_files: int, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        logs.new_container_log_manager(
            testing.FakeRuntimeService(),
            kubecontainer.RealOS(),
            max_size,
            max_files,
            1,
            10.0,
            testingclock.FakeClock(),
        )


def test_negative_size_switches_rotation_off() -> None:
    manager = logs.new_container_log_manager(
        testing.FakeRuntimeService(), kubecontainer.RealOS(), "-1", 2, 1, 10.0, testingclock.FakeClock()
    )
    assert isinstance(manager, logs.ContainerLogManagerStub)


@failures
def test_log_that_cannot_be_rotated_does_not_end_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    world = _World(tmp_path)
    world.run(_RUNNING, _RUNNING)
    _fill(world, {"1.log": "longer than 10 bytes", "2.log": "longer than 10 bytes"})
    monkeypatch.setattr(world.manager, "_rotate_log", failing_once(world.manager._rotate_log, err))
    ctx, cancel = golang.with_cancel(golang.background())
    with golang.ThreadGroup() as group:
        golang.go(world.manager._process_queue_items, ctx, 1, name="log-rotate-1")
    # A worker receives a container only when it has finished the one before it.
    for container_id in ("c1", "c2", "none"):
        world.manager._queue.send(container_id, ctx)
    assert world.files() == ["1.log", f"2.log.{world.stamp}"]
    cancel()
    assert group.join(30) == []


def test_worker_ends_with_a_call_that_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World(tmp_path)
    ctx, cancel = golang.with_cancel(golang.background())

    def process(*args: object) -> None:
        cancel()
        raise golang.Canceled

    monkeypatch.setattr(world.manager, "process_container", process)
    with golang.ThreadGroup() as group:
        golang.go(world.manager._process_queue_items, ctx, 1, name="log-rotate-1")
    world.manager._queue.send("c1", ctx)
    assert group.join(30) == []
