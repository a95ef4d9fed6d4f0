"""Test what a user sees with kubectl: the node, and a pod that is run, described and deleted."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from framework.cluster_client import Namespace
from framework.local_cluster import Environment
from framework.waiting import wait_for

pytestmark = pytest.mark.kubectl

PROBE = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
VOLUME = {"name": "v", "hostPath": {"path": "/not/there", "type": "File"}}
# Each pod name maps to fields of the container, fields of the pod's spec, and the events that they cause.
TROUBLES: dict[str, tuple[dict[str, object], dict[str, object], list[tuple[str, str, str]]]] = {
    "unhealthy": (
        {"livenessProbe": PROBE},
        {},
        [
            ("Warning", "Unhealthy", "Liveness probe failed:"),
            ("Normal", "Killing", "Container main failed liveness probe, will be restarted"),
        ],
    ),
    "crashes": (
        {"command": ["false"]},
        {},
        [("Warning", "BackOff", "Back-off restarting failed container main in pod crashes_")],
    ),
    "no-volume": (
        {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        {"volumes": [VOLUME]},
        [("Warning", "FailedMount", 'MountVolume.SetUp failed for volume "v" : hostPath type check failed')],
    ),
}


class Kubectl:
    """Run kubectl with the credentials of the tests, in their namespace."""

    def __init__(self, environment: Environment, namespace: Namespace) -> None:
        self._command = ["kubectl", f"--kubeconfig={environment.kubeconfig}", f"--namespace={namespace.name}"]

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Return the output of kubectl. Raise AssertionError with kubectl's messages if it fails."""
        command = [*self._command, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def kubectl(environment: Environment, namespace: Namespace) -> Kubectl:
    return Kubectl(environment, namespace)


def test_nodes(kubectl: Kubectl, namespace: Namespace) -> None:
    header, *lines = kubectl("get", "nodes").splitlines()

    assert header.split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    (line,) = [line.split() for line in lines if line.split()[0] == namespace.node]
    assert line[1] == "Ready"
    assert re.match(r"v1\.\d+\.\d+", line[4])
    wide = kubectl("get", "node", namespace.node, "-o", "wide")
    assert "CONTAINER-RUNTIME" in wide


def test_described_node(kubectl: Kubectl, namespace: Namespace) -> None:
    # The lease appears soon after the node.
    lease = re.compile(rf"Lease:\s+HolderIdentity:\s+{re.escape(namespace.node)}$", re.MULTILINE)

    def describe() -> str:
        text = kubectl("describe", "node", namespace.node)
        return text if lease.search(text) else ""

    text = wait_for("kubectl describes the node with its lease", describe, 120)
    for expected in ("kubelet is posting ready status", "KubeletHasSufficientMemory", "Capacity:", "Allocatable:"):
        assert expected in text


def place(namespace: Namespace) -> dict[str, object]:
    """Return the fields that make the scheduler place a pod on the tested node, without a service account token."""
    node = namespace.core.read_node(namespace.node)
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 2,
        "nodeSelector": {"kubernetes.io/hostname": node.metadata.labels["kubernetes.io/hostname"]},
        "tolerations": [{"operator": "Exists"}],
    }


def run(kubectl: Kubectl, namespace: Namespace, name: str, *command: str) -> None:
    image = namespace.images.busybox
    overrides = json.dumps({"apiVersion": "v1", "spec": place(namespace)})
    kubectl("run", name, f"--image={image}", "--restart=Never", f"--overrides={overrides}", "--", *command)


def test_pod_is_run_described_and_deleted(kubectl: Kubectl, namespace: Namespace) -> None:
    run(kubectl, namespace, "web", "sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done")

    kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=120s")
    header, line = kubectl("get", "pod", "web").splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert line.split()[:4] == ["web", "1/1", "Running", "0"]
    namespace.wait_for_event("web", "Started", "Container started")
    described = kubectl("describe", "pod", "web")
    assert re.search(r"^Status:\s+Running$", described, re.MULTILINE)
    assert re.search(rf"^Node:\s+{re.escape(namespace.node)}/[\d.]+$", described, re.MULTILINE)
    events = described.partition("Events:")[2]
    assert f"Successfully assigned {namespace.name}/web to {namespace.node}" in events
    said = re.findall(r"^  Normal\s+(\w+)\s.*?kubelet\s+(.*)$", events, re.MULTILINE)
    assert [reason for reason, _ in said] == ["Pulled", "Created", "Started"], events
    assert said[1][1] == "Container created"

    kubectl("delete", "pod", "web", "--timeout=120s")

    assert "NotFound" in _error(kubectl, "get", "pod", "web")


def _error(kubectl: Kubectl, *arguments: str) -> str:
    with pytest.raises(AssertionError) as caught:
        kubectl(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("name", TROUBLES)
def test_trouble_is_described_in_the_words_of_upstream(kubectl: Kubectl, namespace: Namespace, name: str) -> None:
    main, spec, events = TROUBLES[name]
    container = {"name": "main", "image": namespace.images.busybox, "command": ["sleep", "1000"], **main}
    full = {**place(namespace), "containers": [container], **spec}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": full}

    kubectl("apply", "--filename=-", stdin=json.dumps(pod))

    for _, reason, message in events:
        namespace.wait_for_event(name, reason, f"{re.escape(message)}.*")
    described = kubectl("describe", "pod", name).partition("Events:")[2]
    for kind, reason, message in events:
        line = rf"^  {kind} +{reason} .*kubelet +{re.escape(message)}"
        assert re.search(line, described, re.MULTILINE), described


def test_pods_that_end_show_how(kubectl: Kubectl, namespace: Namespace) -> None:
    run(kubectl, namespace, "good", "true")
    run(kubectl, namespace, "bad", "false")

    def shown(name: str) -> str:
        return kubectl("get", "pod", name, "--no-headers").split()[2]

    wait_for("Completed", lambda: shown("good") == "Completed", 120)
    wait_for("Error", lambda: shown("bad") == "Error", 120)


def test_forced_deletion(kubectl: Kubectl, namespace: Namespace) -> None:
    run(kubectl, namespace, "forced", "sleep", "1000")
    kubectl("wait", "--for=condition=Ready", "pod/forced", "--timeout=120s")

    kubectl("delete", "pod", "forced", "--force", "--grace-period=0", "--timeout=60s")

    namespace.wait_deleted("forced")


def test_events_are_listed(kubectl: Kubectl, namespace: Namespace) -> None:
    run(kubectl, namespace, "listed", "sleep", "1000")
    namespace.wait_for_event("listed", "Started", "Container started")

    listed = kubectl("get", "events", "--field-selector=involvedObject.name=listed", "--no-headers")

    reasons = [line.split()[2] for line in listed.splitlines()]
    assert [reason for reason in reasons if reason != "Scheduled"] == ["Pulled", "Created", "Started"]
