"""Test commands in containers, attaching to containers, copying of files and port forwarding, with kubectl.

Each test runs over WebSockets and over SPDY, and a few also run with the system's own kubectl.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from framework import kubectl as kubectls
from framework.cluster_client import Namespace, is_running, restarts, terminated
from framework.kubectl import Kubectl
from framework.local_cluster import Environment
from framework.pods import pod, shell, sleeper
from framework.waiting import wait_for

pytestmark = pytest.mark.kubectl

MIB = 1 << 20
MUCH = 100 * MIB
TIMEOUT = 120.0
# Tests repeat their input after this many seconds, because the other end may not have been ready for it yet.
PATIENCE = 2.0
# The pod has a server that sends much data, one that returns the checksum of much data, and an echo server.
DOWNLOAD, UPLOAD, ECHO, CLOSED = 8081, 8082, 8083, 8089
SERVERS = f"""
nc -ll -p {DOWNLOAD} -e head -c {MUCH} /dev/zero &
nc -ll -p {UPLOAD} -e sh -c 'head -c {MUCH} | sha256sum' &
nc -ll -p {ECHO} -e cat &
trap 'exit 0' TERM
while true; do sleep 1000 & wait $!; done
"""
READS_LINES = 'while read line; do echo "got $line"; done; echo end'
DIES = "while [ ! -e /tmp/die ]; do sleep 0.1; done; exit 5"


@pytest.fixture(scope="module")
def ways(environment: Environment, namespace: Namespace) -> dict[str, Kubectl]:
    return kubectls.ways(environment.kubeconfig, namespace.name)


@pytest.fixture(params=["websocket", "spdy"])
def kubectl(request: pytest.FixtureRequest, ways: dict[str, Kubectl]) -> Kubectl:
    return ways[request.param]


@pytest.fixture(autouse=True, scope="module")
def streams(namespace: Namespace, local_threads: None) -> None:
    """Create the pods that all tests use."""
    terminal = {"stdin": True, "tty": True}
    namespace.create(
        pod(
            "streams",
            shell(SERVERS),
            shell(READS_LINES, "lines", stdin=True),
            shell("exec sh", "terminal", **terminal),
            shell(READS_LINES, "once", stdin=True, stdinOnce=True),
        )
    )
    namespace.create(pod("on-host", sleeper(), hostNetwork=True))
    namespace.wait_for_running("streams", "on-host")


@pytest.fixture(scope="module")
def local_threads(environment: Environment, used_kubelet: None) -> Iterator[None]:
    """Check on a local cluster that the kubelet has as many threads and descriptors after the tests as before."""
    if environment.local is None:
        yield
        return
    local = environment.local
    before = local.kubelet_usage()
    yield

    def as_before() -> bool:
        # A few more threads belong to the pods, and to connections that the API server keeps open.
        return all(now <= then + 15 for now, then in zip(local.kubelet_usage(), before, strict=True))

    wait_for("threads and descriptors are released", as_before, 120, lambda: (before, local.kubelet_usage()))


@pytest.fixture(scope="module")
def much() -> bytes:
    return os.urandom(MIB) * (MUCH // MIB)


# --- Commands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["websocket", "spdy", "system"])
def test_output_and_exit_code(ways: dict[str, Kubectl], way: str) -> None:
    script = "echo out; echo err >&2; exit 3"
    done = ways[way].run("exec", "streams", "-c", "main", "--", "sh", "-c", script)

    assert (done.stdout, done.returncode) == (b"out\n", 3), done
    # Some versions of kubectl complain first that they were not ready for the first message.
    assert done.stderr.endswith(b"err\ncommand terminated with exit code 3\n")


def test_much_goes_through_a_command_and_comes_back(kubectl: Kubectl, much: bytes) -> None:
    """A command receives and returns much data. It ends only if the end of its stdin arrives while it still writes."""
    done = kubectl.run("exec", "-i", "streams", "-c", "main", "--", "cat", stdin=much)

    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout) == len(much)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(much).digest()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["streams", "-c", "main", "--", "/no/such/program"], None, "no such file or directory"),
        (["streams", "-c", "other", "--", "true"], 1, "container other (is not valid|not found)"),
        (["nobody", "--", "true"], 1, r'pods "nobody" not found'),
    ],
)
def test_commands_that_cannot_be(kubectl: Kubectl, arguments: list[str], code: int | None, message: str) -> None:
    done = kubectl.run("exec", *arguments)
    assert done.returncode == code if code is not None else done.returncode != 0, done
    assert re.search(message, done.stderr.decode()), done


class Terminal:
    """Run kubectl on a terminal of its own, as a context manager."""

    def __init__(self, kubectl: Kubectl, *arguments: str) -> None:
        self._master, slave = os.openpty()
        self.resize(24, 80)
        # The process learns of a new size only if the terminal is its controlling terminal.
        command = ["setsid", "--ctty", "--wait", *kubectl.command(*arguments)]
        self._process = subprocess.Popen(command, env=kubectl.env(), stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.seen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        # Processes below kubectl end when their terminal closes.
        os.close(self._master)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def _read_until(self, pattern: str, begun: int) -> None:
        """Read until the pattern appears after the position `begun`, or until no output has arrived for a while."""
        while not re.search(pattern, self.seen[begun:]):
            ready, _, _ = select.select([self._master], [], [], PATIENCE)
            if not ready:
                return
            try:
                self.seen += os.read(self._master, 65536).decode()
            except OSError as err:
                raise AssertionError(f"{pattern!r} not seen in {self.seen!r}") from err

    def type_until(self, text: str, pattern: str) -> None:
        """Type the text repeatedly, because the other end may need a moment to learn of an earlier change."""
        deadline = time.monotonic() + TIMEOUT
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline, f"{pattern!r} not seen in {self.seen!r}"
            self.type(text)
            begun = len(self.seen)
            self._read_until(r"\d+ \d+\r\n", begun)

    def wait(self) -> int:
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                self.seen += data.decode()
        return self._process.wait(TIMEOUT)


def test_a_command_with_a_terminal(kubectl: Kubectl) -> None:
    with Terminal(kubectl, "exec", "-it", "streams", "-c", "main", "--", "sh") as terminal:
        terminal.type_until("stty size\n", "24 80\r\n")
        terminal.resize(50, 132)
        terminal.type_until("stty size\n", "50 132\r\n")
        terminal.type("exit 7\n")
        assert terminal.wait() == 7, terminal.seen
        assert "command terminated with exit code 7" in terminal.seen


def test_the_container_of_a_command_ends(kubectl: Kubectl, namespace: Namespace) -> None:
    name = f"dies-{Path(kubectl.program).name}-{len(kubectl.environment)}-{os.urandom(2).hex()}"
    namespace.create(pod(name, shell(DIES), restartPolicy="Never"))
    namespace.wait_for(name, "running", is_running)
    with running(kubectl, "exec", "-i", name, "--", "sh", "-c", "echo here; sleep 1000") as process:
        assert line_of(process) == b"here\n"
        # The command's own output may be lost when its container ends.
        kubectl.run("exec", name, "--", "touch", "/tmp/die")
        assert process.wait(TIMEOUT) == 137
        assert process.stderr is not None
        assert process.stderr.read() == b"command terminated with exit code 137\n"
    ended = terminated(namespace.wait_for(name, "ended", lambda found: found.status.phase == "Failed"))
    assert ended is not None and ended.exit_code == 5


def test_a_client_that_is_killed_leaves_the_command_without_stdin(ways: dict[str, Kubectl]) -> None:
    """A command sees the end of its stdin when its client is killed.

    The test uses a WebSocket, which the kubelet itself translates. With SPDY, the runtime decides what happens when the
    connection breaks.
    """
    kubectl = ways["websocket"]
    sign = f"/tmp/gone-{os.urandom(4).hex()}"
    script = f"echo here; cat; touch {sign}"
    with running(kubectl, "exec", "-i", "streams", "-c", "main", "--", "sh", "-c", script) as process:
        assert line_of(process) == b"here\n"
        process.send_signal(signal.SIGKILL)
        process.wait()

    def is_there() -> bool:
        return kubectl.run("exec", "streams", "-c", "main", "--", "ls", sign).returncode == 0

    wait_for("the command sees the end of its stdin", is_there, TIMEOUT)


@contextmanager
def running(kubectl: Kubectl, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = kubectl.start(*arguments)
    try:
        yield process
    finally:
        process.kill()
        # This closes the pipes of kubectl. pytest shows kubectl's messages if the test fails.
        _, complaints = process.communicate()
        print((complaints or b"").decode(errors="replace"), file=sys.stderr)


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    line = line_within(process, TIMEOUT)
    assert line is not None, "kubectl wrote no line"
    return line


def line_within(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline() if ready else None


# --- Attaching --------------------------------------------------------------------------------------


def test_attached_to_stdin_and_stdout(kubectl: Kubectl) -> None:
    with running(kubectl, "attach", "-i", "streams", "-c", "lines") as process:
        assert process.stdin is not None
        # A client does not receive what the container wrote before the client was attached.
        heard = None
        deadline = time.monotonic() + TIMEOUT
        while heard is None:
            assert time.monotonic() < deadline
            process.stdin.write(b"hello\n")
            process.stdin.flush()
            heard = line_within(process, PATIENCE)
        assert heard == b"got hello\n"


def test_attached_to_a_terminal(kubectl: Kubectl) -> None:
    with Terminal(kubectl, "attach", "-it", "streams", "-c", "terminal") as terminal:
        terminal.type_until("stty size\n", "24 80\r\n")
        terminal.resize(43, 101)
        terminal.type_until("stty size\n", "43 101\r\n")


def test_a_container_that_reads_once_ends_with_its_stdin(ways: dict[str, Kubectl], namespace: Namespace) -> None:
    done = ways["websocket"].run("attach", "-i", "streams", "-c", "once", stdin=b"a\nb\n")
    assert done.stdout.endswith(b"got a\ngot b\nend\n"), done
    namespace.wait_for_seen("streams", "has restarted once", lambda found: restarts(found, "once"))


# --- Copying ----------------------------------------------------------------------------------------


def test_files_are_copied_there_and_back(kubectl: Kubectl, tmp_path: Path) -> None:
    data = os.urandom(MIB) * 20
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(data)
    (tmp_path / "there" / "small").write_text("small")
    there = kubectl.run("cp", str(tmp_path / "there"), "streams:/tmp/copied", "-c", "main")
    assert there.returncode == 0, there
    back = kubectl.run("cp", "streams:/tmp/copied", str(tmp_path / "back"), "-c", "main")
    assert back.returncode == 0, back
    assert (tmp_path / "back" / "file").read_bytes() == data
    assert (tmp_path / "back" / "small").read_text() == "small"
    kubectl.run("exec", "streams", "-c", "main", "--", "rm", "-r", "/tmp/copied")


# --- Port forwarding --------------------------------------------------------------------------------


@contextmanager
def forwarded(kubectl: Kubectl, name: str, *ports: int) -> Iterator[dict[int, int]]:
    """Forward ports of a pod, and yield the local port of each of them."""
    with running(kubectl, "port-forward", "--address=127.0.0.1", f"pod/{name}", *(f":{port}" for port in ports)) as it:
        found: dict[int, int] = {}
        while len(found) < len(ports):
            line = line_of(it).decode()
            match = re.match(r"Forwarding from 127\.0\.0\.1:(\d+) -> (\d+)", line)
            assert match, (line, it.stderr and it.stderr.read())
            found[int(match[2])] = int(match[1])
        yield found


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)


def read_all(sock: socket.socket) -> bytes:
    got = bytearray()
    while data := sock.recv(1 << 18):
        got += data
    return bytes(got)


def test_much_is_forwarded_over_several_ports(kubectl: Kubectl, much: bytes) -> None:
    with (
        forwarded(kubectl, "streams", DOWNLOAD, UPLOAD) as ports,
        connect(ports[DOWNLOAD]) as download,
        connect(ports[UPLOAD]) as upload,
    ):
        sender = threading.Thread(target=upload.sendall, args=(much,), name="sender")
        sender.start()
        assert read_all(download) == bytes(MUCH)
        assert read_all(upload).split()[0].decode() == hashlib.sha256(much).hexdigest()
        sender.join()


def test_connections_come_and_go(kubectl: Kubectl) -> None:
    with forwarded(kubectl, "streams", ECHO) as ports:
        for number in range(10):
            with connect(ports[ECHO]) as sock:
                sock.sendall(b"%d\n" % number)
                assert sock.recv(100) == b"%d\n" % number
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(connect(ports[ECHO])) for _ in range(10)]
            for number, sock in enumerate(socks):
                sock.sendall(b"%d\n" % number)
            assert [sock.recv(100) for sock in socks] == [b"%d\n" % number for number in range(10)]


def test_a_port_that_nobody_listens_on(kubectl: Kubectl) -> None:
    with forwarded(kubectl, "streams", CLOSED) as ports, connect(ports[CLOSED]) as sock:
        assert read_all(sock) == b""


@pytest.mark.local
def test_a_pod_on_the_hosts_network(kubectl: Kubectl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with forwarded(kubectl, "on-host", port) as ports, connect(ports[port]) as here:
            there, _ = listener.accept()
            with there:
                here.sendall(b"hello")
                assert there.recv(100) == b"hello"
