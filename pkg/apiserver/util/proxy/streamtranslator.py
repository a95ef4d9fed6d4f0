"""Run commands in containers over WebSockets, version 5, with a runtime that speaks SPDY.

Each message of the client begins with the number of a stream, and each SPDY frame belongs to a stream. Both carry the
same data.

Go: k8s.io/apiserver/pkg/util/proxy/streamtranslator.go, k8s.io/client-go/tools/remotecommand
"""

from __future__ import annotations

import contextlib
import time

import msgspec

from pkg import klog
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import httpstream
from pkg.apimachinery.util.httpstream import spdy
from pkg.apimachinery.util.httpstream.wsstream.conn import STREAM_PROTOCOL_V5
from pkg.apimachinery.util.proxy.relay import Relay
from pkg.apimachinery.util.proxy.upgradeaware import (
    SWITCHING_PROTOCOLS,
    Backend,
    BackendError,
    dial_for_upgrade,
)
from pkg.apiserver.util.proxy.websocket import DEFAULT_IDLE_CONNECTION_TIMEOUT, Closed, Options, Part, Reply, WebSocket
from pkg.golang import http, strconv
from pkg.golang.http.conn import drain, linger

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
_CLOSE_SIGNAL = 255
_NAMES = {STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", ERROR: "error", RESIZE: "resize"}
_PROTOCOLS = (STREAM_PROTOCOL_V5, *(f"{version}channel.k8s.io" for version in ("v4.", "v3.", "v2.", "")))
# In these versions the error stream carries a Status, and in others a line of text.
_WITH_STATUS = (STREAM_PROTOCOL_V5, "v4.channel.k8s.io")
# `_CREATE_TIMEOUT` is the time, in seconds, that the runtime has to accept the streams. `_MAX_STATUS` is the maximum
# size, in bytes, of its report about the command's end.
_CREATE_TIMEOUT = 30.0
_MAX_STATUS = 1 << 20
# `MAX_CONTROL_MESSAGE_BYTES` is the maximum size of a message with a terminal's size or with the number of a stream to
# close.
# DIVERGES (safer): a longer control message on a WebSocket ends the connection.
# Go: k8s.io/streaming/pkg/httpstream/wsstream/conn.go, (*Conn).handle: the Go kubelet accepts 32 MiB.
# Why: a client could fill the memory with messages of which only a few bytes are meaningful.
# Test: hostile_test.py:test_memory_does_not_grow_with_what_a_client_sends
MAX_CONTROL_MESSAGE_BYTES = 4 << 10
# `_LINGER` is the time, in seconds, that a client has to read the report that the command could not start, and that a
# command has to exit after its stdin has ended.
_LINGER = 2.0
_READ_SIZE = 1 << 16
_NON_ZERO_EXIT_CODE = "NonZeroExitCode"
_EXIT_CODE = "ExitCode"


class StreamTranslatorHandler:
    """Run the command that the URL `location` represents."""

    def __init__(self, location: str, options: Options) -> None:
        self._location = location
        self._options = options

    def serve_http(self, w: http.ResponseWriter, req: http.Request) -> None:
        """Run the command, and return when it has ended or the client has disconnected."""
        websocket = WebSocket(req)
        accepted = websocket.accept(STREAM_PROTOCOL_V5)
        client, first = w.hijack()
        client.sendall(accepted + websocket.message(bytes([_lowest_output(self._options)])))
        try:
            backend = _dial(self._location)
        except BackendError as err:
            klog.error_s(err, "Error while proxying request")
            client.sendall(websocket.message(_status_message(_internal_error(str(err)))) + websocket.close())
            linger(client, _LINGER)
            return
        try:
            session = _Session(websocket, client, backend, self._options)
            session.relay.run(first if session.open() else b"")
            session.end_input()
        finally:
            backend.conn.close()


def _lowest_output(options: Options) -> int:
    """Return the stream on which an empty message tells the client that it is connected."""
    if options.stdout:
        return STDOUT
    return STDERR if options.stderr else ERROR


def _dial(location: str) -> Backend:
    """Return a connection to the runtime, upgraded to SPDY; raise BackendError on failure."""
    headers = [(httpstream.HEADER_CONNECTION, "Upgrade"), (httpstream.HEADER_UPGRADE, spdy.HEADER_SPDY_31)]
    headers += [(httpstream.HEADER_PROTOCOL_VERSION, name) for name in _PROTOCOLS]
    backend = dial_for_upgrade(location, "POST", headers)
    if backend.status == SWITCHING_PROTOCOLS:
        return backend
    backend.conn.close()
    text = backend.body.decode(errors="replace").strip()
    with contextlib.suppress(codec.DecodeError):
        text = codec.decode_json(backend.body, metav1.Status).message or text
    raise BackendError(f"unable to upgrade connection: {text or backend.status}")


class _Session:
    """Translate one command's streams between a WebSocket and SPDY; one thread uses it."""

    def __init__(self, websocket: WebSocket, client: http.Conn, backend: Backend, options: Options) -> None:
        self.relay = Relay(client, backend.conn, idle_timeout=DEFAULT_IDLE_CONNECTION_TIMEOUT)
        self.relay.client.on_data, self.relay.client.on_end = self._from_client, self._client_ended
        self.relay.backend.on_data, self.relay.backend.on_end = self._from_backend, self._backend_ended
        self._websocket = websocket
        self._backend = backend
        self._with_status = backend.headers.get(httpstream.HEADER_PROTOCOL_VERSION) in _WITH_STATUS
        self._framer = spdy.Framer()
        wanted = {
            STDIN: options.stdin,
            RESIZE: options.tty,
            ERROR: True,
            STDOUT: options.stdout,
            STDERR: options.stderr and not options.tty,
        }
        channels = [channel for channel, is_wanted in wanted.items() if is_wanted]
        # The streams of a SPDY client have odd numbers.
        self._channels = {2 * index + 1: channel for index, channel in enumerate(channels)}
        self._streams = {channel: stream for stream, channel in self._channels.items()}
        self._unanswered = set(self._channels)
        self._to_end = {self._streams[c] for c in (ERROR, STDOUT, STDERR) if c in self._streams}
        self._said = bytearray()  # `_said` holds the data of the error stream so far.
        self._channel: int | None = None  # `_channel` is the channel of the incoming message.
        # `_message` is the received part of a message that is processed only when it is complete.
        self._message = bytearray()
        self._finished = False
        self._cut_off = False  # `_cut_off` is True if the runtime has not received all of the last frame.

    def open(self) -> bool:
        """Open the streams one after the other; return False if the command is already over.

        The runtime may drop data that arrives right after it has accepted a stream. Therefore the streams on which the
        client sends are opened first. When the last stream is accepted, they have been open for a while.

        DIVERGES (fault of Go): the kubelet opens the streams on which the client sends first, and the error stream
        after them.
        Go: k8s.io/client-go/tools/remotecommand/v2.go, (*streamProtocolV2).createStreams: the Go kubelet opens the
        error stream first, and stdin or the stream of terminal sizes later.
        Why: the first data of a fast client on the stream that was accepted last may be lost.
        Test: streamtranslator_test.py:test_terminal_sizes
        """
        conn = self._backend.conn
        try:
            self._take_apart(self._backend.body)
            for stream, channel in self._channels.items():
                conn.set_deadline(time.monotonic() + _CREATE_TIMEOUT)
                conn.sendall(self._framer.syn_stream(stream, {"streamType": _NAMES[channel]}))
                while stream in self._unanswered and not self._finished:
                    data = conn.recv(_READ_SIZE)
                    if not data:
                        raise ConnectionResetError("the runtime closed the connection")
                    self._take_apart(data)
            conn.set_deadline(None)
        except OSError as err:
            self._finish(_internal_error(f"error creating streams: {err}"))
        return not self._finished

    # The following methods handle data from the client.

    def _from_client(self, data: bytes) -> None:
        with self._websocket.turn:
            for event in self._websocket.feed(data):
                if self._finished:
                    return
                match event:
                    case Part():
                        self._from_message(event)
                    case Reply():
                        self.relay.client.answer(event.data)
                    case Closed():
                        self.relay.client.write(event.reply)
                        self._client_ended()

    def _from_message(self, part: Part) -> None:
        """Handle a part of a message: the channel's number, then data.

        A close message contains the number of the channel to close.
        """
        data = part.data
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        channel = self._channel
        if part.finished:
            self._channel = None
        match channel:
            case 0:
                self._send(STDIN, data)
            case 4 | 255:
                if len(self._message) + len(data) > MAX_CONTROL_MESSAGE_BYTES:
                    self._refuse("message is too large", channel=channel)
                    return
                self._message += data
                if part.finished:
                    message = bytes(self._message)
                    self._message.clear()
                    self._resize(message) if channel == RESIZE else self._close_stream(message)

    def _resize(self, message: bytes) -> None:
        try:
            size = codec.json_decoder(dict[str, int]).decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            klog.v(4).info_s("Failed to parse the terminal size", err=str(err))
            return
        self._send(RESIZE, msgspec.json.encode({name: size.get(name, 0) for name in ("Width", "Height")}) + b"\n")

    def _refuse(self, message: str, **keys: object) -> None:
        klog.error_s(None, message, **keys)
        self.relay.client.write(self._websocket.close())
        self._end()

    def _close_stream(self, message: bytes) -> None:
        if len(message) != 1 or message[0] > RESIZE:
            self._refuse("Single channel byte should follow stream close signal", receivedLength=len(message))
            return
        klog.v(4).info_s("Received half-close signal from client, close stream", channel=message[0])
        self._send(message[0], b"", fin=True)

    def _send(self, channel: int, data: bytes, fin: bool = False) -> None:
        """Send data to the runtime, if the stream is open in this direction."""
        if channel not in (STDIN, RESIZE) or channel not in self._streams or not (data or fin):
            return
        stream = self._streams[channel]
        self.relay.backend.write(self._framer.data_head(stream, len(data), fin) + data)
        if fin:
            del self._streams[channel]

    # The following methods handle data from the runtime.

    def _from_backend(self, data: bytes) -> None:
        with self._websocket.turn:
            self._take_apart(data)

    def _take_apart(self, data: bytes) -> None:
        """Handle the frames in the data.

        The caller must hold `turn` only while the relay runs. Before that, writes may block on the other side.
        """
        try:
            for frame in self._websocket.in_turns(self._framer.feed(data)):
                if self._finished:
                    return
                self._from_frame(frame)
        except spdy.ProtocolError as err:
            self._finish(_internal_error(str(err)))

    def _from_frame(self, frame: spdy.Frame) -> None:
        match frame:
            case spdy.Data():
                self._from_stream(self._channels.get(frame.stream_id), bytes(frame.data))
                if frame.fin:
                    self._stream_ended(frame.stream_id)
            case spdy.SynReply():
                self._unanswered.discard(frame.stream_id)
                if frame.fin:
                    self._stream_ended(frame.stream_id)
            case spdy.RstStream():
                self._unanswered.discard(frame.stream_id)
                self._streams.pop(self._channels.get(frame.stream_id, ERROR), None)
                self._stream_ended(frame.stream_id)
            case spdy.Ping() if frame.ping_id % 2 == 0:
                self.relay.backend.answer(self._framer.ping(frame.ping_id))

    def _from_stream(self, channel: int | None, data: bytes) -> None:
        if channel in (STDOUT, STDERR) and data:
            self.relay.client.write(self._websocket.message(bytes([channel]) + data))
        elif channel == ERROR:
            self._said += data[: _MAX_STATUS - len(self._said)]

    def _stream_ended(self, stream: int) -> None:
        self._to_end.discard(stream)
        if not self._to_end:
            self._finish(_translate_status(bytes(self._said), self._with_status))

    def _backend_ended(self) -> None:
        # DIVERGES (fault of Go): the kubelet reports a failed command to the client if the runtime closes the
        # connection early.
        # Go: k8s.io/client-go/tools/remotecommand/errorstream.go, watchErrorStream: an error stream that ends without a
        # message means success.
        # Why: otherwise the client would not know that output is missing.
        # Test: streamtranslator_test.py:test_a_runtime_that_breaks_off_is_no_success
        self._finish(_internal_error("the container runtime closed the connection before the command ended"))

    # The following methods end the session.

    def _finish(self, status: metav1.Status) -> None:
        """Report the command's result to the client, after all its output."""
        if self._finished:
            return
        self._finished = True
        self.relay.client.write(self._websocket.message(_status_message(status)) + self._websocket.close())
        self._end()

    def _client_ended(self) -> None:
        """Forward the client's last data to the runtime, and discard further output of the runtime."""
        self._finished = True
        self.relay.client.end_writes()
        self.relay.backend.abandon_once_sent()

    def _end(self) -> None:
        self._finished = True
        self.relay.client.end_writes()
        self._cut_off = self._cut_off or self.relay.backend.waiting > 0
        self.relay.backend.abandon()

    def end_input(self) -> None:
        """End the stdin of a running command after the client has disconnected.

        Wait a short time for the command to exit. With some runtimes, such as containerd 2.1, the end of the connection
        alone does not end stdin.
        """
        stdin = self._streams.get(STDIN)
        if stdin is None or not self._to_end or self._cut_off or self.relay.backend.waiting:
            return
        conn = self._backend.conn
        # Errors do not matter, because the connection is closed right after.
        with contextlib.suppress(OSError):
            until = time.monotonic() + _LINGER
            conn.settimeout(None)
            conn.set_deadline(until)
            conn.sendall(self._framer.data_head(stdin, 0, fin=True))
            drain(conn, until)


def _status_message(status: metav1.Status) -> bytes:
    return bytes([ERROR]) + codec.encode_json(status)


def _translate_status(said: bytes, with_status: bool) -> metav1.Status:
    """Translate the runtime's error stream into the status for the client.

    Go: errorDecoderV4, errorDecoderV2, codeExitToStatusError
    """
    if not said:
        return metav1.Status(status="Success")
    text = said.decode(errors="replace")
    if not with_status:
        return _internal_error(f"error executing remote command: {text}")
    try:
        status = codec.decode_json(said, metav1.Status)
    except codec.DecodeError as err:
        return _internal_error(f'error stream protocol error: {err} in "{text}"')
    if status.status == "Success":
        return metav1.Status(status="Success")
    if status.status != "Failure":
        return _internal_error("error stream protocol error: unknown error")
    if status.reason != _NON_ZERO_EXIT_CODE:
        return _internal_error(status.message)
    causes = status.details.causes if status.details else []
    code = next((cause.message for cause in causes if cause.reason == _EXIT_CODE), "")
    try:
        strconv.parse_uint(code, bits=8)
    except ValueError as err:
        return _internal_error(f"error stream protocol error: no valid {_EXIT_CODE} cause given: {err}")
    return metav1.Status(
        status="Failure",
        reason=_NON_ZERO_EXIT_CODE,
        details=metav1.StatusDetails(causes=[metav1.StatusCause(reason=_EXIT_CODE, message=code)]),
        message="command terminated with non-zero exit code: command terminated with exit code " + code,
    )


def _internal_error(text: str) -> metav1.Status:
    return metav1.Status(
        status="Failure",
        code=500,
        reason="InternalError",
        details=metav1.StatusDetails(causes=[metav1.StatusCause(message=text)]),
        message=f"Internal error occurred: {text}",
    )
