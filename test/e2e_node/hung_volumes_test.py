"""Test NFS servers that do not respond: their pod waits, but the rest of the node does not.

The tests replace the node's mount(8) by a program that asks the test's server, over TCP, before it claims to have
mounted.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, pod, sleeper
from framework.silent_filesystem import SilentFilesystem
from framework.waiting import wait_for

from pkg import golang, mount_utils

# An action that takes longer than this many seconds waits for a server.
SOON = 90.0

MOUNT = """#!/bin/bash
for word; do
  if [ "$word" = nfs ]; then
    exec 3<>/dev/tcp/127.0.0.1/$(<{port})
    echo "${{@: -1}}" >&3
    read -r -u 3 answer
    [ "$answer" = mounted ] && exit 0
    echo "mount.nfs: $answer" >&2
    exit 32
  fi
done
exec {mount} "$@"
"""


class Server:
    """Run an NFS server on which each mount waits until a test answers it."""

    def __init__(self, port: Path) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        port.write_text(f"{self._listener.getsockname()[1]}\n")
        self.asked = threading.Event()
        self.filesystems: list[SilentFilesystem] = []
        self._answer: golang.Channel[str] = golang.Channel()
        self._thread = golang.go(self._serve, name="nfs-server")

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                target = connection.makefile().readline().strip()
                self.asked.set()
                answer, ok = self._answer.recv()
                if not ok or answer is None:
                    return
                if answer == "mounted":
                    self.filesystems.append(SilentFilesystem(target))
                with contextlib.suppress(OSError):
                    connection.sendall(f"{answer}\n".encode())

    def answer(self, text: str) -> None:
        """Answer the next mount, or the one that waits, with `mounted` or with an error."""
        self._answer.send(text)

    def close(self) -> None:
        for filesystem in self.filesystems:
            filesystem.close()
        self._answer.close()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(SOON)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a file with the server's port."""
    return tmp_path_factory.mktemp("server") / "port"


@pytest.fixture(scope="module")
def kubelet(
    new_kubelet: Callable[..., KubeletProcess], port: Path, tmp_path_factory: pytest.TempPathFactory
) -> KubeletProcess:
    programs = tmp_path_factory.mktemp("bin")
    real = shutil.which("mount")
    assert real is not None
    (programs / "mount").write_text(MOUNT.format(port=port, mount=shlex.quote(real)))
    (programs / "mount").chmod(0o755)
    process = new_kubelet("hung", {"volumeStatsAggPeriod": "5s"})
    process.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    process.start()
    return process


@pytest.fixture
def server(port: Path) -> Iterator[Server]:
    server = Server(port)
    try:
        yield server
    finally:
        server.close()


def mounts_below(path: Path) -> list[str]:
    """List the mounts below the path. The mount table can be read without asking a server."""
    table = mount_utils.parse_mount_info(mount_utils.MOUNT_INFO)
    return [each.mount_point for each in table if each.fs_type == "fuse" and each.mount_point.startswith(f"{path}/")]


def nfs(name: str) -> Manifest:
    mounts: list[dict[str, object]] = [
        {"name": "v", "mountPath": "/v"},
        {"name": "v", "mountPath": "/bound", "subPath": "."},
    ]
    main = sleeper(volumeMounts=mounts)
    return pod(name, main, volumes=[{"name": "v", "nfs": {"server": "127.0.0.1", "path": "/export"}}])


def all_goes_on(kubelet: KubeletProcess, name: str) -> None:
    """Check that a new pod runs and ends, and that the kubelet's server responds."""
    kubelet.write(pod(name, sleeper()))
    kubelet.wait_for_running(name)
    assert kubelet.get("/healthz", kubelet.healthz_port) == "ok"
    assert kubelet.get("/metrics") and kubelet.pods()[name].running
    assert f'"{kubelet.full_name(name)}"' in kubelet.get("/stats/summary")
    kubelet.remove(name)
    kubelet.wait_for(f"pod {name} is gone", lambda pods: name not in pods, SOON)


def told(kubelet: KubeletProcess, reason: str, text: str) -> None:
    """Wait for an event with the text. The log may show the text in several lines."""
    wait_for(
        f"an event {reason} with {text}",
        lambda: text in kubelet.log.read_text(errors="replace").partition(f'reason="{reason}"')[2],
        timeout=SOON,
        describe=kubelet.end_of_log,
    )


def gone(kubelet: KubeletProcess, name: str, uid: str) -> None:
    """Remove the pod, and wait until nothing of the pod is left."""
    kubelet.remove(name)
    kubelet.wait_for("the pod is gone", lambda pods: name not in pods, 2 * SOON)
    wait_for(
        "the pod's directory is gone",
        lambda: uid not in kubelet.pod_directories(),
        timeout=2 * SOON,
        describe=kubelet.end_of_log,
    )
    assert mounts_below(kubelet.root_dir) == []


def test_server_that_does_not_answer_a_mount(kubelet: KubeletProcess, server: Server) -> None:
    kubelet.write(nfs("waits"))
    assert server.asked.wait(SOON), kubelet.end_of_log()
    all_goes_on(kubelet, "beside-a-mount")
    waiting = kubelet.pods()["waits"]
    assert waiting.phase == "Pending" and waiting.state().get("reason") == "ContainerCreating"
    server.answer("Connection refused")
    told(kubelet, "FailedMount", "mount.nfs: Connection refused")
    server.answer("mounted")
    (found,) = kubelet.wait_for_running("waits")
    gone(kubelet, "waits", found.uid)


def test_server_that_falls_silent(kubelet: KubeletProcess, server: Server) -> None:
    """A server that stops responding blocks nothing else, neither while its pod runs nor while the pod terminates."""
    kubelet.write(nfs("runs"))
    server.answer("mounted")
    (found,) = kubelet.wait_for_running("runs")
    path, _bound = mounts_below(kubelet.root_dir)
    (filesystem,) = server.filesystems
    filesystem.go_silent()
    looks = subprocess.Popen(["stat", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert filesystem.somebody_waits.wait(SOON)
        wait_for(
            "a failed measurement of the volume",
            lambda: '"Failed to calculate volume metrics"' in kubelet.log.read_text(errors="replace"),
            timeout=SOON,
            describe=kubelet.end_of_log,
        )
        all_goes_on(kubelet, "beside-a-silent-one")
        kubelet.stop(timeout=SOON)
        kubelet.start()
        kubelet.wait_for_running("runs")
        all_goes_on(kubelet, "after-a-restart")
        assert looks.poll() is None
    finally:
        looks.kill()
    gone(kubelet, "runs", found.uid)
    looks.wait(SOON)
