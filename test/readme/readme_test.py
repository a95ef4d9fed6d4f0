"""Test the commands of README.md and of the documents for newcomers: run them in the checkout as they are written.

The tests replace only the names of things outside of the checkout: the machine's containerd, /etc/kubernetes and
/var/lib/kubelet. Blocks whose language is not `sh` contain placeholders, so no test runs them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from framework.containerd import ROOT, Containerd, new_run_dir
from framework.ports import free_port
from framework.waiting import wait_for

RUN_DIR = ROOT / ".run"
# The machine may be busy, so these limits, in seconds, are long: for one command, for a start until the pods run, and
# for a stop.
COMMAND_TIMEOUT = 300.0
START_TIMEOUT = 300.0
END_TIMEOUT = 60.0
START = "README.md", "Start"
OWN_CONTAINERD = "docs/getting-started.md", "On a VM, with your own containerd"
CLUSTER = "docs/getting-started.md", "In a cluster"
HOLLOW_NODES = "docs/hollow-nodes.md", "Hollow nodes"
FIND_A_FUNCTION = "docs/beside-go.md", "Find a function"
# The tests run this number of blocks of commands from each chapter of a document.
BLOCKS = {
    START: 1,
    OWN_CONTAINERD: 3,
    CLUSTER: 5,
    HOLLOW_NODES: 1,
    FIND_A_FUNCTION: 1,
}
# A heading of the first or the second level begins a chapter. Deeper headings do not.
PARTS = re.compile(r"^##? ([^\n]*)$|^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks() -> dict[tuple[str, str], list[str]]:
    """Return the blocks of commands, by document and chapter."""
    found: dict[tuple[str, str], list[str]] = {}
    for document in dict.fromkeys(document for document, _ in BLOCKS):
        chapter = ""
        for title, language, text in PARTS.findall((ROOT / document).read_text()):
            if title:
                chapter = title
            elif language == "sh":
                found.setdefault((document, chapter), []).append(text)
    return found


def block(chapter: tuple[str, str], number: int, others: Mapping[str, str] | None = None) -> str:
    """Return one block, with other names for things outside of the checkout. The block must contain each name."""
    text = blocks()[chapter][number]
    for name, other in (others or {}).items():
        assert name in text, f"{name} is not in block {number} of {chapter}"
        text = text.replace(name, other)
    return text


class Shell:
    """Run blocks of commands, each in its own shell in the checkout, and keep their output."""

    def __init__(self, folder: Path, working_directory: Path = ROOT) -> None:
        self.log = folder / "shell.log"
        self._working_directory = working_directory

    def run(self, commands: str) -> str:
        """Return the output of the commands. Raise AssertionError if a command fails."""
        with self.log.open("w") as log:
            process = start(f"set -x -o pipefail\n{commands}", self._working_directory, log)
            try:
                code = process.wait(COMMAND_TIMEOUT)
            finally:
                end_group(process.pid)  # The commands may have left processes in the background.
                process.wait()
        said = self.log.read_text()
        assert code == 0, said
        return said


def start(commands: str, working_directory: Path, out: IO[str]) -> subprocess.Popen[bytes]:
    """Start a shell in a new process group, which all its child processes join."""
    return subprocess.Popen(
        ["bash", "-euc", commands],
        cwd=working_directory,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        start_new_session=True,
    )


def end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGTERM)
    except ProcessLookupError:
        return


@contextmanager
def running(command: str, folder: Path, working_directory: Path = ROOT) -> Iterator[Path]:
    """Start a command, and yield the file with its output. Later stop the command and all its processes."""
    log = folder / "running.log"
    with log.open("w") as out:
        process = start(command, working_directory, out)
    try:
        yield log
        assert process.poll() is None, log.read_text()
    finally:
        end_group(process.pid)
        process.wait(END_TIMEOUT)
        # Make ends before the processes that it started.
        wait_for("the end of all processes", lambda: not group_lives(process.pid), timeout=END_TIMEOUT)


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_said(log: Path, *patterns: str) -> None:
    def said() -> bool:
        text = log.read_text()
        return all(re.search(pattern, text) for pattern in patterns)

    wait_for(f"{patterns} in the output", said, timeout=START_TIMEOUT, describe=log.read_text)


@pytest.fixture
def clean_checkout() -> Iterator[None]:
    """Skip the test if a run is using the checkout. Later remove everything that the test made in the checkout."""
    if RUN_DIR.exists():
        pytest.skip(f"{RUN_DIR} exists, and its run must not be disturbed; `make clean` removes it")
    try:
        yield
    finally:
        subprocess.run(["make", "clean"], cwd=ROOT, check=True, timeout=COMMAND_TIMEOUT)
        assert not RUN_DIR.exists()
        assert str(RUN_DIR) not in Path("/proc/self/mountinfo").read_text()


def test_each_block_is_run_here() -> None:
    assert {chapter: len(found) for chapter, found in blocks().items()} == BLOCKS


def test_run_and_cluster(clean_checkout: None, tmp_path: Path) -> None:
    commands = [line.partition("#")[0].strip() for line in block(START, 0).splitlines()]
    assert commands == ["make run", "make cluster", "make test"]
    with running("make run", tmp_path) as log:
        wait_until_said(log, r"default/hello-local +1/1 +Running", r"default/job-local +0/1 +Completed")
        second = subprocess.run(["make", "run"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
        assert second.returncode != 0 and "another run is active in this checkout" in second.stderr
        manifest = RUN_DIR / "manifests" / "own.yaml"
        manifest.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec: {containers: [{name: c}]}\n")
        wait_until_said(log, rf"{manifest}: .*spec\.containers\[0\]\.image: Required value")
        hint = re.search(r"^ +(\S+/kubelet explain node --root-dir=\S+)", log.read_text(), re.MULTILINE)
        assert hint is not None and str(manifest) in Shell(tmp_path, tmp_path).run(hint[1])
    with running("make cluster", tmp_path) as log:
        wait_until_said(log, "is Ready after")
        assert manifest.exists()
        shell = Shell(tmp_path)
        first, *rest = [block(CLUSTER, number) for number in range(BLOCKS[CLUSTER])]
        settings, _, first = first.partition("\n")
        for commands_of_block in (first, *rest):
            # On a busy machine new pods take longer than kubectl waits by default.
            patient = commands_of_block.replace("kubectl wait ", f"kubectl wait --timeout={START_TIMEOUT:.0f}s ")
            said = shell.run(f"{settings}\n{patient.replace('kubectl top', retried('kubectl top'))}")
        assert "/proxy/debug/syncloop" in said
        for directory in ("/tmp/volumes-diary", "/tmp/site-data"):
            shutil.rmtree(directory, ignore_errors=True)


def retried(command: str) -> str:
    """Return the command in a loop, because kubectl fails while a new pod has no statistics yet."""
    return f"timeout 60 bash -c 'until \"$@\"; do sleep 1; done' - {command}"


def test_on_a_machine_with_a_containerd_of_its_own(clean_checkout: None, tmp_path: Path) -> None:
    containerd = Containerd(new_run_dir())
    containerd.start()
    socket, etc, root = "/run/containerd/containerd.sock", tmp_path / "kubernetes", containerd.run_dir / "kubelet"
    names = {socket: str(containerd.socket)}
    shell = Shell(tmp_path)
    try:
        prepare, _, run = block(OWN_CONTAINERD, 0, names).rstrip().rpartition("\n")
        shell.run(prepare)
        with running(run, tmp_path) as log:
            wait_until_said(log, r"default/hello-local +1/1 +Running")
        subprocess.run(["make", "clean"], cwd=ROOT, check=True, timeout=COMMAND_TIMEOUT)
        configure, _, start = block(OWN_CONTAINERD, 1, {**names, "/etc/kubernetes": str(etc)}).rstrip().rpartition("\n")
        shell.run(configure)
        port, health = free_port(), free_port()
        with (etc / "kubelet.yaml").open("a") as config:
            config.write(f"failCgroupV1: false\ncgroupRoot: {containerd.cgroup_root}\nhealthzPort: {health}\n")
            config.write("makeIPTablesUtilChains: false\n")
        configured = (etc / "kubelet.yaml").read_text().replace("readOnlyPort: 10255", f"readOnlyPort: {port}")
        (etc / "kubelet.yaml").write_text(configured)
        elsewhere = f"--root-dir={root} --cert-dir={root}/pki --device-plugin-directory={root}/device-plugins"
        with running(f"{start} {elsewhere}", tmp_path) as log:
            shutil.copy(ROOT / "examples" / "hello.yaml", etc / "manifests")
            wait_until_said(log, 'probe="readiness" status="ready" pod="default/hello-')
            look = block(OWN_CONTAINERD, 2, {"10255": str(port), "/etc/kubernetes": str(etc)})
            said = shell.run(re.sub("(explain (node|pod .*))$", rf"\1 --root-dir={root}", look, flags=re.MULTILINE))
        assert "It is running and ready." in said
        assert re.search(rf"^readOnlyPort +{port} ", said, re.MULTILINE)
    finally:
        containerd.clean()


def test_hollow_node(tmp_path: Path) -> None:
    for name in (".venv", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    port = free_port()
    commands = block(HOLLOW_NODES, 0, {"10265": str(port)})
    with running(commands, tmp_path, tmp_path) as log:
        wait_for("the pods", lambda: pods_are_running(port), timeout=START_TIMEOUT, describe=log.read_text)


def pods_are_running(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/pods", timeout=COMMAND_TIMEOUT) as answer:
            pods = json.load(answer)["items"]
    except OSError:
        return False
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"] == [
        "init-hollow-1",
        "shared-hollow-1",
    ]


def test_function_is_found(tmp_path: Path) -> None:
    assert "kubelet/kubelet.py:Kubelet.sync_loop_iteration" in Shell(tmp_path).run(block(FIND_A_FUNCTION, 0))
