"""Test that the fake runtime behaves like a real one where the kubelet depends on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.waiting import wait_for

from kubelet.cri import remote
from kubelet.cri.remote import fake
from kubelet.cri.remote.fake import behaviour
from pkg import golang
from pkg.apimachinery.clock import testing as clocktesting

CTX = golang.background()
RUNNING, EXITED = runtimeapi.CONTAINER_RUNNING, runtimeapi.CONTAINER_EXITED


class Node:
    """Provide a runtime on a fake clock, with short helper methods."""

    def __init__(self) -> None:
        self.clock = clocktesting.FakeClock()
        self.runtime = fake.FakeRuntime(self.clock, images_present=["busybox"])
        self.service = fake.InProcessRuntimeService(self.runtime)

    def config(self, pod: str, annotations: dict[str, str] | None = None) -> runtimeapi.PodSandboxConfig:
        return runtimeapi.PodSandboxConfig(
            metadata=runtimeapi.PodSandboxMetadata(name=pod, namespace="ns", uid=f"uid-{pod}"),
            labels={"io.kubernetes.pod.uid": f"uid-{pod}", "app": pod},
            annotations=annotations,
        )

    def sandbox(self, pod: str = "web", annotations: dict[str, str] | None = None) -> str:
        return self.service.run_pod_sandbox(CTX, self.config(pod, annotations), "")

    def create(self, sandbox_id: str, *command: str, name: str = "c", attempt: int = 0) -> str:
        config = runtimeapi.ContainerConfig(
            metadata=runtimeapi.ContainerMetadata(name=name, attempt=attempt),
            image=runtimeapi.ImageSpec(image="busybox"),
            command=command,
            labels={"io.kubernetes.container.name": name},
        )
        return self.service.create_container(CTX, sandbox_id, config, runtimeapi.PodSandboxConfig())

    def start(self, sandbox_id: str, *command: str, name: str = "c") -> str:
        container_id = self.create(sandbox_id, *command, name=name)
        self.service.start_container(CTX, container_id)
        return container_id

    def status(self, container_id: str) -> runtimeapi.ContainerStatus:
        return self.service.container_status(CTX, container_id, False).status


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.runtime.close()


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        (["sh", "-c", "exit 3"], fake.Behaviour(run_for=0, exit_code=3)),
        (["/bin/sh", "-c", "sleep 1; exit 1"], fake.Behaviour(run_for=1, exit_code=1)),
        (["sleep", "1000"], fake.Behaviour(run_for=1000)),
        (["sh", "-c", "echo started; exec sleep 1.5"], fake.Behaviour(run_for=1.5)),
        (["false"], fake.Behaviour(run_for=0, exit_code=1)),
        (["sh", "-c", "true && sleep infinity"], fake.Behaviour()),
        (["nginx", "-g", "daemon off;"], fake.Behaviour()),
        ([], fake.Behaviour()),
        (["sh", "-c", "trap '' TERM; while true; do sleep 1; done"], fake.Behaviour(ignore_sigterm=True)),
        (["sh", "-c", "trap 'echo bye; exit 0' TERM; while true; do sleep 1; done"], fake.Behaviour()),
        (["sh", "-c", "it's broken"], fake.Behaviour()),
        (
            ["sh", "-c", "echo done > /dev/termination-log; exit 0"],
            fake.Behaviour(run_for=0, termination_message="done"),
        ),
    ],
)
def test_behaviour_read_from_command(argv: list[str], want: fake.Behaviour) -> None:
    assert behaviour.from_command(argv) == want


def test_container_ends_when_its_time_has_come(node: Node) -> None:
    container_id = node.start(node.sandbox(), "sh", "-c", "sleep 5; exit 7")
    node.clock.step(4.9)
    assert node.status(container_id).state == RUNNING
    node.clock.step(0.2)
    status = node.status(container_id)
    assert (status.state, status.exit_code, status.reason) == (EXITED, 7, "Error")
    assert status.finished_at > status.started_at >= status.created_at


def test_annotation_and_rules_decide(node: Node) -> None:
    sandbox_id = node.sandbox("a", {"fake.cri/c": '{"run_for": 0, "exit_code": 9}'})
    assert node.status(node.start(sandbox_id, "sleep", "9")).exit_code == 9
    node.runtime.behaviours.add(fake.Behaviour(run_for=0, exit_code=5), name="twice", times=1)
    first = node.start(node.sandbox("b"), name="twice")
    second = node.start(node.sandbox("c"), name="twice")
    assert node.status(first).exit_code == 5
    assert node.status(second).state == RUNNING


def test_unknown_field_of_annotation_is_named() -> None:
    with pytest.raises(ValueError, match="unknown field exitcode"):
        behaviour.from_json('{"exitcode": 1}')


def test_oom_and_start_errors(node: Node) -> None:
    sandbox_id = node.sandbox()
    node.runtime.behaviours.add(fake.Behaviour(run_for=0, oom_killed=True), name="oom")
    status = node.status(node.start(sandbox_id, name="oom"))
    assert (status.exit_code, status.reason) == (137, "OOMKilled")
    node.runtime.behaviours.add(fake.Behaviour(start_error="exec: not found"), name="bad")
    container_id = node.create(sandbox_id, name="bad")
    with pytest.raises(remote.RemoteError, match="exec: not found"):
        node.service.start_container(CTX, container_id)
    assert (node.status(container_id).exit_code, node.status(container_id).reason) == (128, "StartError")
    node.runtime.behaviours.add(fake.Behaviour(create_error="bad mount"), name="worse")
    for _ in range(2):  # The name is free again.
        with pytest.raises(remote.RemoteError, match="bad mount"):
            node.create(sandbox_id, name="worse")


def test_filters(node: Node) -> None:
    a, b = node.sandbox("a"), node.sandbox("b")
    a1, a2, b1 = node.start(a, name="1"), node.start(a, name="2"), node.start(b, name="1")
    node.service.stop_container(CTX, a2, 0)
    node.service.stop_pod_sandbox(CTX, b)
    exited = runtimeapi.ContainerStateValue(state=EXITED)
    ready = runtimeapi.PodSandboxStateValue(state=runtimeapi.SANDBOX_READY)

    def containers(**kw: Any) -> set[str]:
        return {c.id for c in node.service.list_containers(CTX, runtimeapi.ContainerFilter(**kw))}

    def sandboxes(**kw: Any) -> set[str]:
        return {s.id for s in node.service.list_pod_sandbox(CTX, runtimeapi.PodSandboxFilter(**kw))}

    assert {c.id for c in node.service.list_containers(CTX, None)} == {a1, a2, b1}
    assert containers(id=a1) == {a1}
    assert containers(pod_sandbox_id=a) == {a1, a2}
    assert containers(state=exited) == {a2, b1}
    assert containers(pod_sandbox_id=a, state=exited) == {a2}
    assert containers(label_selector={"io.kubernetes.container.name": "1"}) == {a1, b1}
    assert sandboxes(state=ready) == {a}
    assert sandboxes(label_selector={"io.kubernetes.pod.uid": "uid-b"}) == {b}
    assert sandboxes(label_selector={"app": "a"}) == {a}
    assert sandboxes(id="nope") == set()


@pytest.mark.parametrize(
    ("life", "grace", "waits", "code"),
    [
        pytest.param(fake.Behaviour(), 30, 0, 143, id="ends on SIGTERM"),
        pytest.param(fake.Behaviour(), 0, 0, 137, id="no grace"),
        pytest.param(fake.Behaviour(stop_after=3, sigterm_exit_code=0), 30, 3, 0, id="takes its time"),
        pytest.param(fake.Behaviour(stop_after=9), 2, 2, 137, id="takes too long"),
        pytest.param(fake.Behaviour(ignore_sigterm=True), 5, 5, 137, id="ignores SIGTERM"),
        pytest.param(fake.Behaviour(ignore_sigterm=True, run_for=1, exit_code=4), 5, 5, 4, id="ends meanwhile"),
    ],
)
def test_stop_container(node: Node, life: fake.Behaviour, grace: int, waits: float, code: int) -> None:
    node.runtime.behaviours.add(life)
    container_id = node.start(node.sandbox())
    thread = golang.go(node.service.stop_container, CTX, container_id, grace, name="stopper")
    if waits:
        wait_for("the runtime sleeps", lambda: node.runtime.sleeping)
        assert node.status(container_id).state == RUNNING
        node.clock.step(waits)
    thread.join(30)
    assert not thread.is_alive()
    assert (node.status(container_id).state, node.status(container_id).exit_code) == (EXITED, code)


def test_what_is_running_cannot_be_removed(node: Node) -> None:
    sandbox_id = node.sandbox()
    container_id = node.start(sandbox_id)
    with pytest.raises(remote.RemoteError, match="still running"):
        node.service.remove_container(CTX, container_id)
    with pytest.raises(remote.RemoteError, match="not fully stopped"):
        node.service.remove_pod_sandbox(CTX, sandbox_id)
    node.service.stop_pod_sandbox(CTX, sandbox_id)
    assert node.status(container_id).exit_code == 137
    assert node.service.pod_sandbox_status(CTX, sandbox_id, False).status.network.ip == ""
    node.service.remove_pod_sandbox(CTX, sandbox_id)
    assert not node.service.list_containers(CTX, None)


def test_stopping_and_removing_what_is_gone_succeeds(node: Node) -> None:
    node.service.stop_container(CTX, "nope", 1)
    node.service.remove_container(CTX, "nope")
    node.service.stop_pod_sandbox(CTX, "nope")
    node.service.remove_pod_sandbox(CTX, "nope")


def test_names_are_reserved(node: Node) -> None:
    sandbox_id = node.sandbox("web")
    with pytest.raises(remote.RemoteError, match=f'name "web_ns_uid-web_0" is reserved for "{sandbox_id}"'):
        node.sandbox("web")
    node.create(sandbox_id, name="c")
    with pytest.raises(remote.RemoteError, match="failed to reserve container name"):
        node.create(sandbox_id, name="c")
    node.create(sandbox_id, name="c", attempt=1)


def test_not_found(node: Node) -> None:
    for call in (
        lambda: node.status("nope"),
        lambda: node.service.pod_sandbox_status(CTX, "nope", False),
        lambda: node.service.start_container(CTX, "nope"),
        lambda: node.create("nope"),
    ):
        with pytest.raises(remote.RemoteError) as raised:
            call()
        assert remote.is_not_found(raised.value)


def test_host_network_has_no_ip(node: Node) -> None:
    config = node.config("host")
    config.linux.security_context.namespace_options.network = runtimeapi.NODE
    sandbox_id = node.service.run_pod_sandbox(CTX, config, "")
    assert node.service.pod_sandbox_status(CTX, sandbox_id, False).status.network.ip == ""


def test_faults(node: Node) -> None:
    faults = node.runtime.faults
    faults.fail("RunPodSandbox", "no address", times=2)
    for _ in range(2):
        with pytest.raises(remote.RemoteError, match="no address"):
            node.sandbox()
    sandbox_id = node.sandbox()
    fault = faults.fail("*", "gone", code=grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(remote.RemoteError, match="code = Unavailable"):
        node.service.version(CTX, "")
    faults.remove(fault)
    faults.fail("PodSandboxStatus", "odd", match=lambda request: request.verbose)
    node.service.pod_sandbox_status(CTX, sandbox_id, False)
    with pytest.raises(remote.RemoteError, match="odd"):
        node.service.pod_sandbox_status(CTX, sandbox_id, True)


def test_latency_is_on_the_clock(node: Node) -> None:
    node.runtime.faults.latency("Version", 10)
    thread = golang.go(node.service.version, CTX, "", name="caller")
    wait_for("the runtime sleeps", lambda: node.runtime.sleeping)
    node.clock.step(10)
    thread.join(30)
    assert not thread.is_alive()


def test_hang_of_one_sandbox_leaves_others_alone(node: Node) -> None:
    stuck, fine = node.sandbox("stuck"), node.sandbox("fine")
    fault = node.runtime.faults.hang("PodSandboxStatus", sandbox="stuck")
    listing = node.runtime.faults.hang("ListContainers", sandbox=stuck)
    thread = golang.go(node.service.pod_sandbox_status, CTX, stuck, False, name="caller")
    wait_for("the call hangs", lambda: fault.waiting == 1)
    node.service.pod_sandbox_status(CTX, fine, False)
    node.service.list_containers(CTX, None)
    assert listing.hits == 0
    node.runtime.faults.remove(fault)
    thread.join(30)
    assert not thread.is_alive()


def test_answer_that_hangs_comes_after_the_deed(node: Node) -> None:
    wanted = node.runtime.faults.hang("StopPodSandbox", answer=True, match=lambda request: True)
    other = node.runtime.faults.hang("StopPodSandbox", answer=True, match=lambda request: False)
    sandbox_id = node.sandbox()
    thread = golang.go(node.service.stop_pod_sandbox, CTX, sandbox_id, name="caller")
    wait_for("the call hangs", lambda: wanted.waiting == 1)
    assert not node.runtime.sandboxes[0].ready
    assert thread.is_alive()
    assert other.hits == 0
    node.runtime.faults.remove(wanted)
    thread.join(30)
    assert not thread.is_alive()


def test_recording(node: Node, tmp_path: Path) -> None:
    node.runtime.recorder.on = True
    sandbox_id = node.sandbox()
    node.service.stop_container(CTX, "gone", 30)
    with pytest.raises(remote.RemoteError):
        node.service.start_container(CTX, "gone")
    run, stop, start = (call.as_json() for call in node.runtime.recorder.calls())
    assert run["method"] == "RunPodSandbox"
    assert run["response"] == {"pod_sandbox_id": sandbox_id}
    assert stop["request"] == {"container_id": "gone", "timeout": "30"}
    assert start["error"].startswith("rpc error: code = NotFound")
    node.runtime.recorder.write(tmp_path / "cri.jsonl")
    assert len((tmp_path / "cri.jsonl").read_text().splitlines()) == 3


def test_termination_message_is_written(node: Node, tmp_path: Path) -> None:
    message = tmp_path / "message"
    config = runtimeapi.ContainerConfig(
        metadata=runtimeapi.ContainerMetadata(name="c"),
        image=runtimeapi.ImageSpec(image="busybox"),
        command=["sh", "-c", "echo done > /dev/termination-log"],
        mounts=[runtimeapi.Mount(container_path="/dev/termination-log", host_path=str(message))],
    )
    container_id = node.service.create_container(CTX, node.sandbox(), config, runtimeapi.PodSandboxConfig())
    node.service.start_container(CTX, container_id)
    assert node.status(container_id).state == EXITED
    assert message.read_text() == "done"


def test_image_and_user_of_a_container(node: Node) -> None:
    """A container reports the name under which its image was first known, whatever name was requested."""
    images = node.runtime.images
    images.add("other:1", image_id=images.add("busybox"))
    context = runtimeapi.LinuxContainerSecurityContext(
        run_as_user=runtimeapi.Int64Value(value=1000),
        run_as_group=runtimeapi.Int64Value(value=3000),
        supplemental_groups=[4000, 2000],
    )
    config = runtimeapi.ContainerConfig(
        metadata=runtimeapi.ContainerMetadata(name="c"),
        image=runtimeapi.ImageSpec(image="other:1"),
        linux=runtimeapi.LinuxContainerConfig(security_context=context),
    )
    container_id = node.service.create_container(CTX, node.sandbox(), config, runtimeapi.PodSandboxConfig())
    status = node.status(container_id)
    assert status.image.image == "busybox:latest"
    assert status.user.linux == runtimeapi.LinuxContainerUser(
        uid=1000, gid=3000, supplemental_groups=[2000, 3000, 4000]
    )
    root = node.status(node.create(node.sandbox("plain"))).user.linux
    assert root == runtimeapi.LinuxContainerUser(uid=0, gid=0, supplemental_groups=[0])


@pytest.mark.parametrize("method", ["exec", "attach", "port_forward"])
def test_streams_say_that_no_container_runs(node: Node, method: str) -> None:
    sandbox = node.sandbox()
    container = node.create(sandbox)
    requests = {
        "exec": runtimeapi.ExecRequest(container_id=container),
        "attach": runtimeapi.AttachRequest(container_id=container),
        "port_forward": runtimeapi.PortForwardRequest(pod_sandbox_id=sandbox),
    }
    with pytest.raises(remote.RemoteError, match="no container runs here"):
        getattr(node.service, method)(CTX, requests[method])


def test_as_a_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kubelet.cri.remote.fake", "--socket", str(tmp_path / "x.sock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "no container runs" in process.stdout.readline()
        service = remote.RemoteRuntimeService(CTX, f"unix://{tmp_path}/x.sock", 10)
        assert service.status(CTX, False).status.conditions[0].status
        service.close(CTX)
        process.terminate()
        assert process.wait(30) == 0
