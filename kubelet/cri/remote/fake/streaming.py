"""Serve the fake runtime's exec and attach with functions that simulate commands, and its port forwarding.

Go: k8s.io/cri-streaming/pkg/streaming/server.go
"""

from __future__ import annotations

import contextlib
import io
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, cast

from kubelet.cri.remote.fake import processes
from kubelet.cri.remote.fake.streams import (
    ERROR,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    STREAM_TYPES,
    Streams,
    upgrade_for_command,
    upgrade_for_ports,
)
from pkg import golang, klog
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.golang import http

if TYPE_CHECKING:
    from kubelet.cri.remote.fake.runtime import FakeRuntime
    from kubelet.cri.remote.fake.sandboxes import Container, Sandbox

_READ_SIZE = 1 << 16
_CONNECT_TIMEOUT = 10.0


class StreamingServer:
    """Serve the streams of a runtime at a free loopback port, and tell the runtime the URL.

    The URLs contain a secret, so that only clients that asked the runtime can use them. This is a context manager.
    """

    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime
        self._secret = secrets.token_urlsafe()
        self._server = http.Server(self._serve, name="fake-streaming")

    def start(self) -> None:
        """Start the server. Raise OSError."""
        self._server.listen("127.0.0.1", 0)
        self._runtime.streaming_url = f"http://127.0.0.1:{self._server.port}/{self._secret}"
        golang.go(self._server.serve, name="fake-streaming")

    def stop(self) -> None:
        """End all streams; a simulated command sees the end of its input and can no longer write."""
        self._runtime.streaming_url = ""
        self._server.close()

    def __enter__(self) -> StreamingServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _serve(self, w: http.ResponseWriter, req: http.Request) -> None:
        secret, _, what_and_id = req.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(secret, self._secret):
            raise http.HTTPError(404, "not found")
        w.let_client_pause()
        what, _, subject = what_and_id.partition("/")
        try:
            if what == "portforward":
                self._forward_ports(w, req, self._runtime.sandbox_of(subject))
            else:
                self._run_command(w, req, what, self._runtime.container_of(subject))
        except LookupError as err:
            raise http.HTTPError(404, str(err)) from err

    def _run_command(self, w: http.ResponseWriter, req: http.Request, what: str, container: Container) -> None:
        tty = req.param("tty") == "1"
        flags = {STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr"}
        wanted = [ERROR, *(each for each, name in flags.items() if req.param(name) == "1"), *([RESIZE] if tty else [])]
        streams, first = upgrade_for_command(w, req, wanted)
        streams.run(_Command(self._runtime, streams, container, what, req.query.get("command", []), wanted, tty), first)

    def _forward_ports(self, w: http.ResponseWriter, req: http.Request, sandbox: Sandbox) -> None:
        streams, first = upgrade_for_ports(w, req, [int(port) for port in req.query.get("port", [])])
        streams.run(_Forwarding(self._runtime.ports, streams, sandbox), first)


class _Command:
    """Run a command, which starts when the client has opened all streams."""

    def __init__(
        self,
        runtime: FakeRuntime,
        streams: Streams,
        container: Container,
        what: str,
        command: Sequence[str],
        wanted: Sequence[int],
        tty: bool,
    ) -> None:
        self._runtime = runtime
        self._streams = streams
        self._container = container
        self._what = what
        self._command = command
        self._missing = set(wanted)
        self._has_begun = False
        self._tty = tty
        self._ids: dict[int, int] = {}
        self._gone: golang.Channel[None] = golang.Channel()
        self._client_is_gone = False
        # The client's data goes into one end, and the function of the command reads from the other.
        self._input, self._stdin = socket.socketpair()

    def opened(self, stream: int, headers: Mapping[str, str]) -> None:
        kind = STREAM_TYPES.get(headers.get("streamtype", ""), -1)
        self._ids[kind] = stream
        self._missing.discard(kind)
        if not self._missing and not self._has_begun:
            self._has_begun = True
            golang.go(self._run, name=f"fake-{self._what}-{self._container.config.metadata.name}")

    def received(self, stream: int, data: bytes) -> None:
        if stream == self._ids.get(STDIN):
            with contextlib.suppress(OSError):  # The command has ended, or reads no input.
                self._input.sendall(data)

    def ended(self, stream: int) -> None:
        if stream == self._ids.get(STDIN):
            with contextlib.suppress(OSError):
                self._input.shutdown(socket.SHUT_WR)

    def gone(self) -> None:
        self._client_is_gone = True
        self._gone.close()
        self._input.close()
        if not self._has_begun:
            self._stdin.close()  # A command that has begun closes its own stdin.

    def _run(self) -> None:
        if STDIN not in self._ids:
            self._input.shutdown(socket.SHUT_WR)
        with self._stdin, self._stdin.makefile("rb") as stdin:
            status = self._played(self._new_process(stdin))
        with contextlib.suppress(OSError):  # The client has closed its connection.
            for kind in (STDOUT, STDERR):
                if kind in self._ids:
                    self._streams.send(self._ids[kind], b"", end=True)
            self._streams.send(self._ids[ERROR], codec.encode_json(status), end=True)
            self._streams.finish()

    def _new_process(self, stdin: IO[bytes]) -> processes.Process:
        stdout = self._output(STDOUT)
        stderr = stdout if self._tty else self._output(STDERR)
        return processes.new_process(self._container, self._command, stdin, stdout, stderr, tty=self._tty)

    def _output(self, kind: int) -> IO[bytes]:
        return cast("IO[bytes]", _Output(self._streams, self._ids[kind])) if kind in self._ids else io.BytesIO()

    def _played(self, process: processes.Process) -> metav1.Status:
        try:
            if self._what == "attach":
                self._runtime.outputs.follow(self._container, process.stdout, process.stderr, self._gone)
                return _exited(0)
            play = self._runtime.plays.find(self._container, self._command) or self._behave
            return _exited(play(process) or 0)
        except Exception as err:  # A test's function may raise any exception, and the client gets its message.
            if self._client_is_gone:
                return _exited(0)
            klog.error_s(err, "Command in a fake container failed", command=process.command)
            return _failed(f"{' '.join(process.command)} in {process.pod}/{process.container}: {err!r}")

    def _behave(self, process: processes.Process) -> int:
        """Run a command as the container's behaviour defines."""
        behaviour = self._container.behaviour
        if behaviour.exec_for:
            golang.select(self._runtime.clock.after(behaviour.exec_for), self._container.exited, self._gone)
        process.stdout.write(behaviour.exec_stdout.encode())
        process.stderr.write(behaviour.exec_stderr.encode())
        return behaviour.exec_exit_code


class _Output(io.RawIOBase):
    """Write to a stream of the client."""

    def __init__(self, streams: Streams, stream: int) -> None:
        self._streams = streams
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._streams.send(self._stream, bytes(data))
        return len(data)


def _exited(code: int) -> metav1.Status:
    """Return the status of a command that exited.

    Go: k8s.io/cri-streaming/pkg/streaming/remotecommand/exec.go, ServeExec
    """
    if not code:
        return metav1.Status(status="Success")
    return metav1.Status(
        status="Failure",
        reason="NonZeroExitCode",
        details=metav1.StatusDetails(causes=[metav1.StatusCause(reason="ExitCode", message=str(code))]),
        message=f"command terminated with non-zero exit code: exit status {code}",
    )


def _failed(text: str) -> metav1.Status:
    return metav1.Status(status="Failure", reason="InternalError", code=500, message=text)


class _Forwarding:
    """Forward connections to ports of a pod; each has a stream for data and one for errors."""

    def __init__(self, ports: processes.Ports, streams: Streams, sandbox: Sandbox) -> None:
        self._ports = ports
        self._streams = streams
        self._sandbox = sandbox
        self._errors: dict[str, int] = {}  # The keys are request numbers.
        self._lock = threading.Lock()  # The lock guards _connections.
        self._connections: dict[int, socket.socket] = {}

    def opened(self, stream: int, headers: Mapping[str, str]) -> None:
        request = headers.get("requestid", "")
        if headers.get("streamtype") == "error":
            self._errors[request] = stream
            return
        port, error = int(headers.get("port", "0")), self._errors.get(request, -1)
        try:
            connection = self._connect(port)
        except OSError as err:
            self._end(stream, error, f"connect to port {port} of pod {self._sandbox.config.metadata.name}: {err}")
            return
        with self._lock:
            self._connections[stream] = connection
        golang.go(self._answer, connection, stream, error, name=f"fake-port-{port}")

    def _connect(self, port: int) -> socket.socket:
        target = self._ports.find(self._sandbox, port)
        if not callable(target):
            connection = socket.create_connection(target, _CONNECT_TIMEOUT)
            connection.settimeout(None)
            return connection
        ours, theirs = socket.socketpair()
        golang.go(_serve_port, target, theirs, name=f"fake-port-{port}-target")
        return ours

    def received(self, stream: int, data: bytes) -> None:
        if connection := self._connections.get(stream):
            with contextlib.suppress(OSError):
                connection.sendall(data)

    def ended(self, stream: int) -> None:
        if connection := self._connections.get(stream):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    def gone(self) -> None:
        with self._lock:
            connections = list(self._connections.values())
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, connection: socket.socket, stream: int, error: int) -> None:
        """Forward the data from the port until its end."""
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(_READ_SIZE):
                self._streams.send(stream, data)
        self._end(stream, error)

    def _end(self, stream: int, error: int, text: str = "") -> None:
        with contextlib.suppress(OSError):
            self._streams.send(stream, b"", end=True)
            if error >= 0:
                self._streams.send(error, text.encode(), end=True)


def _serve_port(serve: Any, connection: socket.socket) -> None:
    with connection:
        try:
            serve(connection)
        except Exception as err:
            # A test's function may raise any exception; the client sees the end of the connection.
            klog.error_s(err, "Failed to serve a port of a fake pod")
