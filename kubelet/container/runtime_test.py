"""Test the types of the runtime, its cache, garbage collection and system calls.

Go: pkg/kubelet/container/runtime_test.go, runtime_cache_test.go, container_gc.go, os.go
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from kubelet import container as kubecontainer
from kubelet.config.testing import FakeSourcesReady
from kubelet.container import testing as containertest
from pkg import golang, mount_utils
from pkg.apimachinery import types
from pkg.apimachinery.clock import testing as testingclock

CTX = golang.background()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("containerd://abc", ("containerd", "abc")),
        ('"containerd://abc"', ("containerd", "abc")),
        ("abc", ("", "")),
        ("", ("", "")),
        ("a://b://c", ("", "")),
    ],
)
def test_parse_container_id(text: str, expected: tuple[str, str]) -> None:
    id = kubecontainer.parse_container_id(text)
    assert (id.type, id.id) == expected
    assert id.is_empty() is (expected == ("", ""))


def test_container_id_string() -> None:
    assert str(kubecontainer.build_container_id("containerd", "abc")) == "containerd://abc"


@pytest.mark.parametrize("text", ["", "name", "_", "a_", "_b", "a_b_c"])
def test_parse_bad_pod_full_name(text: str) -> None:
    with pytest.raises(ValueError, match="failed to parse the pod full name"):
        kubecontainer.parse_pod_full_name(text)


def test_pod_full_name() -> None:
    assert kubecontainer.build_pod_full_name("n", "ns") == "n_ns"
    assert kubecontainer.parse_pod_full_name("n_ns") == ("n", "ns")


def test_find_pod() -> None:
    pods = kubecontainer.Pods(
        [
            kubecontainer.Pod(id=types.UID("1"), name="a", namespace="ns"),
            kubecontainer.Pod(id=types.UID("2"), name="b", namespace="ns"),
        ]
    )
    assert pods.find_pod_by_id(types.UID("2")) is pods[1]
    assert pods.find_pod("a_ns", types.UID("2")) is pods[0]
    assert pods.find_pod("", types.UID("2")) is pods[1]
    assert pods.find_pod("c_ns", types.UID("")).is_empty()
    assert not pods[0].is_empty()


def test_find_in_pod() -> None:
    ids = [kubecontainer.ContainerID("t", id) for id in "123"]
    pod = kubecontainer.Pod(
        containers=[kubecontainer.Container(id=ids[0], name="c"), kubecontainer.Container(id=ids[1], name="c")],
        sandboxes=[kubecontainer.Container(id=ids[2])],
    )
    assert pod.find_container_by_name("c") is pod.containers[0]
    assert pod.find_container_by_id(ids[1]) is pod.containers[1]
    assert pod.find_container_by_id(ids[2]) is None
    assert pod.find_sandbox_by_id(ids[2]) is pod.sandboxes[0]
    assert [c.name for c in pod.to_api_pod().spec.containers] == ["c", "c"]


def test_runtime_status() -> None:
    status = kubecontainer.RuntimeStatus(
        conditions=[kubecontainer.RuntimeCondition("RuntimeReady", True, "r", "m")],
        handlers=[kubecontainer.RuntimeHandler("runc", True)],
    )
    assert str(status) == (
        "Runtime Conditions: RuntimeReady=true reason:r message:m; Handlers: Name=runc "
        "SupportsRecursiveReadOnlyMounts: true SupportsUserNamespaces: false, Features: nil"
    )
    assert status.get_runtime_condition(kubecontainer.RUNTIME_READY) is status.conditions[0]
    assert status.get_runtime_condition(kubecontainer.NETWORK_READY) is None


def test_sort_container_statuses_by_creation_time() -> None:
    times = [datetime.datetime(2026, 1, day, tzinfo=datetime.UTC) for day in (3, 1, 2)]
    statuses = [kubecontainer.Status(created_at=time) for time in (*times, None)]
    days = [s.created_at for s in kubecontainer.sort_container_statuses_by_creation_time(statuses)]
    assert days == [None, *sorted(times)]


def test_restarted_containers_are_newer_also_when_the_clock_was_set_back() -> None:
    times = [datetime.datetime(2026, 1, day, tzinfo=datetime.UTC) for day in (3, 1, 2)]
    statuses = [kubecontainer.Status(created_at=time, restart_count=count) for count, time in enumerate(times)]
    assert kubecontainer.sort_container_statuses_by_creation_time(statuses[::-1]) == statuses


def test_runtime_cache() -> None:
    clock = testingclock.FakeClock()
    runtime = containertest.FakeRuntime(pod_list=[containertest.FakePod(kubecontainer.Pod(id=types.UID("1")))])
    cache = kubecontainer.RuntimeCacheImpl(runtime, 2.0, clock)
    assert [pod.id for pod in cache.get_pods(CTX)] == ["1"]
    clock.step(2)
    cache.get_pods(CTX)
    runtime.assert_calls(["get_pods"])
    clock.step(0.1)
    cache.get_pods(CTX)
    runtime.assert_calls(["get_pods"] * 2)
    cache.force_update_if_older(CTX, clock.now())
    runtime.assert_calls(["get_pods"] * 2)
    cache.force_update_if_older(CTX, clock.now() + datetime.timedelta(seconds=1))
    runtime.assert_calls(["get_pods"] * 3)


def test_runtime_cache_when_the_clock_is_set_back() -> None:
    clock = testingclock.FakeClock()
    runtime = containertest.FakeRuntime()
    cache = kubecontainer.RuntimeCacheImpl(runtime, 2.0, clock)
    cache.get_pods(CTX)
    clock.set_time(clock.now() - datetime.timedelta(hours=1))
    clock.step(3)
    cache.get_pods(CTX)
    runtime.assert_calls(["get_pods"] * 2)
    clock.step(1)
    cache.force_update_if_older(CTX, clock.steady())
    runtime.assert_calls(["get_pods"] * 3)


def test_container_gc() -> None:
    runtime = containertest.FakeRuntime()
    policy = kubecontainer.GCPolicy(0, 1, -1)
    gc = kubecontainer.RealContainerGC(runtime, policy, FakeSourcesReady())
    gc.garbage_collect(CTX)
    gc.delete_all_unused_containers(CTX)
    runtime.assert_calls(["garbage_collect"] * 2)
    with pytest.raises(ValueError, match="invalid minimum garbage collection age"):
        kubecontainer.RealContainerGC(runtime, kubecontainer.GCPolicy(-1, 1, -1), FakeSourcesReady())


def test_real_os(tmp_path: Path) -> None:
    real = kubecontainer.RealOS()
    folder = str(tmp_path / "a/b")
    real.mkdir_all(folder, 0o755)
    real.mkdir_all(folder, 0o755)
    with real.create(f"{folder}/file") as file:
        file.write(b"x")
    real.symlink(f"{folder}/file", f"{folder}/link")
    real.chtimes(f"{folder}/file", 10, 20)
    assert real.stat(f"{folder}/link").st_mtime == 20
    assert [entry.name for entry in real.read_dir(folder)] == ["file", "link"]
    assert real.glob(f"{folder}/f*") == [f"{folder}/file"]
    with real.open_file(f"{folder}/file", os.O_WRONLY | os.O_APPEND, 0) as file:
        file.write(b"y")
    with real.open(f"{folder}/link") as file:
        assert file.read() == b"xy"
    real.rename(f"{folder}/file", f"{folder}/other")
    real.remove(f"{folder}/link")  # The link dangles by now.
    with pytest.raises(OSError, match="not empty"):
        real.remove(folder)
    real.remove_all(folder)
    real.remove_all(folder)
    assert os.listdir(tmp_path / "a") == []
    reader, writer = real.pipe()
    with reader, writer:
        writer.write(b"z")
        writer.flush()
        assert reader.read(1) == b"z"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_folder_is_not_removed_while_something_is_mounted_in_it(tmp_path: Path) -> None:
    """A directory that a container has mounted below the node's logs with bidirectional propagation is not removed."""
    mounter = mount_utils.Mounter()
    for name in ("logs/pod", "server"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "server/file").write_text("x")
    mounter.mount(str(tmp_path / "server"), str(tmp_path / "logs/pod"), "", ["bind"])
    try:
        with pytest.raises(OSError, match="is a mount point"):
            kubecontainer.RealOS().remove_all(str(tmp_path / "logs"))
        assert (tmp_path / "server/file").exists()
    finally:
        mounter.unmount(str(tmp_path / "logs/pod"))
