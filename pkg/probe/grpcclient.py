"""Make gRPC calls to untrusted servers: those of containers, for probes.

Go: google.golang.org/grpc (clientconn.go, rpc_util.go)

gRPC's own library is meant for trusted servers. It stores what a server sends faster than it is read, for example
gigabytes of PRIORITY frames, and in some versions an error code unknown to HTTP/2 ends the process.
"""

from __future__ import annotations

import contextlib
import gzip
import http
import io
import math
import re
import socket
import struct
import zlib
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

import grpc
import h2
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error

from pkg import golang, klog
from pkg.apimachinery.util import wait
from pkg.golang.turn import let_others
from pkg.probe import dialer, http2
from pkg.util.grpcstatus import StatusError

# The client appends this text to the caller's own name in the user agent.
USER_AGENT = f"grpc-python-h2/{h2.__version__}"

# After this many attempts, the pauses between attempts are two minutes long.
_BACKOFF_STEPS = 11
# A message begins with this prefix: whether the message is compressed (1 or 0), and its length in bytes.
_PREFIX = struct.Struct(">BI")
# This method is the only supported compression. In the Go kubelet, the tracing code adds support for it. Some servers
# compress all messages.
_GZIP = "gzip"
# The units of a timeout are listed with their nanoseconds. A timeout may have at most eight digits.
_TIMEOUT_UNITS = {"n": 1, "u": 10**3, "m": 10**6, "S": 10**9, "M": 60 * 10**9, "H": 3600 * 10**9}
_MAX_TIMEOUT_VALUE = 10**8 - 1

_STATUS = re.compile("[0-9]{1,9}")
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_CODE_OF_HTTP_STATUS = {
    "400": grpc.StatusCode.INTERNAL,
    "401": grpc.StatusCode.UNAUTHENTICATED,
    "403": grpc.StatusCode.PERMISSION_DENIED,
    "404": grpc.StatusCode.UNIMPLEMENTED,
    "429": grpc.StatusCode.UNAVAILABLE,
    "502": grpc.StatusCode.UNAVAILABLE,
    "503": grpc.StatusCode.UNAVAILABLE,
    "504": grpc.StatusCode.UNAVAILABLE,
}
# Other codes become Internal, and codes unknown to HTTP/2 become Unknown.
_CODE_OF_RESET: dict[int | None, grpc.StatusCode] = {
    ErrorCodes.FLOW_CONTROL_ERROR: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCodes.REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    ErrorCodes.CANCEL: grpc.StatusCode.CANCELLED,
    ErrorCodes.ENHANCE_YOUR_CALM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCodes.INADEQUATE_SECURITY: grpc.StatusCode.PERMISSION_DENIED,
}


class ConnectionTimeoutError(TimeoutError):
    """Signal that no server that speaks HTTP/2 was found in time."""


@contextlib.contextmanager
def connected(ctx: golang.Context, host: str, port: int) -> Iterator[ClientConn]:
    """Connect to the server, which may come up meanwhile, and yield the connection once the server speaks HTTP/2.

    Raise ConnectionTimeoutError if ctx is done before, and dialer.NoSocketError. Go: grpc.DialContext, WithBlock
    """
    backoff = wait.Backoff(1.0, factor=1.6, jitter=0.2, steps=_BACKOFF_STEPS, cap=120.0)
    while not (done := ctx.err()):
        with contextlib.ExitStack() as stack:
            try:
                sock = stack.enter_context(dialer.dialed(ctx, host, port))
                conn = ClientConn(ctx, sock, dialer.join_host_port(host, port))
                conn.start()
            except (OSError, EOFError, UnicodeError, H2Error, http2.TooMuchError) as err:
                klog.v(4).info_s("Could not connect, will try again", host=host, port=port, err=err)
            else:
                yield conn
                return
        with let_others(ctx):
            ctx.wait(backoff.step())
    raise ConnectionTimeoutError(str(done)) from done


class ClientConn:
    """Hold one connection for one call by one thread; both end with ctx.

    Go: grpc.ClientConn, transport.http2Client
    """

    def __init__(self, ctx: golang.Context, sock: socket.socket, authority: str) -> None:
        self._ctx = ctx
        self._http2 = http2.ClientConn(dialer.Connection(ctx, sock))
        self._authority = authority

    def start(self) -> None:
        """Wait until the server speaks HTTP/2. Raise OSError, EOFError, H2Error or http2.TooMuchError."""
        self._http2.start()

    def invoke(self, method: str, request: bytes, user_agent: str) -> bytes:
        """Send the request and return the server's response. Raise StatusError."""
        try:
            return self._invoke(method, request, user_agent)
        except TimeoutError as err:
            raise StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, str(err)) from err
        except http2.GoAwayError as err:
            raise StatusError(grpc.StatusCode.UNAVAILABLE, f"closing transport due to: {err}") from err
        except (OSError, EOFError) as err:
            raise StatusError(grpc.StatusCode.UNAVAILABLE, f"error reading from server: {err}") from err
        except http2.TooMuchError as err:
            raise StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(err)) from err
        except H2Error as err:
            raise StatusError(grpc.StatusCode.INTERNAL, f"http2: {err}") from err

    def _invoke(self, method: str, request: bytes, user_agent: str) -> bytes:
        stream = self._http2.send_headers(self._headers(method, user_agent))
        answer, unsent = _Answer(), _PREFIX.pack(0, len(request)) + request
        while not answer.ended:
            unsent = self._http2.send_data(stream, unsent)
            answer.take(self._http2.receive())
        return answer.message()

    def _headers(self, method: str, user_agent: str) -> list[tuple[str, str]]:
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", self._authority),
            ("content-type", "application/grpc"),
            ("user-agent", f"{user_agent} {USER_AGENT}"),
            ("te", "trailers"),
            ("grpc-accept-encoding", _GZIP),
        ]
        if (seconds := self._ctx.remaining()) is not None:
            headers.append(("grpc-timeout", encode_timeout(seconds)))
        return headers


class _Answer:
    """Collect a server's response to a call as it arrives."""

    def __init__(self) -> None:
        self.ended = False
        self._headers: dict[str, str] = {}
        self._trailers: dict[str, str] | None = None
        self._body = bytearray()

    def take(self, events: Iterable[Event]) -> None:
        """Add received events. Raise StatusError if the stream was reset."""
        for event in events:
            match event:
                case ResponseReceived():
                    self._headers = http2.text_of(event.headers)
                    if event.stream_ended:
                        self._trailers = self._headers
                case DataReceived():
                    self._body += event.data
                case TrailersReceived():
                    self._trailers = http2.text_of(event.headers)
                case StreamEnded():
                    self.ended = True
                case StreamReset():
                    raise _reset(event.error_code)

    def message(self) -> bytes:
        """Return the message of a complete response. Raise StatusError if the response has an error or no message."""
        self._check_headers()
        self._check_status()
        if not self._body:
            raise _violation("received no response message from non-server-streaming RPC")
        if len(self._body) < _PREFIX.size:
            raise StatusError(grpc.StatusCode.INTERNAL, "unexpected EOF")
        compressed, length = _PREFIX.unpack_from(self._body)
        message = bytes(self._body[_PREFIX.size :])
        if len(message) < length:
            raise StatusError(grpc.StatusCode.INTERNAL, "unexpected EOF")
        if len(message) > length:
            raise _violation("expected <EOF> for non server-streaming RPCs, but received another message")
        if compressed > 1:
            raise StatusError(grpc.StatusCode.INTERNAL, f"grpc: received unexpected payload format {compressed}")
        return self._decompressed(message) if compressed else message

    def _decompressed(self, message: bytes) -> bytes:
        """Decompress the message. Raise StatusError.

        Go: checkRecvPayload, decompress
        """
        encoding = self._headers.get("grpc-encoding", "")
        if encoding == _GZIP:
            return _gunzip(message)
        reason = "compressed flag set with identity or empty encoding"
        if encoding not in ("", "identity"):
            reason = f'Decompressor is not installed for grpc-encoding "{golang.printable(encoding)}"'
        raise StatusError(grpc.StatusCode.INTERNAL, f"grpc: {reason}")

    def _check_headers(self) -> None:
        """Raise StatusError if the headers are not those of a gRPC server."""
        status = golang.printable(self._headers.get(":status", ""))
        content_type = self._headers.get("content-type")
        faults = []
        if status != "200":
            faults.append(f"unexpected HTTP status code received from server: {status} ({_phrase(status)})")
        if content_type is None:
            faults.append("malformed header: missing HTTP content-type")
        elif not _is_grpc(content_type):
            faults.append(f'transport: received unexpected content-type "{golang.printable(content_type)}"')
        if faults:
            raise StatusError(_CODE_OF_HTTP_STATUS.get(status, grpc.StatusCode.UNKNOWN), "; ".join(faults))

    def _check_status(self) -> None:
        """Raise StatusError unless the trailers report success."""
        if (trailers := self._trailers) is None:
            raise StatusError(grpc.StatusCode.INTERNAL, "server closed the stream without sending trailers")
        status = trailers.get("grpc-status", str(grpc.StatusCode.UNKNOWN.value[0]))
        if not _STATUS.fullmatch(status):
            raise StatusError(grpc.StatusCode.INTERNAL, f'malformed grpc-status: "{golang.printable(status)}"')
        code = _CODES.get(int(status), grpc.StatusCode.UNKNOWN)
        if code is not grpc.StatusCode.OK:
            raise StatusError(code, golang.printable(unquote(trailers.get("grpc-message", ""))))


def _gunzip(data: bytes) -> bytes:
    """Decompress the data. Raise StatusError if that fails or the result exceeds the maximum size of a message."""
    try:
        with gzip.open(io.BytesIO(data)) as file:
            message = file.read(http2.MAX_RECEIVED_BYTES + 1)
    except (OSError, EOFError, zlib.error) as err:
        reason = f"grpc: failed to decompress the received message: {err}"
        raise StatusError(grpc.StatusCode.INTERNAL, reason) from err
    if len(message) > http2.MAX_RECEIVED_BYTES:
        reason = f"grpc: received message after decompression larger than max {http2.MAX_RECEIVED_BYTES}"
        raise StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
    return message


def encode_timeout(seconds: float) -> str:
    """Return the seconds as a header value, rounded up: 0.5 is "500000u"."""
    nanoseconds = max(math.ceil(seconds * 1e9), 0)
    for unit, length in _TIMEOUT_UNITS.items():
        value = -(-nanoseconds // length)
        if value <= _MAX_TIMEOUT_VALUE:
            return f"{value}{unit}"
    return f"{_MAX_TIMEOUT_VALUE}H"


def _is_grpc(content_type: str) -> bool:
    """Report whether the content type is that of gRPC, optionally with the encoding of the messages."""
    base = "application/grpc"
    return content_type.startswith(base) and content_type[len(base) :][:1] in ("", "+", ";")


def _phrase(status: str) -> str:
    try:
        return http.HTTPStatus(int(status)).phrase
    except ValueError:
        return ""


def _reset(error_code: int | None) -> StatusError:
    default = grpc.StatusCode.INTERNAL if isinstance(error_code, ErrorCodes) else grpc.StatusCode.UNKNOWN
    reason = f"stream terminated by RST_STREAM with error code: {http2.code_name(error_code)}"
    return StatusError(_CODE_OF_RESET.get(error_code, default), reason)


def _violation(what: str) -> StatusError:
    return StatusError(grpc.StatusCode.INTERNAL, f"cardinality violation: {what}")
