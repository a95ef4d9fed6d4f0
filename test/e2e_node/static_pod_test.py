"""Test pods from a folder of manifests, from outside: how they start, are restarted, change and end.

A fixture creates the pods of the slow tests all at once, and each test then checks its own pod, so that their waits
overlap.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from framework.containerd import WEB
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import lines_of, pod, shell, sleeper, with_evidence
from framework.ports import free_port
from framework.waiting import wait_for
from framework.web import fetch

# The garbage collector, which removes the sandboxes and logs of pods that are gone, runs once a minute.
COLLECTED = 240
# Everything except garbage collection takes at most this many seconds.
TIMEOUT = 120
# This is the default directory of pod logs.
POD_LOGS = Path("/var/log/pods")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory into which containers write what they see."""
    return tmp_path_factory.mktemp("evidence")


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess], evidence: Path) -> KubeletProcess:
    """Return the kubelet with the pods of the slow tests."""
    process = new_kubelet("static", {"podLogsDir": str(POD_LOGS)})
    process.write(pod("killed", sleeper()))
    fails_once = shell("test -e /evidence/tried && exit 0; touch /evidence/tried; exit 1")
    process.write(with_evidence(pod("on-failure", fails_once, restartPolicy="OnFailure"), evidence / "on-failure"))
    process.write(pod("never-fails", shell("exit 3"), restartPolicy="Never"))
    process.write(pod("never-succeeds", shell("exit 0"), restartPolicy="Never"))
    init = [
        shell("echo first >> /evidence/order", "first"),
        shell("echo second >> /evidence/order; test $(wc -l < /evidence/order) -gt 2", "second"),
    ]
    main = shell("echo main >> /evidence/order; exec sleep 1000")
    process.write(with_evidence(pod("init", main, initContainers=init), evidence / "init"))
    process.start()
    return process


def test_pod_starts(kubelet: KubeletProcess, cri: CRIClient) -> None:
    kubelet.write(pod("starts", shell("echo hello; exec sleep 1000")))

    started = kubelet.wait_for_pod("starts", lambda found: found.running)

    assert started.name == "starts-static"
    assert started.json["metadata"]["annotations"]["kubernetes.io/config.source"] == "file"
    assert started.restarts() == 0
    (container,) = cri.running_containers(started.name)
    (sandbox,) = cri.sandboxes(started.name)
    assert container.id == started.container_id()
    assert (sandbox.metadata.uid, sandbox.metadata.namespace) == (started.uid, "default")
    assert started.uid in kubelet.pod_directories()
    log = POD_LOGS / f"default_{started.name}_{started.uid}/main/0.log"
    wait_for("the container's output in its log", lambda: "stdout F hello" in log.read_text(), timeout=TIMEOUT)


def test_host_port_answers(kubelet: KubeletProcess) -> None:
    port = free_port()
    web = {"name": "main", "image": WEB, "ports": [{"containerPort": 8080, "hostPort": port}]}
    kubelet.write(pod("web", web))
    kubelet.wait_for_running("web")

    assert fetch(f"http://127.0.0.1:{port}/") == "web-static\n"


def test_killed_process_is_restarted_with_back_off(kubelet: KubeletProcess, cri: CRIClient) -> None:
    first = kubelet.wait_for_pod("killed", lambda found: found.running)

    os.kill(cri.container_pid(first.container_id()), signal.SIGKILL)

    second = kubelet.wait_for_pod("killed", lambda found: found.running and found.restarts() == 1)
    assert second.uid == first.uid
    assert second.container_id() != first.container_id()
    assert second.state(which="lastState")["exitCode"] == 128 + signal.SIGKILL

    os.kill(cri.container_pid(second.container_id()), signal.SIGKILL)

    # The status shows CrashLoopBackOff only for a moment, from the sync that finds that the back-off is over. So the
    # test reads the log.
    wait_for(
        "the back-off", lambda: "back-off 10s restarting failed container" in kubelet.log.read_text(), timeout=TIMEOUT
    )
    third = kubelet.wait_for_pod("killed", lambda found: found.running and found.restarts() == 2)
    ended = cri.container_status(second.container_id()).finished_at
    started = cri.container_status(third.container_id()).started_at
    assert started - ended >= 10 * 10**9


def test_edited_manifest_replaces_pod_and_old_one_goes_first(kubelet: KubeletProcess, evidence: Path) -> None:
    folder = evidence / "edited"
    story = """
    trap 'sleep 1; echo end {version} >> /evidence/story; exit 0' TERM
    echo start {version} >> /evidence/story
    while true; do sleep 0.1; done
    """
    kubelet.write(with_evidence(pod("edited", shell(story.format(version=1)), grace=20), folder))
    old = kubelet.wait_for_pod("edited", lambda found: found.running)
    wait_for("the old process is running", lambda: "start 1" in lines_of(folder / "story"), timeout=TIMEOUT)

    kubelet.write(with_evidence(pod("edited", shell(story.format(version=2)), grace=20), folder))

    new = kubelet.wait_for_pod("edited", lambda found: found.running and found.uid != old.uid)
    assert new.name == old.name
    assert new.container_id() != old.container_id()
    wait_for("the new process is running", lambda: "start 2" in lines_of(folder / "story"), timeout=TIMEOUT)
    assert lines_of(folder / "story") == ["start 1", "end 1", "start 2"]


def test_removed_manifest_ends_pod_within_its_grace(kubelet: KubeletProcess, cri: CRIClient, evidence: Path) -> None:
    """The process gets SIGTERM and continues. It gets SIGKILL after its grace period of 6 s. Then nothing is left."""
    folder = evidence / "removed"
    stubborn = """
    trap 'echo SIGTERM >> /evidence/story' TERM
    while true; do sleep 0.1; echo tick >> /evidence/story; done
    """
    kubelet.write(with_evidence(pod("removed", shell(stubborn), grace=6), folder))
    gone = kubelet.wait_for_pod("removed", lambda found: found.running)
    wait_for("the process is running", lambda: "tick" in lines_of(folder / "story"), timeout=TIMEOUT)
    process = os.pidfd_open(cri.container_pid(gone.container_id()))
    begun = time.monotonic()

    kubelet.remove("removed")

    wait_for("the process has got SIGTERM", lambda: "SIGTERM" in lines_of(folder / "story"), timeout=TIMEOUT)
    assert select.select([process], [], [], TIMEOUT)[0], "the process still runs"
    os.close(process)
    assert time.monotonic() - begun >= 6
    story = lines_of(folder / "story")
    assert len(story) - story.index("SIGTERM") > 5, "the process did not get its grace period"
    kubelet.wait_for("the pod is gone from /pods", lambda pods: "removed" not in pods)
    wait_for("the pod's directory is gone", lambda: gone.uid not in kubelet.pod_directories(), timeout=TIMEOUT)
    wait_for("the pod's containers are gone", lambda: not cri.containers(gone.name), timeout=COLLECTED)
    wait_for("the pod's sandbox is gone", lambda: not cri.sandboxes(gone.name), timeout=COLLECTED)
    wait_for("the pod's logs are gone", lambda: not kubelet.pod_logs("removed"), timeout=COLLECTED)
    links = Path("/var/log/containers")
    wait_for("no link to the pod's logs is left", lambda: not list(links.glob(f"{gone.name}_*")), timeout=COLLECTED)


def test_pod_put_back_while_terminating_comes_up_after(kubelet: KubeletProcess, cri: CRIClient, evidence: Path) -> None:
    folder = evidence / "put-back"
    slow = """
    trap 'echo SIGTERM >> /evidence/story; sleep 4; echo end >> /evidence/story; exit 0' TERM
    echo start >> /evidence/story
    while true; do sleep 0.1; done
    """
    manifest = with_evidence(pod("put-back", shell(slow), grace=30), folder)
    kubelet.write(manifest)
    first = kubelet.wait_for_pod("put-back", lambda found: found.running)
    wait_for("the process is running", lambda: "start" in lines_of(folder / "story"), timeout=TIMEOUT)

    kubelet.remove("put-back")
    wait_for("the process has got SIGTERM", lambda: "SIGTERM" in lines_of(folder / "story"), timeout=TIMEOUT)
    kubelet.write(manifest)

    second = kubelet.wait_for_pod(
        "put-back", lambda found: found.running and found.container_id() != first.container_id(), timeout=60
    )
    assert second.uid == first.uid
    wait_for("the process is running again", lambda: len(lines_of(folder / "story")) >= 4, timeout=TIMEOUT)
    assert lines_of(folder / "story") == ["start", "SIGTERM", "end", "start"]
    assert [found.id for found in cri.running_containers(first.name)] == [second.container_id()]


def test_init_containers_run_in_order_and_a_failing_one_again(kubelet: KubeletProcess, evidence: Path) -> None:
    running = kubelet.wait_for_pod("init", lambda found: found.running, timeout=TIMEOUT)

    wait_for("the main process is running", lambda: "main" in lines_of(evidence / "init" / "order"), timeout=TIMEOUT)
    assert lines_of(evidence / "init" / "order") == ["first", "second", "second", "main"]
    assert running.restarts("first", "initContainerStatuses") == 0
    assert running.restarts("second", "initContainerStatuses") == 1


def test_on_failure_ends_as_succeeded_after_a_restart(kubelet: KubeletProcess) -> None:
    ended = kubelet.wait_for_pod("on-failure", lambda found: found.phase == "Succeeded", timeout=TIMEOUT)

    assert ended.restarts() == 1
    assert (ended.state()["is"], ended.state().get("exitCode", 0)) == ("terminated", 0)


@pytest.mark.parametrize(
    ("name", "phase", "exit_code", "reason"),
    [("never-fails", "Failed", 3, "Error"), ("never-succeeds", "Succeeded", 0, "Completed")],
)
def test_never_ends_with_the_phase_of_the_exit_code(
    kubelet: KubeletProcess, cri: CRIClient, name: str, phase: str, exit_code: int, reason: str
) -> None:
    ended = kubelet.wait_for_pod(name, lambda found: found.phase == phase, timeout=TIMEOUT)

    assert ended.restarts() == 0
    assert (ended.state().get("exitCode", 0), ended.state()["reason"]) == (exit_code, reason)
    assert len(cri.containers(ended.name)) == 1
