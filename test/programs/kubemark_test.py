"""Test the hollow node as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from framework.containerd import ROOT
from framework.hollow_kubelet import HollowKubelet
from framework.pods import pod, sleeper
from framework.ports import free_port
from kubelet_cmd.kubelet.app import configuration
from kubelet_cmd.kubemark.app import hollow_node, hollow_options

from pkg import golang


@contextmanager
def _kubemark(*flags: str, tmp: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the process, and kill it if it does not exit in time, so that a reader of its output sees the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "cmd.kubemark", *flags],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        killer = threading.Timer(60, process.kill)
        killer.start()
        try:
            yield process
        except BaseException:
            process.kill()  # Otherwise the process would continue, and Popen would wait for its exit.
            raise
        finally:
            killer.cancel()
            killer.join()


def test_with_a_runtime_and_directory_of_its_own(tmp_path: Path) -> None:
    flags = ("--name=hollow", f"--port={free_port()}", "--healthz-port=0", "--read-only-port=0", "--v=2")
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
        assert (directory / "kubelet" / "pki" / "kubelet.key").is_file()
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(30) == 0
    assert list(tmp_path.iterdir()) == []


def test_directory_is_removed_once_no_thread_writes_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Command:
        """Run a command that leaves a thread with unfinished work behind."""

        def __init__(self, make_dependencies: object) -> None:
            pass

        def execute(self, flags: list[str]) -> int:
            [root] = [flag.partition("=")[2] for flag in flags if flag.startswith("--root-dir=")]
            golang.go(write, Path(root), name="late-writer")
            return 0

    def write(root: Path) -> None:
        for number in range(1000):
            pod = root / "pods" / str(number)
            pod.mkdir(parents=True)
            (pod / "file").touch()

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(hollow_node.server, "KubeletCommand", Command)
    assert hollow_node.new_hollow_node_command().execute([]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "{temporary}/kubelet/pki"),
        (["--root-dir=n1"], "n1/pki"),
        (["--root-dir", "n1"], "n1/pki"),
        (["--root-dir=n1", "--cert-dir=certificates"], "certificates"),
    ],
)
def test_no_two_nodes_have_one_directory_of_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], expected: str
) -> None:
    """Each node has its own certificate directory.

    A node uses the certificate that it finds. With the certificate of another node, the API server would mistake it for
    that node.
    """
    directories = list[str]()

    class Command:
        def __init__(self, make_dependencies: object) -> None:
            pass

        def execute(self, flags: list[str]) -> int:
            [temporary] = tmp_path.iterdir()
            directory = configuration.parse_flags(flags).kubelet_flags.cert_directory
            directories.append(directory.replace(str(temporary), "{temporary}"))
            return 0

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(hollow_node.server, "KubeletCommand", Command)
    assert hollow_node.new_hollow_node_command().execute(flags) == 0
    assert directories == [expected]


def test_kubelet_flag_that_is_refused(tmp_path: Path) -> None:
    with _kubemark("--max-pods=-1", tmp=tmp_path) as process:
        assert process.stdout is not None
        assert "maxPods" in process.stdout.read()
        assert process.wait(30) == 1
    assert list(tmp_path.iterdir()) == []


def test_help_and_own_flags(tmp_path: Path) -> None:
    with _kubemark("--help", tmp=tmp_path) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        assert all(flag in said for flag in ("--latency", "--config", "--kubeconfig"))
        assert process.wait(30) == 0
    with _kubemark("--latency=soon", tmp=tmp_path) as process:
        assert process.stdout is not None
        assert "unknown method 'soon': expected * or one of Version, RunPodSandbox" in process.stdout.read()
        assert process.wait(30) == 2


@pytest.mark.parametrize(
    ("flag", "fault"),
    [
        ("Foo=1", "unknown method 'Foo'"),
        ("Version", "expected METHOD=SECONDS, got 'Version'"),
        ("Version=soon", "expected METHOD=SECONDS, got 'Version=soon'"),
        ("Version=-1", "expected METHOD=SECONDS, got 'Version=-1'"),
        ("*=nan", "expected METHOD=SECONDS, got '*=nan'"),
    ],
)
def test_latency_that_means_nothing(capsys: pytest.CaptureFixture[str], flag: str, fault: str) -> None:
    with pytest.raises(SystemExit):
        hollow_options.new_parser().parse_args([f"--latency={flag}"])
    assert fault in capsys.readouterr().err


def test_latency_of_a_method_and_of_all() -> None:
    flags = hollow_options.new_parser().parse_args(["--latency=Version=0.5", "--latency=*=2"])
    assert flags.latency == [("Version", 0.5), ("*", 2.0)]


def test_pods_run_and_go(tmp_path: Path) -> None:
    node = HollowKubelet(tmp_path, "hollow")
    started = node.runtime.recorder.counts
    try:
        node.server.start()
        node.start()
        node.write(pod("web", sleeper()))
        node.wait_for_condition("the container starts", lambda: started.get("StartContainer"))
        [container] = node.runtime.containers
        assert container.sandbox.config.metadata.name == "web-hollow"
        node.remove("web")
        node.wait_for_condition("the sandbox stops", lambda: started.get("StopPodSandbox"))
        assert node.stop() == 0
    finally:
        node.end()
