"""Test the URLs at which the runtime serves commands, attach streams and forwarded ports.

Go: pkg/kubelet/kubelet_pods_test.go (TestGetExec, TestGetPortForward)
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kubelet import container as kubecontainer
from kubelet.container.testing import FakeContainerCommandRunner
from kubelet.cri.streaming import portforward, remotecommand
from kubelet.kubelet import Kubelet
from kubelet.testing import TestKubelet, new_pod, runtime_pod
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types

NO_UID = types.UID("")

OPTIONS = remotecommand.Options(stdin=True, stdout=True)
CONTAINER = kubecontainer.Container(id=kubecontainer.ContainerID("test", "1"), name="c")


class Streams:
    """Return URLs that contain the request."""

    def get_exec(
        self,
        ctx: golang.Context,
        id: kubecontainer.ContainerID,
        cmd: list[str],
        stdin: bool,
        stdout: bool,
        stderr: bool,
        tty: bool,
    ) -> str:
        return f"exec {id} {cmd} {stdin:d}{stdout:d}{stderr:d}{tty:d}"

    def get_attach(
        self, ctx: golang.Context, id: kubecontainer.ContainerID, stdin: bool, stdout: bool, stderr: bool, tty: bool
    ) -> str:
        return f"attach {id} {stdin:d}{stdout:d}{stderr:d}{tty:d}"

    def get_port_forward(
        self, ctx: golang.Context, pod_name: str, pod_namespace: str, pod_uid: str, ports: list[int]
    ) -> str:
        return f"forward {pod_namespace}/{pod_name} {pod_uid} {ports}"


@dataclass
class Node:
    kubelet: Kubelet
    pod: v1.Pod
    test: TestKubelet

    @property
    def ctx(self) -> golang.Context:
        return self.test.ctx


@pytest.fixture
def node(test_kubelet: TestKubelet) -> Node:
    """Provide a kubelet with a pod whose container has a terminal."""
    pod = new_pod("p", containers=[v1.Container(name="c", tty=True)])
    test_kubelet.kubelet.streaming_runtime = Streams()  # type: ignore[assignment]
    test_kubelet.kubelet.pod_manager.add_pod(pod)
    test_kubelet.runtime.pod_list = [runtime_pod(pod, CONTAINER)]
    return Node(test_kubelet.kubelet, pod, test_kubelet)


def test_exec(node: Node) -> None:
    got = node.kubelet.get_exec(node.ctx, "p_ns", NO_UID, "c", ["ls", "-l"], OPTIONS)
    assert got == "exec test://1 ['ls', '-l'] 1100"


def test_attach_has_a_terminal_if_the_container_has(node: Node) -> None:
    assert node.kubelet.get_attach(node.ctx, "p_ns", node.pod.metadata.uid, "c", OPTIONS) == "attach test://1 1101"


def test_port_forward(node: Node) -> None:
    got = node.kubelet.get_port_forward(node.ctx, "p", "ns", node.pod.metadata.uid, portforward.V4Options([80]))
    assert got == f"forward ns/p {node.pod.metadata.uid} [80]"


@pytest.mark.parametrize(("full_name", "container"), [("other_ns", "c"), ("p_ns", "other")])
def test_what_does_not_run(node: Node, full_name: str, container: str) -> None:
    with pytest.raises(LookupError, match=f'container not found \\("{container}"\\)'):
        node.kubelet.get_exec(node.ctx, full_name, NO_UID, container, ["ls"], OPTIONS)
    with pytest.raises(LookupError, match=f"container {container} not found in pod {full_name}"):
        node.kubelet.get_attach(node.ctx, full_name, NO_UID, container, OPTIONS)
    with pytest.raises(LookupError, match=f'container not found \\("{container}"\\)'):
        node.kubelet.run_in_container(node.ctx, full_name, NO_UID, container, ["ls"])


def test_forwarding_to_a_pod_that_does_not_run(node: Node) -> None:
    with pytest.raises(LookupError, match='pod not found \\("other_ns"\\)'):
        node.kubelet.get_port_forward(node.ctx, "other", "ns", NO_UID, portforward.V4Options())


@pytest.mark.parametrize("uid", ["", "another"])
def test_attaching_to_a_pod_that_is_not_wanted_any_more(node: Node, uid: str) -> None:
    if not uid:
        node.kubelet.pod_manager.remove_pod(node.pod)
    with pytest.raises(LookupError, match="pod p_ns not found"):
        node.kubelet.get_attach(node.ctx, "p_ns", types.UID(uid), "c", OPTIONS)


def test_a_command_is_run_to_its_end(node: Node) -> None:
    runner = FakeContainerCommandRunner(stdout=b"out")
    node.kubelet.runner = runner
    assert node.kubelet.run_in_container(node.ctx, "p_ns", NO_UID, "c", ["ls"]) == b"out"
    assert (runner.container_id, runner.cmd) == (CONTAINER.id, ["ls"])


def test_a_runtime_that_is_away(node: Node) -> None:
    node.test.runtime.err = RuntimeError("runtime is away")
    with pytest.raises(RuntimeError, match="runtime is away"):
        node.kubelet.get_exec(node.ctx, "p_ns", NO_UID, "c", ["ls"], OPTIONS)
    with pytest.raises(RuntimeError, match="runtime is away"):
        node.kubelet.get_port_forward(node.ctx, "p", "ns", NO_UID, portforward.V4Options())
