"""Connect to a gRPC service of a runtime.

Go: google.golang.org/grpc, as k8s.io/cri-client/pkg sets it up
"""

from __future__ import annotations

import functools
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import grpc
from cri_api.v1 import api_pb2 as runtimeapi
from google.protobuf import message, message_factory

from kubelet.cri import errors
from kubelet.cri.remote import util, utils
from pkg import golang, klog
from pkg.component_base import tracing
from pkg.util import grpcconn, grpcstatus

_OPTIONS = [
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", utils.MAX_MSG_SIZE),
    # DIVERGES (safer): attempts to connect to an unreachable runtime are at most a second apart.
    # Go: k8s.io/cri-client/pkg/remote_runtime.go, NewRemoteRuntimeService: they are up to 3 s apart.
    # Why: the kubelet notices sooner that the runtime is back, and an attempt on a local socket costs little.
    # Test: remote_runtime_test.py:test_attempts_to_connect_are_at_most_a_second_apart
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 5000),  # Despite its name, this is the timeout of one attempt.
    grpcconn.LONG_ERRORS,
    grpcconn.READ_BY_CALLER,
]
# At most this number of idle channels is kept open.
_MAX_IDLE_CHANNELS = 16


class Client(Protocol):
    """Define what the services need to reach a runtime; tests use one without a socket."""

    def invoke(self, ctx: golang.Context, method: str, request: Any, timeout: float | None) -> Any:
        """Send a request, and return the response. Raise errors.RemoteError."""

    def stream(self, ctx: golang.Context, method: str, request: Any) -> AbstractContextManager[Iterator[Any]]:
        """Send a request, and provide the responses until the server ends them or the block ends.

        Reading a response raises errors.RemoteError.
        """

    def close(self) -> None:
        """Close the connection, and end its active calls."""


@dataclass(eq=False, frozen=True, slots=True)
class _Use:
    """Represent one call's use of a channel."""

    channel: grpc.Channel


class _Channels:
    """Manage channels to one endpoint; each channel serves one call at a time. All methods are thread-safe.

    Go makes all calls on one ClientConn. A channel of Python's gRPC has one lock, and a thread that holds the lock may
    have to wait for the interpreter: on one channel, the sync loop would wait seconds for its calls while clients of
    the kubelet's server make hundreds of theirs. All channels use the same connection, which gRPC shares by itself.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        # The lock guards the fields below.
        self._lock = threading.Lock()
        self._idle: list[grpc.Channel] = []
        self._uses: set[_Use] = set()
        self._closed = False

    @contextmanager
    def use(self) -> Iterator[_Use]:
        """Provide a channel that no other call uses until the end of the block. Raise RemoteError after `close`."""
        use = self._begin()
        try:
            yield use
        finally:
            self._finish(use)

    def _begin(self) -> _Use:
        with self._lock:
            # Reuse the channel that was used last, so that the extra channels of a burst stay idle and are closed.
            channel = self._idle.pop() if self._idle else None
        use = _Use(grpc.insecure_channel(self._target, options=_OPTIONS) if channel is None else channel)
        with self._lock:
            if not self._closed:
                self._uses.add(use)
                return use
        use.channel.close()
        raise errors.RemoteError(grpc.StatusCode.CANCELLED, grpcstatus.CLIENT_CONN_CLOSING)

    def _finish(self, use: _Use) -> None:
        with self._lock:
            keeps = use in self._uses and len(self._idle) < _MAX_IDLE_CHANNELS
            self._uses.discard(use)
            if keeps:
                self._idle.append(use.channel)
        if not keeps:
            use.channel.close()

    def end(self, use: _Use) -> None:
        """Close the channel, unless the use has ended: another call may use the channel then.

        Any thread may call this function.
        """
        with self._lock:
            if use not in self._uses:
                return
            self._uses.remove(use)
        use.channel.close()

    def close(self) -> None:
        """End the active calls, and make later ones fail."""
        with self._lock:
            self._closed = True
            channels = [*self._idle, *(use.channel for use in self._uses)]
            self._idle.clear()
            self._uses.clear()
        for channel in channels:
            channel.close()


@dataclass(frozen=True, slots=True)
class _Method:
    """Describe how to call a method: always with a stream of responses, even for exactly one.

    Both forms are equal on the wire, and gRPC can cancel a stream from another thread without a thread of its own.
    """

    path: str
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]

    @classmethod
    def of(cls, service: str, method: Any) -> Self:
        request, response = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
        return cls(f"/{service}/{method.name}", request.SerializeToString, response.FromString)

    def on(self, channel: grpc.Channel) -> Callable[..., Any]:
        # Receive the responses as bytes: gRPC never frees the state of a call whose response it could not decode.
        return channel.unary_stream(self.path, self.serialize)

    def decode(self, response: bytes) -> Any:
        """Decode a response. Raise RemoteError."""
        try:
            return self.deserialize(response)
        except (message.DecodeError, MemoryError) as err:
            raise errors.RemoteError(grpc.StatusCode.INTERNAL, f"the response cannot be decoded: {err}") from err


class GRPCClient:
    """Call methods of a CRI v1 service, `RuntimeService` or `ImageService`, on a unix socket.

    All methods are thread-safe.
    The first call connects, and a later one reconnects after the connection was lost. A call that cannot be delivered
    fails at once.
    """

    def __init__(
        self,
        endpoint: str,
        service: str,
        tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER,
    ) -> None:
        self.endpoint = endpoint
        self._service = service
        self._tracer_provider = tracer_provider
        self._tracer = tracer_provider.tracer("kubelet/cri/remote")
        self._path = util.get_address(endpoint)
        self._channels = _Channels(f"unix:{self._path}")
        methods = runtimeapi.DESCRIPTOR.services_by_name[service].methods
        self._methods = {method.name: _Method.of(f"runtime.v1.{service}", method) for method in methods}

    def invoke(self, ctx: golang.Context, method: str, request: Any, timeout: float | None) -> Any:
        with self._start_span(ctx, method) as span:
            return self._invoke(span.ctx, self._methods[method], request, timeout)

    def _start_span(self, ctx: golang.Context, method: str) -> tracing.Span:
        """Start the span of a call.

        Go: otelgrpc.NewClientHandler
        """
        name = f"runtime.v1.{self._service}/{method}"
        attributes = {"rpc.system.name": "grpc", "rpc.method": name, "server.address": self._path}
        return self._tracer.start(ctx, name, attributes, tracing.Kind.CLIENT)

    def speaks_v1alpha2_only(self, ctx: golang.Context, timeout: float) -> bool:
        """Report whether the runtime offers only the API version before v1, for the error message."""
        method = runtimeapi.DESCRIPTOR.services_by_name["RuntimeService"].methods_by_name["Version"]
        old = _Method.of("runtime.v1alpha2.RuntimeService", method)
        try:
            self._invoke(ctx, old, runtimeapi.VersionRequest(), timeout)
        except errors.RemoteError:
            return False
        return True

    def _invoke(self, ctx: golang.Context, method: _Method, request: Any, timeout: float | None) -> Any:
        # Do not begin the call: a later cancellation may reach the runtime after it has carried out the request.
        if isinstance(ctx.err(), golang.Canceled):
            raise errors.RemoteCanceledError
        with self._started(ctx, method, request, _shorter(timeout, ctx.remaining())) as call:
            try:
                response = next(call, None)
                next(call, None)  # The second call reads the status that follows the response.
            except grpc.RpcError as err:
                raise self._translate(ctx, err) from None
        if response is None:
            raise errors.RemoteError(grpc.StatusCode.INTERNAL, "the runtime sent no response")
        return method.decode(response)

    @contextmanager
    def _started(self, ctx: golang.Context, method: _Method, request: Any, timeout: float | None) -> Iterator[Any]:
        """Start a call on its own channel, and end the call with ctx or with the block."""
        with self._channels.use() as use:
            try:
                call = method.on(use.channel)(request, timeout=timeout, metadata=self._tracer_provider.inject(ctx))
            except ValueError as err:
                # The connection was closed meanwhile.
                raise errors.RemoteError(grpc.StatusCode.CANCELLED, grpcstatus.CLIENT_CONN_CLOSING) from err
            # Close the channel together with its call, because gRPC never frees the state of a cancelled call.
            end = functools.partial(self._channels.end, use)
            take_back = golang.after_func(ctx, end)
            try:
                yield call
            finally:
                take_back()
                if call.is_active():
                    end()
                    grpcconn.drain(call)

    @contextmanager
    def stream(self, ctx: golang.Context, method: str, request: Any) -> Iterator[Iterator[Any]]:
        with (
            self._start_span(ctx, method) as span,
            self._started(span.ctx, self._methods[method], request, ctx.remaining()) as call,
        ):
            yield self._read(ctx, self._methods[method], call)

    def _read(self, ctx: golang.Context, method: _Method, call: Any) -> Iterator[Any]:
        try:
            yield from map(method.decode, call)
        except grpc.RpcError as err:
            raise self._translate(ctx, err) from None

    def close(self) -> None:
        self._channels.close()

    def _translate(self, ctx: golang.Context, err: Any) -> errors.RemoteError:
        grpcstatus.leave_frames(err)
        if isinstance(ctx.err(), golang.Canceled):
            return errors.RemoteCanceledError()
        if isinstance(ctx.err(), golang.DeadlineExceeded) and err.code() is grpc.StatusCode.CANCELLED:
            # The kubelet cancelled the call at the deadline of ctx, a moment before gRPC would have done so.
            return errors.RemoteError(grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")
        code, details = err.code(), err.details() or ""
        if code is grpc.StatusCode.UNAVAILABLE and "failed to connect" in details:
            details = f"connection error: dial unix {self._path}: {_why_unreachable(self._path, details)}"
        elif code is grpc.StatusCode.DEADLINE_EXCEEDED and details == "Deadline Exceeded":
            details = "context deadline exceeded"  # This is Go's text for the caller's own deadline.
        klog.v(10).info_s("Call failed", endpoint=self.endpoint, debug=str(err))
        return errors.RemoteError(code, details)


def _shorter(timeout: float | None, remaining: float | None) -> float | None:
    """Return the shorter of the two times, or None if both are None.

    The result is at most MAX_REMAINING, because gRPC treats a very long time as one that has already passed.
    """
    given = [seconds for seconds in (timeout, remaining) if seconds is not None]
    return min(*given, golang.MAX_REMAINING) if given else None


def _why_unreachable(path: str, details: str) -> str:
    """Explain a failed connection to the operator."""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return "no such socket, is the container runtime running?"
    except OSError as err:
        return err.strerror or str(err)
    if not stat.S_ISSOCK(mode):
        return "not a socket"
    if "Connection refused" in details:
        return "connection refused, is the container runtime running?"
    if "SETTINGS" in details or "HTTP/2" in details:
        return "the socket does not speak gRPC"
    return details
