"""Test probes and images that cannot work: events name the container and the reason, and nothing is left behind.

A fixture creates all pods, and each test then checks its own pod. The last test compares the kubelet's threads and
files with those at the start. hooks_test.py covers hooks that cannot work, and registry_test.py covers pull secrets
that cannot.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from framework.cluster_client import TIMEOUT, container, restarts, waiting_reason
from framework.local_cluster import LocalCluster
from framework.pod_ways import Pods
from framework.pods import pod, sleeper
from framework.waiting import wait_for
from kubernetes.client import V1Pod

pytestmark = pytest.mark.local

SECONDS = {"periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 1}
BAD_IMAGE = "Not/A/Reference::"
# The kubelet cuts a probe's output to this many bytes.
OUTPUT = 10 * 1024
# The numbers of threads and of open files may vary by this much while nothing happens.
SLACK = 8


@pytest.fixture(scope="module")
def before(local: LocalCluster, used_kubelet: None) -> tuple[int, int]:
    return local.kubelet_usage()


@pytest.fixture(scope="module", autouse=True)
def _pods(before: tuple[int, int], both_ways: dict[str, Pods]) -> None:
    http = {"httpGet": {"path": "/", "port": 8080, "httpHeaders": [{"name": "X-Mark", "value": "one\r\ntwo: 2"}]}}
    bad: dict[str, dict[str, Any]] = {
        "no-port": {"httpGet": {"path": "/", "port": "nowhere"}},
        "no-tcp-port": {"tcpSocket": {"port": "nowhere"}},
        "bad-header": http,
        "no-command": {"exec": {"command": ["/not/there", "at all"]}},
    }
    loud: dict[str, dict[str, Any]] = {
        "no-end": {"exec": {"command": ["sleep", "4321"]}},
        "much": {"exec": {"command": ["sh", "-c", "yes | head -c 1000000; exit 1"]}},
        "endless": {"exec": {"command": ["sh", "-c", "i=0; while true; do echo $((i += 1)); sleep 0.01; done"]}},
    }
    # The events of one pod are rate-limited. Only the two containers whose timeouts the test counts have frequent
    # probes, because events of other containers would crowd out their events.
    seldom = {"periodSeconds": 30}
    probed = [sleeper(name, readinessProbe={**probe, **SECONDS, **seldom}) for name, probe in bad.items()]
    periods = {"much": seldom}
    loudly = [
        sleeper(name, readinessProbe={**probe, **SECONDS, **periods.get(name, {})}) for name, probe in loud.items()
    ]
    for pods in both_ways.values():
        pods.create(pod("probed", *probed))
        pods.create(pod("loud", *loudly))
        pods.create(pod("bad-image", {"name": "main", "image": BAD_IMAGE}))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-port", "Readiness probe errored and resulted in unknown state: .*nowhere.*"),
        ("no-tcp-port", "Readiness probe errored and resulted in unknown state: .*nowhere.*"),
        ("bad-header", 'Readiness probe failed: .*invalid header field value for "X-Mark"'),
        ("no-command", "Readiness probe errored and resulted in unknown state: .*/not/there.*"),
    ],
)
def test_event_names_container_and_reason(pods: Pods, name: str, message: str) -> None:
    event = pods.wait_for_event("probed", "Unhealthy", message, f"spec.containers{{{name}}}")

    assert event.type == "Warning"
    found = pods.wait_for("probed", f"{name} is running", lambda found: is_running(found, name))
    status = container(found, name)
    assert status is not None and not status.ready and restarts(found, name) == 0


def is_running(found: V1Pod, name: str) -> bool:
    status = container(found, name)
    return status is not None and status.state.running is not None


def test_output_is_cut(pods: Pods) -> None:
    event = pods.wait_for_event("loud", "Unhealthy", "Readiness probe failed: y\n.*", "spec.containers{much}")
    assert OUTPUT - 100 < len(event.message) < OUTPUT + 100


@pytest.mark.parametrize("name", ["no-end", "endless"])
def test_command_without_end_times_out(pods: Pods, name: str) -> None:
    """A probe times out if its command does not end, even if the command writes output all the time."""
    message = "Readiness probe failed: command timed out: .*timed out after 1s"
    pods.wait_for_event("loud", "Unhealthy", message, f"spec.containers{{{name}}}")


def test_image_name_that_is_none(pods: Pods) -> None:
    pods.wait_for("bad-image", "InvalidImageName", lambda found: waiting_reason(found) == "InvalidImageName")

    message = f"Failed to apply default image tag .*{re.escape(BAD_IMAGE)}.*: invalid reference format.*"
    event = pods.wait_for_event("bad-image", "InspectFailed", message, "spec.containers{main}")
    assert event.type == "Warning"


@pytest.mark.parametrize(("name", "line"), [("no-end", "sleep 4321"), ("endless", "while true; do echo")])
def test_no_process_of_a_probe_is_left(pods: Pods, local: LocalCluster, name: str, line: str) -> None:
    """At most one process of a probe that never ends is left: that of the running probe."""
    field = f"spec.containers{{{name}}}"
    wait_for("three timeouts", lambda: timed_out(pods, field) >= 3, TIMEOUT)
    found = pods.wait_for("loud", f"{name} is running", lambda found: is_running(found, name))
    status = container(found, name)
    assert status is not None
    pid = local.cri.container_pid(status.container_id.rpartition("/")[2])

    def running() -> list[str]:
        return [command for command in commands_beside(pid) if line in command]

    # A process that was just killed may still exist for a moment. If processes were left behind, their
    # number would only grow.
    wait_for("at most one process of the probe", lambda: len(running()) <= 1, 60, lambda: str(running()))


def timed_out(pods: Pods, field: str) -> int:
    """Return how often the probe of a container has timed out."""
    found = [each for each in pods.events_of("loud") if each.involved_object.field_path == field]
    return sum(each.count for each in found if each.reason == "Unhealthy")


def commands_beside(pid: int) -> list[str]:
    """List the command lines of all processes in the PID namespace of the given process."""
    namespace = Path(f"/proc/{pid}/ns/pid").readlink()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns/pid").readlink() == namespace:
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            # The process has ended since the listing.
            continue
    return found


def test_kubelet_keeps_no_thread_and_no_connection(
    both_ways: dict[str, Pods], local: LocalCluster, before: tuple[int, int]
) -> None:
    for pods in both_ways.values():
        for name in ("probed", "loud", "bad-image"):
            pods.delete(name)
    for pods in both_ways.values():
        for name in ("probed", "loud", "bad-image"):
            pods.wait_deleted(name)

    def calm() -> bool:
        threads, files = local.kubelet_usage()
        return threads <= before[0] + SLACK and files <= before[1] + SLACK

    wait_for(
        "as many threads and files as at the start", calm, 60, lambda: f"{before} before, {local.kubelet_usage()} after"
    )
