"""Test debugging with kubectl: a pod, a copy of it, its node, and the node's own pages."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from framework import kubectl as kubectls
from framework.cluster_client import TIMEOUT, Namespace, terminated
from framework.containerd import BUSYBOX
from framework.kubectl import Kubectl
from framework.local_cluster import Environment
from framework.pods import pod, sleeper
from framework.waiting import wait_for
from kubernetes.client import V1Pod

pytestmark = pytest.mark.kubectl

TARGET = "target"
Debug = Callable[..., str]


@pytest.fixture(scope="module")
def ways(environment: Environment, namespace: Namespace) -> dict[str, Kubectl]:
    namespace.create(pod(TARGET, sleeper()))
    namespace.wait_for_running(TARGET)
    return kubectls.ways(environment.kubeconfig, namespace.name)


@pytest.fixture(scope="module")
def kubectl(ways: dict[str, Kubectl]) -> Kubectl:
    return ways["websocket"]


def run(kubectl: Kubectl, *arguments: str) -> str:
    """Return the output of kubectl. Raise AssertionError with kubectl's messages if it fails."""
    done = kubectl.run(*arguments)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout!r} {done.stderr!r}"
    return done.stdout.decode()


@pytest.fixture
def debug(kubectl: Kubectl, image: str) -> Debug:
    return lambda what, *arguments: run(kubectl, "debug", what, f"--image={image}", *arguments)


@pytest.fixture
def image(namespace: Namespace) -> str:
    return namespace.images.actual(BUSYBOX)


def raw(kubectl: Kubectl, namespace: Namespace, path: str) -> str:
    """Return a page of the kubelet's server, read through the API server."""
    return run(kubectl, "get", "--raw", f"/api/v1/nodes/{namespace.node}/proxy/{path}")


# --- Pods -------------------------------------------------------------------------------------------


def test_a_container_beside_those_that_run(debug: Debug, kubectl: Kubectl, namespace: Namespace) -> None:
    debug(TARGET, "--container=look", "--target=main", "--", "sh", "-c", "echo seen; ps -o args")
    namespace.wait_for(TARGET, "the debugger has ended", _debugger_has_ended)
    output = run(kubectl, "logs", TARGET, "--container=look")
    # The debugger sees the processes of its target container.
    assert output.startswith("seen\n") and "sleep 1000" in output


def _debugger_has_ended(pod: V1Pod) -> bool:
    return any(status.state.terminated is not None for status in pod.status.ephemeral_container_statuses or [])


@pytest.mark.parametrize("way", ["websocket", "spdy"])
def test_talking_to_a_debugger(ways: dict[str, Kubectl], way: str, image: str) -> None:
    process = ways[way].start("debug", TARGET, f"--image={image}", f"--container={way}", "--stdin", "--", "sh")
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"echo $((6 * 7))\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"42\n"
        # The runtime ends the output when the input ends. So the input must stay open until all output has arrived.
        process.stdin.write(b"exit\n")
        process.stdin.flush()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_copy_with_another_command(debug: Debug, kubectl: Kubectl, namespace: Namespace) -> None:
    debug(TARGET, "--copy-to=copied", "--same-node", "--container=main", "--", "sh", "-c", "echo copy; exit 3")
    copied = namespace.wait_for("copied", "the command has run", _has_exited)
    assert copied.spec.node_name == namespace.node
    # The container restarts again and again. kubectl shows the newest log, which may still be empty.
    wait_for(
        "the log of the container", lambda: run(kubectl, "logs", "copied", "--container=main") == "copy\n", TIMEOUT
    )
    run(kubectl, "delete", "pod", "copied", "--now")


def _has_exited(pod: V1Pod) -> bool:
    """Report whether the container has exited with code 3, now or before its restart."""
    for status in pod.status.container_statuses or []:
        for state in (status.state, status.last_state):
            if state.terminated is not None and state.terminated.exit_code == 3:
                return True
    return False


def test_a_pod_with_the_node_in_it(debug: Debug, kubectl: Kubectl, namespace: Namespace) -> None:
    debug(f"node/{namespace.node}", "--", "sh", "-c", "ls -d /host/proc/1 && ps -o pid | head -2")
    name = wait_for("the debugging pod", lambda: _node_debugger(kubectl), TIMEOUT)
    namespace.wait_for(name, "the debugger has ended", lambda pod: terminated(pod, "debugger"))
    # The debugger sees the node's file system and all processes of the node.
    assert run(kubectl, "logs", name).split() == ["/host/proc/1", "PID", "1"]
    run(kubectl, "delete", "pod", name, "--now")


def _node_debugger(kubectl: Kubectl) -> str:
    names = run(kubectl, "get", "pods", "-o", "name").split()
    return next((name.removeprefix("pod/") for name in names if "node-debugger" in name), "")


# --- The node's pages -------------------------------------------------------------------------------


def test_pages_of_the_node(kubectl: Kubectl, namespace: Namespace) -> None:
    assert raw(kubectl, namespace, "healthz") == "ok"
    names = [each["metadata"]["name"] for each in json.loads(raw(kubectl, namespace, "pods"))["items"]]
    assert TARGET in names
    running = [each["metadata"]["name"] for each in json.loads(raw(kubectl, namespace, "runningpods/"))["items"]]
    assert TARGET in running
    assert "kubelet_running_pods" in raw(kubectl, namespace, "metrics")
    assert "kubelet flagz" in raw(kubectl, namespace, "flagz")
    assert "kubelet statusz" in raw(kubectl, namespace, "statusz")
    assert "kubelet" in raw(kubectl, namespace, "debug/pprof/cmdline")


def test_configuration_in_force(kubectl: Kubectl, namespace: Namespace) -> None:
    configuration = json.loads(raw(kubectl, namespace, "configz"))["kubeletconfig"]
    assert configuration["kind"] == "KubeletConfiguration"
    assert configuration["apiVersion"] == "kubelet.config.k8s.io/v1beta1"
    assert configuration["authorization"]["mode"] == "Webhook"


def test_checkpoint(kubectl: Kubectl, namespace: Namespace) -> None:
    """A checkpoint needs a runtime with CRIU. Without CRIU the request fails with an error that says so."""
    path = f"/api/v1/nodes/{namespace.node}/proxy/checkpoint/{namespace.name}/{TARGET}"
    done = kubectl.run("create", "--raw", f"{path}/main", "--filename=-")
    if done.returncode == 0:
        (archive,) = json.loads(done.stdout)["items"]
        assert f"/checkpoints/checkpoint-{TARGET}_{namespace.name}-main-" in archive
    else:
        assert f"checkpointing of {namespace.name}/{TARGET}/main failed" in done.stderr.decode()
    done = kubectl.run("create", "--raw", f"{path}/other", "--filename=-")
    assert "could not find the requested resource" in done.stderr.decode()


def test_a_page_that_is_not_there(kubectl: Kubectl, namespace: Namespace) -> None:
    done = kubectl.run("get", "--raw", f"/api/v1/nodes/{namespace.node}/proxy/no/such/page")
    assert (done.returncode, b"could not find the requested resource" in done.stderr) == (1, True)
