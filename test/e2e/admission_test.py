"""Test pods that the node refuses or admits on a real runtime, and a critical pod that preempts another.

A fixture creates all pods except those for preemption, and each test then checks its own pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest
from framework.cluster_client import Namespace, conditions, terminated
from framework.local_cluster import LocalCluster
from framework.pod_ways import Pods, teller
from framework.pods import Manifest, pod, shell, sleeper
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api

HOST_PORT = 31780
DEVICE = "e2e.example.org/device"
PREEMPTED = "Preempted in order to admit critical pod"
LIVES = "trap 'sleep 1; say ended; exit 3' TERM; say begun; while true; do sleep 1000 & wait $!; done"


def with_affinity(name: str, key: str, operator: str, *values: str) -> Manifest:
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod(name, sleeper(), affinity={"nodeAffinity": required})


def with_sysctl(name: str, sysctl: str, value: str) -> Manifest:
    path = "/proc/sys/" + sysctl.replace(".", "/")
    main = shell(f"tr -s '\\t\\n' '  ' < {path} > /dev/termination-log")
    sysctls = {"sysctls": [{"name": sysctl, "value": value}]}
    return pod(name, main, restartPolicy="Never", securityContext=sysctls)


def devices(name: str, count: int, script: str = LIVES, **spec: object) -> Manifest:
    """Return a pod that requests devices, and 16 MiB for each. Preemption picks the pod with the least memory first."""
    amounts = {DEVICE: str(count), "memory": f"{16 * count}Mi"}
    return pod(name, teller(script, resources={"requests": amounts, "limits": amounts}), grace=20, **spec)


REFUSED = {
    "port-taken": (
        "NodePorts",
        r"Predicate NodePorts failed: node\(s\) didn't have free ports for the requested pod ports",
    ),
    "cpu": ("OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000000, used: [0-9]+, capacity: [0-9]+"),
    "affinity": (
        "NodeAffinity",
        r"Predicate NodeAffinity failed: node\(s\) didn't match Pod's node affinity/selector",
    ),
    "forbidden-sysctl": ("SysctlForbidden", 'forbidden sysctl: "kernel.msgmax" not allowlisted'),
    "os": ("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"),
}


@pytest.fixture(scope="module", autouse=True)
def made(namespace: Namespace) -> None:
    port = {"containerPort": 80, "hostPort": HOST_PORT}
    namespace.create(pod("port-holder", sleeper(ports=[port])))
    namespace.create(with_affinity("linux", "kubernetes.io/os", "In", "linux"))
    namespace.create(with_sysctl("safe-sysctl", "net.ipv4.ip_local_port_range", "20000 30000"))
    namespace.create(with_sysctl("slashes", "kernel/shm_rmid_forced", "1"))
    namespace.wait_for_running("port-holder")
    namespace.create(pod("port-taken", sleeper(ports=[port])))
    namespace.create(pod("cpu", sleeper(resources={"requests": {"cpu": "1000"}})))
    namespace.create(with_affinity("affinity", "kubernetes.io/os", "NotIn", "linux"))
    namespace.create(with_sysctl("forbidden-sysctl", "kernel.msgmax", "1000"))
    namespace.create(pod("os", sleeper(), os={"name": "windows"}))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(namespace: Namespace, name: str) -> None:
    reason, message = REFUSED[name]

    status = namespace.wait_for(name, "Failed", lambda found: found.status.phase == "Failed").status

    assert status.reason == reason
    assert re.fullmatch(f"Pod was rejected: {message}", status.message)
    assert (status.container_statuses, status.pod_ip) == (None, None)
    assert status.start_time is not None and status.qos_class
    namespace.wait_for_event(name, reason, message)
    assert [each.reason for each in namespace.events_of(name)] == [reason], "the node did more than refuse the pod"


def test_admitted(namespace: Namespace) -> None:
    namespace.wait_for_running("port-holder", "linux")


@pytest.mark.parametrize(("name", "value"), [("safe-sysctl", "20000 30000"), ("slashes", "1")])
def test_safe_sysctl_is_set_in_the_container(namespace: Namespace, name: str, value: str) -> None:
    found = namespace.wait_for(name, "Succeeded", lambda found: found.status.phase == "Succeeded")
    state = terminated(found)
    assert state is not None and state.message.strip() == value


@pytest.fixture
def node_with_devices(namespace: Namespace, core: CoreV1Api) -> Iterator[None]:
    """Give the node four devices, which no other test requests."""

    def patch(count: str | None) -> None:
        core.patch_node_status(namespace.node, {"status": {"capacity": {DEVICE: count}}})

    patch("4")
    wait_for("the node's devices", lambda: DEVICE in core.read_node(namespace.node).status.allocatable, 120)
    yield
    patch(None)


@pytest.mark.local
def test_critical_pod_takes_the_place_of_another(
    namespace: Namespace, local: LocalCluster, node_with_devices: None
) -> None:
    """A critical pod preempts the smallest sufficient pod, and starts only after that pod has had its grace period."""
    with closing(Pods(namespace, local)) as seen:
        namespace.create(devices("small", 1))
        namespace.create(devices("large", 3))
        namespace.wait_for_running("small", "large")
        small, large = seen.log("small"), seen.log("large")
        seen.wait_for_said(small, "begun")
        namespace.create(devices("critical", 1, priorityClassName="system-node-critical"))

        namespace.wait_for_running("critical")

        found = namespace.wait_for("small", "Failed", lambda found: found.status.phase == "Failed")
        assert (found.status.reason, found.status.message) == ("Preempting", PREEMPTED)
        target = conditions(found)["DisruptionTarget"]
        assert (target.status, target.reason) == ("True", "TerminationByKubelet")
        state = terminated(found)
        assert state is not None and state.exit_code == 3, "the pod did not get its grace period"
        namespace.wait_for_event("small", "Preempting", PREEMPTED)
        (ended,), (begun,) = seen.wait_for_said(small, "ended"), seen.wait_for_said(seen.log("critical"), "begun")
        assert ended <= begun
        assert large.when("ended") == []
        assert namespace.events_of("large")[-1].reason != "Preempting"
