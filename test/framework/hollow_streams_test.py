"""Test logs, exec, attach, ports and files of a hollow node's pods, with kubectl and with the official client."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.stream import portforward, stream

from framework import kubectl
from framework.apiserver import APIServer
from framework.apiserver.cluster import Cluster
from framework.hollow_node import HollowNode
from framework.hollow_pod import HollowPod
from framework.ports import free_port
from framework.waiting import wait_for, wait_for_end_of_threads
from kubelet.cri.remote import fake
from pkg import golang

_TIMEOUT = 30.0


@pytest.fixture(params=["cluster", "server"])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster | APIServer]:
    """Run the API server with authentication and TLS on both sides, or without both."""
    server: Cluster | APIServer = Cluster(tmp_path / "cluster") if request.param == "cluster" else APIServer()
    with server:
        yield server


@pytest.fixture
def node(api: Cluster | APIServer) -> Iterator[HollowNode]:
    with HollowNode(api, "node-1") as node:
        yield node


@pytest.fixture
def kubeconfig(api: Cluster | APIServer, tmp_path: Path) -> Path:
    if isinstance(api, Cluster):
        return api.admin_kubeconfig
    path = tmp_path / "kubeconfig"
    api.kubeconfig(path)
    return path


@pytest.fixture(params=["websocket", "spdy", "system"])
def ctl(request: pytest.FixtureRequest, kubeconfig: Path) -> kubectl.Kubectl:
    way: str = request.param
    return kubectl.ways(kubeconfig, "default")[way]


@pytest.fixture
def core(kubeconfig: Path) -> Iterator[client.CoreV1Api]:
    # The client leaves its connections to the garbage collector.
    with warnings.catch_warnings(), config.new_client_from_config(str(kubeconfig)) as api_client:
        warnings.simplefilter("ignore", ResourceWarning)
        yield client.CoreV1Api(api_client)
        api_client.rest_client.pool_manager.clear()
        gc.collect()


@pytest.fixture
def pod(api: Cluster | APIServer, node: HollowNode) -> HollowPod:
    containers = [{"name": "c", "image": "web:1"}]
    spec = {"nodeName": "node-1", "terminationGracePeriodSeconds": 0, "containers": containers}
    api.store.create("pods", {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    # kubectl checks that the pod runs.
    wait_for("a pod that runs", lambda: api.store.get("pods", "web", "default")["status"]["phase"] == "Running")
    return node.pod("web")


def _shout(process: fake.Process) -> int:
    for line in process.stdin:
        process.stdout.write(line.upper())
    process.stderr.write(b"done\n")
    return 3


def _answer(connection: socket.socket) -> None:
    """Send back what the client sent, after the end of its data."""
    connection.sendall(b"".join(iter(lambda: connection.recv(1 << 16), b"")).upper())


def test_logs(pod: HollowPod, ctl: kubectl.Kubectl) -> None:
    pod.log("one\ntwo")
    assert ctl.run("logs", "web").stdout == b"one\ntwo\n"
    with ctl.start("logs", "--follow", "--tail=1", "web") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"two\n"
        pod.log("three")
        assert follower.stdout.readline() == b"three\n"
        follower.terminate()


def test_exec(pod: HollowPod, ctl: kubectl.Kubectl) -> None:
    pod.on_exec("hello\n")
    pod.on_exec("", command="ls /nowhere", stderr="ls: no such file\n", exit_code=2)
    pod.on_exec(_shout, command=["shout"])
    assert ctl.run("exec", "web", "--", "greet").stdout == b"hello\n"
    failed = ctl.run("exec", "web", "--", "ls", "/nowhere")
    assert failed.returncode == 2
    assert b"ls: no such file\n" in failed.stderr
    shouted = ctl.run("exec", "-i", "web", "--", "shout", stdin=b"a\nb\n" * 5_000)
    assert (shouted.returncode, shouted.stdout) == (3, b"A\nB\n" * 5_000)
    assert shouted.stderr.startswith(b"done\n")


def test_a_function_that_raises_is_told(pod: HollowPod, ctl: kubectl.Kubectl) -> None:
    def fail(process: fake.Process) -> int:
        raise ValueError("not today")

    pod.on_exec(fail)
    failed = ctl.run("exec", "web", "--", "anything")
    assert failed.returncode == 1
    assert b"not today" in failed.stderr


def test_attach(pod: HollowPod, ctl: kubectl.Kubectl, node: HollowNode) -> None:
    pod.log("before")
    with ctl.start("attach", "web") as attached:
        assert attached.stdout is not None
        lines: list[bytes] = []
        seen = threading.Event()

        def read() -> None:
            for line in iter(attached.stdout.readline, b""):  # type: ignore[union-attr]
                lines.append(line)
                seen.set()

        reader = golang.go(read, name="reader")
        while not seen.is_set():
            pod.log("hello")
            seen.wait(0.1)
        node.runtime.end_container(node.runtime.container("web", "c").id, 0)
        reader.join(_TIMEOUT)
        assert set(lines) == {b"hello\n"}
        assert attached.wait(_TIMEOUT) == 0


@contextlib.contextmanager
def _listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                _answer(connection)

        thread = golang.go(serve, name="listener")
        yield listener.getsockname()[1]
        thread.join(_TIMEOUT)


def _ask(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT) as connection:
        connection.sendall(b"question" * 10_000)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@contextlib.contextmanager
def _forwarded(ctl: kubectl.Kubectl, port: int) -> Iterator[int]:
    """Forward a local port to the pod, and yield the local port."""
    local = free_port()
    with ctl.start("port-forward", "web", f"{local}:{port}") as forwarding:
        assert forwarding.stdout is not None
        assert forwarding.stdout.readline().startswith(b"Forwarding from 127.0.0.1")
        try:
            yield local
        finally:
            forwarding.terminate()


def test_port_forward(pod: HollowPod, ctl: kubectl.Kubectl) -> None:
    with _listening() as port:
        pod.on_port(80, ("127.0.0.1", port))
        with _forwarded(ctl, 80) as local:
            assert _ask(local) == b"QUESTION" * 10_000
    pod.on_port(81, _answer)
    with _forwarded(ctl, 81) as local:
        assert _ask(local) == b"QUESTION" * 10_000


def test_a_port_at_which_nobody_listens(pod: HollowPod, ctl: kubectl.Kubectl) -> None:
    with _forwarded(ctl, 82) as local:
        assert _ask_in_vain(local) == b""


def _ask_in_vain(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT) as connection:
        try:
            return connection.recv(1)
        except ConnectionResetError:
            return b""


def test_files(pod: HollowPod, ctl: kubectl.Kubectl, tmp_path: Path) -> None:
    pod.write_file("/etc/settings", "colour: red\n")
    copied = ctl.run("cp", "web:etc/settings", str(tmp_path / "settings"))
    assert (tmp_path / "settings").read_text() == "colour: red\n", copied
    assert ctl.run("exec", "web", "--", "cat", "/etc/settings").stdout == b"colour: red\n"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "big").write_bytes(b"x" * 300_000)
    copied = ctl.run("cp", str(tmp_path / "data"), "web:/srv/data")
    assert pod.read_file("/srv/data/big") == b"x" * 300_000, copied
    assert ctl.run("cp", "web:/none", str(tmp_path / "none")).returncode == 2


def test_the_official_client(pod: HollowPod, core: client.CoreV1Api) -> None:
    """The official client's logs, exec and port forwarding work over WebSockets, although with older protocols."""
    pod.log("one")
    pod.on_exec(_shout, command=["shout"])
    pod.on_port(80, lambda connection: connection.sendall(connection.recv(100).upper()))
    assert core.read_namespaced_pod_log("web", "default", _preload_content=False).data == b"one\n"
    with _running(core, "shout") as running:
        running.write_stdin("a\n")
        assert running.readline_stdout(timeout=_TIMEOUT) == "A"
    pod.on_exec("said\n", exit_code=4)
    with _running(core, "x") as running:
        running.run_forever(timeout=_TIMEOUT)
        assert (running.read_stdout(), running.returncode) == ("said\n", 4)
    forwarding: Any = portforward(core.connect_get_namespaced_pod_portforward, "web", "default", ports="80")
    with contextlib.closing(forwarding.socket(80)) as connection:
        connection.sendall(b"question\n")
        assert connection.recv(100) == b"QUESTION\n"
    # The client leaves its own connection open once the server has closed the stream.
    wait_for_end_of_threads("Kubernetes port forward proxy: 80")
    forwarding.websocket.shutdown()


def _running(core: client.CoreV1Api, command: str) -> contextlib.closing[Any]:
    """Run a command in the web pod with the official client."""
    return contextlib.closing(
        stream(
            core.connect_get_namespaced_pod_exec,
            "web",
            "default",
            command=[command],
            stdin=True,
            stdout=True,
            _preload_content=False,
        )
    )


def test_exec_probes_and_hooks_are_answered_the_same_way(api: Cluster | APIServer, node: HollowNode) -> None:
    probe = {"exec": {"command": ["ready"]}, "periodSeconds": 1, "failureThreshold": 1}
    containers = [{"name": "c", "image": "web:1", "readinessProbe": probe}]
    spec = {"nodeName": "node-1", "terminationGracePeriodSeconds": 0, "containers": containers}
    api.store.create("pods", {"metadata": {"name": "probed", "namespace": "default"}, "spec": spec})
    pod = node.pod("probed")
    asked = threading.Event()

    def answer(process: fake.Process) -> int:
        asked.set()
        return 1

    pod.on_exec(answer, command=["ready"])
    assert asked.wait(_TIMEOUT)


def test_the_api_server_never_asks_another_kubelet(tmp_path: Path) -> None:
    """The API server connects to no other kubelet, even on behalf of a node without a server."""
    with Cluster(tmp_path) as cluster, HollowNode(cluster, "node-1", config={"enableServer": False}):
        [node] = cluster.store.list("nodes")
        assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] != 10250


def test_wrong_names(api: Cluster | APIServer, pod: HollowPod, node: HollowNode) -> None:
    with pytest.raises(LookupError, match="pod default/wep not found; the namespace has web"):
        node.pod("wep")
    with pytest.raises(ValueError, match="pod default/web has no container 'd': it has c"):
        pod.log("x", container="d")
    with pytest.raises(ValueError, match="stream 'stdin' is not one of stdout, stderr"):
        pod.log("x", stream="stdin")
    with pytest.raises(FileNotFoundError, match="/none"):
        pod.read_file("/none")
    with HollowNode(api, "node-2") as other, pytest.raises(LookupError, match="is on node node-1"):
        other.pod("web")
