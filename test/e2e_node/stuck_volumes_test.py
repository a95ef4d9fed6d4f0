"""Test volumes that cannot be unmounted, and orphaned pod directories: what the kubelet reports, and the remedies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework.kubelet_process import KubeletProcess
from framework.pods import pod, sleeper
from framework.waiting import wait_for

# On a busy machine anything that happens soon or with the next housekeeping takes at most this many seconds.
TIMEOUT = 180
HERE = Path(__file__).parents[2]
VOLUME = "volumes/kubernetes.io~empty-dir/memory"
# After this many seconds, the delay between attempts has grown far beyond `AT_ONCE`.
PAUSES_ARE_LONG = 180
# An immediate action takes less than this many seconds.
AT_ONCE = 25


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    process = new_kubelet("stuck")
    process.start()
    return process


@pytest.fixture
def busy(kubelet: KubeletProcess) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Yield the directory of a pod with a volume in memory, and a process of the node that keeps the volume busy."""
    memory = {"name": "memory", "emptyDir": {"medium": "Memory"}}
    container = sleeper(volumeMounts=[{"name": "memory", "mountPath": "/memory"}])
    kubelet.write(pod("busy", container, volumes=[memory]))
    (running,) = kubelet.wait_for_running("busy")
    directory = kubelet.root_dir / "pods" / running.uid
    holder = subprocess.Popen(["sleep", "1000"], cwd=directory / VOLUME)
    yield directory, holder
    holder.kill()
    holder.wait()


def test_busy_unmount_names_its_holder_and_is_tried_again_when_that_ends(
    kubelet: KubeletProcess, busy: tuple[Path, subprocess.Popen[bytes]]
) -> None:
    directory, holder = busy
    kubelet.remove("busy")

    said = f"{directory / VOLUME} is held by sleep (pid {holder.pid}, current directory {directory / VOLUME})"
    wait_for(
        "the event that names the process that uses the volume", lambda: events(kubelet, "FailedUnmount", said), TIMEOUT
    )
    wait_for(
        "long pauses between attempts",
        lambda: "durationBeforeRetry 32s" in kubelet.log.read_text(),
        PAUSES_ARE_LONG,
    )
    assert len(events(kubelet, "FailedUnmount", said)) == 1
    assert directory.exists()

    holder.kill()
    holder.wait()
    wait_for("the volume is unmounted", lambda: not mounted_below(directory), AT_ONCE)
    wait_for("the pod's directory is gone", lambda: not directory.exists(), TIMEOUT)


@pytest.fixture
def orphans(kubelet: KubeletProcess) -> Iterator[dict[str, Path]]:
    """Yield three kinds of directories of pods that do not exist. Something is mounted below one of them.

    Their volumes belong to a plugin that the kubelet does not have, so the kubelet cannot tear them down itself.
    """
    pods = kubelet.root_dir / "pods"
    found = {name: pods / f"orphan-{name}" for name in ("leftover", "data", "mounted")}
    # The directories are made while the kubelet is down, because a running kubelet would remove at once what it can.
    kubelet.stop()
    (found["leftover"] / "containers/main").mkdir(parents=True)
    (found["data"] / "volumes/example.com~gone/v").mkdir(parents=True)
    (found["data"] / "volumes/example.com~gone/v/precious").write_text("data")
    mount = found["mounted"] / "volumes/example.com~gone/v"
    mount.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "server", mount], check=True)
    (mount / "precious").write_text("data")
    yield found
    if os.path.ismount(mount):
        subprocess.run(["umount", mount], check=True)


def test_orphans_are_told_once_explained_and_removed_but_not_across_a_mount(
    kubelet: KubeletProcess, orphans: dict[str, Path]
) -> None:
    kubelet.write(pod("beside", sleeper()))
    code, listed = run_orphans(kubelet)
    assert code == 1 and {each["pod_uid"]: each["kind"] for each in listed} == {
        "orphan-leftover": "leftover",
        "orphan-data": "data",
        "orphan-mounted": "mounted",
    }

    kubelet.start()
    kubelet.wait_for_running("beside")
    wait_for("the event of the orphan with data", lambda: told(kubelet, orphans["data"]), TIMEOUT)
    wait_for("the event of the orphan with a mount", lambda: told(kubelet, orphans["mounted"]), TIMEOUT)
    wait_for("the empty orphan is gone", lambda: not orphans["leftover"].exists(), TIMEOUT)

    code, results = run_orphans(kubelet, "--remove")
    mount = orphans["mounted"] / "volumes/example.com~gone/v"
    assert code == 1
    assert {each["pod_uid"]: each["removed"] for each in results} == {"orphan-data": True, "orphan-mounted": False}
    assert [each["refused"] for each in results if not each["removed"]] == [
        f"cannot delete directory {orphans['mounted']}: {mount} is a mount point: unmount it first"
    ]
    assert (mount / "precious").read_text() == "data" and not orphans["data"].exists()

    subprocess.run(["umount", mount], check=True)
    mount.rmdir()
    wait_for("the orphan is gone", lambda: not orphans["mounted"].exists(), TIMEOUT)
    assert [len(told(kubelet, orphans[name])) for name in ("data", "mounted")] == [1, 1]
    kubelet.remove("beside")


def events(kubelet: KubeletProcess, reason: str, text: str) -> list[str]:
    """List the log lines of events with this reason and text. A standalone node records its events only in its log."""
    lines = kubelet.log.read_text().splitlines()
    return [line for line in lines if f'reason="{reason}"' in line and text in line]


def told(kubelet: KubeletProcess, directory: Path) -> list[str]:
    return events(kubelet, "OrphanedPodDirectory", f"the directory {directory} of the orphaned pod")


def mounted_below(directory: Path) -> bool:
    return f" {directory}/" in Path("/proc/self/mountinfo").read_text()


def run_orphans(kubelet: KubeletProcess, *arguments: str) -> tuple[int, list[dict[str, object]]]:
    command = [sys.executable, "-m", "cmd.kubelet", "orphans", "-o", "json", *arguments, *kubelet.arguments]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout or "[]")
