"""Test the kubelet's command as a process: its output, its errors and its exit.

Go: cmd/kubelet/app/server_test.go
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from kubelet_cmd.kubelet.app import server

from pkg.util import flock

_ROOT = Path(__file__).parents[2]
_HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

# Run a kubelet with other work, in order to test the process around it.
_WITH_OTHER_WORK = """
import sys
from kubelet_cmd.kubelet.app import server

def run(ctx, *rest):
    print("started", flush=True)
    {work}

server.run = run
server.exit_process(server.new_kubelet_command().execute(sys.argv[1:]))
"""


def node(root: Path) -> list[str]:
    """Return the flags of a kubelet that writes nothing outside its root directory."""
    return [f"--root-dir={root}", f"--cert-dir={root}/pki", "--fail-cgroupv1=false"]


def _kubelet(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cmd.kubelet", *args]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False)


def _start(work: str, root: Path, stderr: IO[str] | int = subprocess.PIPE) -> subprocess.Popen[str]:
    code = _WITH_OTHER_WORK.format(work=work)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *node(root)],
        cwd=_ROOT,
        # As in a service, the output is buffered.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


@pytest.mark.parametrize(
    ("args", "output"),
    [
        (["--version"], "Kubernetes v1.36.2 (python kubelet 0.1.0)\n"),
        (["--version=true"], "Kubernetes v1.36.2 (python kubelet 0.1.0)\n"),
        (["--version=raw"], "Info(major='1', minor='36', git_version='v1.36.2'"),
        (["--help"], "The kubelet is the agent of a Kubernetes node."),
        (["-h"], "The kubelet is the agent of a Kubernetes node."),
        (["config", "explain", "--help"], "The kubelet is the agent of a Kubernetes node."),
        (["explain", "pod", "--help"], "The kubelet is the agent of a Kubernetes node."),
        (["orphans", "--remove", "--help"], "The kubelet is the agent of a Kubernetes node."),
        (["orphans", "--version"], "Kubernetes v1.36.2 (python kubelet 0.1.0)\n"),
    ],
)
def test_what_is_printed(args: list[str], output: str) -> None:
    result = _kubelet(*args)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(output)


def test_help_lists_flags_by_name() -> None:
    flags = [line.split()[0] for line in _kubelet("--help").stdout.splitlines() if line.startswith("      --")]
    assert flags == sorted(flags)
    assert {"--config", "--config-dir", "--root-dir", "--pod-manifest-path", "--feature-gates"} <= set(flags)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--bogus"], "Error: failed to parse kubelet flag: unknown flag: --bogus\n"),
        (["run"], "Error: unknown command run\n"),
        (["config", "explain", "-o", "xml"], 'Error: unknown output format "xml": expected table or json\n'),
        (["--config=/none/a.yaml"], "Error: failed to load kubelet config file, path: /none/a.yaml, error: "),
        (["--tls-min-version=VersionTLS9"], 'unknown tls version "VersionTLS9"\n'),
        (["--tls-cipher-suites=A"], "Cipher suite A not supported or doesn't exist\n"),
        (
            ["--bootstrap-kubeconfig=/none"],
            "Error: failed to run Kubelet: --bootstrap-kubeconfig needs --kubeconfig, the file for the node's own "
            "credentials\n",
        ),
        (
            ["--kubeconfig=/none/kubeconfig"],
            "invalid kubeconfig: [Errno 2] No such file or directory: '/none/kubeconfig'\n",
        ),
        (["--vmodule=a"], '"a" does not have the pattern=N format\n'),
        (
            ["--exit-on-lock-contention"],
            "Error: failed to run Kubelet: cannot exit on lock file contention: no lock file specified\n",
        ),
        (
            ["--kube-reserved=gpu=1"],
            'Error: failed to run Kubelet: --kube-reserved value failed to parse: cannot reserve "gpu" resource\n',
        ),
    ],
)
def test_refusals(args: list[str], message: str, tmp_path: Path) -> None:
    more = [] if args[0] in ("config", "run") else [*node(tmp_path), "--healthz-port=0"]
    result = _kubelet(*args, *more)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_all_faults_of_a_configuration_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(_HEAD + "maxPods: -1\nport: 70000\nhairpinMode: none\nfailCgroupV1: false\n")
    result = _kubelet(f"--config={path}")
    assert result.returncode == 1
    assert result.stderr == (
        "Error: failed to validate kubelet configuration:\n"
        "  invalid configuration: maxPods (--max-pods) -1 must not be a negative number\n"
        "  invalid configuration: port (--port) 70000 must be between 1 and 65535, inclusive\n"
    )


def test_explain(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(_HEAD + "maxPods: 5\nfailCgroupV1: false\n")
    result = _kubelet("config", "explain", "-o=json", f"--config={path}", "--v=2")
    assert result.returncode == 0, result.stderr
    rows = {row["field"]: row for row in json.loads(result.stdout)}
    assert rows["maxPods"] == {"field": "maxPods", "value": 5, "source": f"file {path}"}
    assert rows["logging.verbosity"] == {"field": "logging.verbosity", "value": 2, "source": "flag --v"}


def test_explain_shows_an_invalid_configuration_too(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(_HEAD + "maxPods: -1\nfailCgroupV1: false\n")
    result = _kubelet("config", "explain", f"--config={path}")
    assert result.returncode == 1
    assert "maxPods" in result.stdout
    assert "-1 must not be a negative number" in result.stderr


@pytest.mark.parametrize(("flags", "lines"), [([], 1), (["--anonymous-auth=false", "--read-only-port=0"], 0)])
def test_who_starts_a_kubelet_that_is_open_to_everybody_is_told(flags: list[str], lines: int, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = _kubelet(*node(tmp_path / "file" / "root"), *flags)
    told = [line for line in result.stderr.splitlines() if "OPEN TO EVERYBODY" in line]
    assert len(told) == lines, result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: root directory"), "the line came before the start"


# The following tests are about the root directory.


def test_a_second_kubelet_names_the_first(tmp_path: Path) -> None:
    flock.try_acquire(str(tmp_path / "kubelet.lock"))
    result = _kubelet(*node(tmp_path))
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        f"Error: root directory {tmp_path} is in use by process {os.getpid()}, which holds the lock "
        f"{tmp_path}/kubelet.lock; stop it, or choose another directory with --root-dir"
    )


def test_an_unusable_root_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    root = tmp_path / "file" / "root"
    result = _kubelet(*node(root))
    assert result.returncode == 1
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert errors == [f"Error: root directory {root} cannot be used: Not a directory: {root.parent}"]


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    # Writing to this device fails as on a full disk.
    (tmp_path / "kubelet.lock").symlink_to("/dev/full")
    result = _kubelet(*node(tmp_path))
    assert result.returncode == 1
    line = result.stderr.splitlines()[-1]
    assert line == f"Error: root directory {tmp_path} cannot be used: No space left on device: {tmp_path}"


def test_a_log_on_a_full_disk_keeps_it_from_nothing(tmp_path: Path) -> None:
    """A kubelet whose log is on a full disk starts and stops nevertheless.

    The kubelet starts with a deprecated flag, about which it must log a warning.
    """
    with Path("/dev/full").open("w") as full, _start("ctx.done().recv()", tmp_path, full) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_failure_to_start_needs_nobody_to_tell(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full, _start("raise ValueError('no luck')", tmp_path, full) as process:
        assert process.wait(30) == 1


# The following tests are about signals.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("work", ["ctx.done().recv()", "import time; time.sleep(3600)"], ids=["heeds", "ignores"])
def test_a_signal_ends_the_process_within_two_seconds(number: int, work: str, tmp_path: Path) -> None:
    """The process waits for its work for at most two seconds; on a busy machine the exit may take longer."""
    assert server._SHUTDOWN_GRACE < 2
    with _start(work, tmp_path) as process:
        process.send_signal(number)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "containers are left running" in process.stderr.read()


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    # The work never returns from its system call, so the process still waits for it.
    with _start("import os; os.read(os.pipe()[0], 1)", tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while "Received shutdown signal" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1


def test_a_failure_to_start_is_one_line(tmp_path: Path) -> None:
    with _start("raise ValueError('no luck')", tmp_path) as process:
        assert process.wait(30) == 1
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == "Error: failed to run Kubelet: no luck"
