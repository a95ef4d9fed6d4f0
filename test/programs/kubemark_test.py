"""The hollow node as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from framework.hollow import ROOT, HollowNode
from framework.waiting import wait_for


@contextmanager
def _kubemark(*flags: str, tmp: Path) -> Iterator[subprocess.Popen[str]]:
    """The process, killed if it does not end in time, so that whoever reads its output reads its end."""
    with subprocess.Popen(
        [sys.executable, "-m", "cmd.kubemark", *flags],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        killer = threading.Timer(30, process.kill)
        killer.start()
        try:
            yield process
        finally:
            killer.cancel()
            killer.join()


def test_with_a_runtime_and_directory_of_its_own(tmp_path: Path) -> None:
    flags = ("--name=hollow", "--healthz-port=0", "--read-only-port=0", "--v=2")
    with _kubemark(*flags, tmp=tmp_path) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        assert "NO CONTAINER RUNS" in lines[0]
        while "Starting kubelet main sync loop" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        [directory] = tmp_path.iterdir()
        assert (directory / "cri.sock").is_socket()
        assert (directory / "kubelet" / "pods").is_dir()
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(10) == 0
    assert list(tmp_path.iterdir()) == []


def test_kubelet_flag_that_is_refused(tmp_path: Path) -> None:
    with _kubemark("--max-pods=-1", tmp=tmp_path) as process:
        assert process.stdout is not None
        assert "maxPods" in process.stdout.read()
        assert process.wait(10) == 1
    assert list(tmp_path.iterdir()) == []


def test_help_and_own_flags(tmp_path: Path) -> None:
    with _kubemark("--help", tmp=tmp_path) as process:
        assert process.stdout is not None
        assert "--latency" in process.stdout.read()
        assert process.wait(10) == 0
    with _kubemark("--latency=soon", tmp=tmp_path) as process:
        assert process.stdout is not None
        assert "expected METHOD=SECONDS, got 'soon'" in process.stdout.read()
        assert process.wait(10) == 2


def test_pods_run_and_go(tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "web:1"}]},
    }
    with HollowNode(tmp_path, "--hostname-override=hollow") as node:
        manifest = node.manifests / "web.yaml"
        manifest.write_text(yaml.safe_dump(pod))
        wait_for("the container starts", lambda: node.called("StartContainer"), timeout=30)
        [container] = node.runtime.containers
        assert container.sandbox.config.metadata.name == "web-hollow"
        manifest.unlink()
        wait_for("the sandbox stops", lambda: node.called("StopPodSandbox"), timeout=30)
        assert node.stop() == 0
