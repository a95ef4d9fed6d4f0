"""Send requests to one API server.

Go: k8s.io/client-go/rest/client.go, request.go, transport.go, net/http/client.go
"""

from __future__ import annotations

import base64
import http.client
import math
import threading
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import msgspec

from pkg import golang, klog
from pkg.apimachinery.api import errors as apierrors
from pkg.client_go import transport
from pkg.client_go.rest import request as request_
from pkg.client_go.rest import url_utils, warnings
from pkg.client_go.rest.config import DEFAULT_BURST, DEFAULT_QPS, Config, default_kubernetes_user_agent
from pkg.client_go.rest.exec import get_authenticator
from pkg.client_go.rest.with_retry import WithRetry, is_cut, retry_after_seconds
from pkg.client_go.tools import metrics
from pkg.client_go.util import flowcontrol
from pkg.component_base import tracing
from pkg.golang import http as http_

_CHUNK = 1 << 16

# `ATTEMPT_TIMEOUT` is the time, in seconds, that one attempt of a request may take once it has its connection. An API
# server gives up on a request after 60 s (its --request-timeout). A server that is silent for longer is dead, or hangs
# behind a proxy that still responds.
ATTEMPT_TIMEOUT = 75.0
# `WATCH_IDLE_TIMEOUT` is the time, in seconds, that a watch may be silent. An API server sends a bookmark each minute.
# If a server sends none, the watch is restarted at the version that it has reached, which costs one request.
WATCH_IDLE_TIMEOUT = 150.0

# `MAX_RESPONSE_BYTES` limits a response, also after decompression. `MAX_EVENT_BYTES` limits one event of a watch.
MAX_RESPONSE_BYTES = 256 << 20
MAX_EVENT_BYTES = 16 << 20
# `MAX_REFUSAL_BYTES` is the maximum size of an error response in bytes. Such a response appears in messages and logs.
MAX_REFUSAL_BYTES = 3 << 20
# `MAX_DISCARDED_BYTES` is the maximum size, in bytes, of a response that is read only to reuse its connection.
MAX_DISCARDED_BYTES = 2 << 10

# `_BROKEN_ANSWER` holds the exceptions for a response that is truncated or cannot be parsed. http.client raises
# AttributeError if another thread closes the socket while it reads.
_BROKEN_ANSWER = (OSError, EOFError, ValueError, AttributeError, zlib.error, http.client.HTTPException)

# A wait for the rate limiter longer than this time (in seconds) is logged at verbosity 3; one longer than the second
# time is logged at every verbosity.
_LONG_THROTTLE_LATENCY = 0.05
_EXTRA_LONG_THROTTLE_LATENCY = 1.0


@dataclass(slots=True)
class _Call:
    """Describe one request, which may take several attempts."""

    verb: str
    target: str  # `target` is the path and the query.
    headers: dict[str, str | list[str]]
    body: bytes | None
    resource: str
    name: str


class Stream:
    """Read a response line by line as it arrives.

    One thread reads; any thread may call close.
    """

    def __init__(
        self, connection: transport.Connection, response: http.client.HTTPResponse, forget: Callable[[], object]
    ) -> None:
        self._connection = connection
        self._response = response
        self._forget = forget
        self._buffer = b""
        self._lock = threading.Lock()  # The lock guards _closed and _reading.
        self._closed = False
        self._reading = False

    def readline(self) -> bytes | None:
        """Wait for the next line that is not empty, and return it, or None at the end and after close.

        Raise OSError if the connection breaks or is silent for too long, and ValueError for a line that is too long.
        """
        parts, size = [self._buffer], len(self._buffer)
        while True:
            line, newline, rest = parts[-1].partition(b"\n")
            if newline:
                self._buffer = rest
                if whole := b"".join([*parts[:-1], line]).strip():
                    return whole
                parts, size = [rest], len(rest)
                continue
            if size > MAX_EVENT_BYTES:
                raise ValueError("object to decode was longer than maximum allowed size")
            chunk = self._read()
            if not chunk:
                self._buffer = b""
                return b"".join(parts).strip() or None
            parts.append(chunk)
            size += len(chunk)

    def close(self) -> None:
        """Close the stream; a waiting readline returns at once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            reading = self._reading
        self._forget()
        self._connection.abort()
        if not reading:
            self._dispose()

    def _read(self) -> bytes:
        with self._lock:
            if self._closed:
                return b""
            self._reading = True
        try:
            return self._response.read1(_CHUNK)
        except _BROKEN_ANSWER as err:
            with self._lock:
                if self._closed:
                    return b""
            raise transport.TransportError(f"read from the API server: {request_.describe(err)}") from err
        finally:
            with self._lock:
                self._reading = False
                closed = self._closed
            if closed:  # The thread that called close left the clean-up to this thread.
                self._dispose()

    def _dispose(self) -> None:
        self._response.close()
        self._connection.close()


class RESTClient:
    """Send requests over a connection pool and a rate limiter of its own.

    All methods are thread-safe.
    """

    def __init__(self, config: Config) -> None:
        """Raise ValueError or OSError that names the unusable part of the config."""
        self._config = config
        self._tracer = config.tracer_provider.tracer("k8s.io/client-go/rest")
        self._url = url_utils.default_server_url(config)
        # This is the host and port without user and password, for messages and metrics.
        self._netloc = self._url.netloc.rpartition("@")[2]
        self._proxy = url_utils.proxy(config, self._url)
        self._authenticator = get_authenticator(config)
        tls, get_cert = config.tls_client_config, config.get_cert
        if self._authenticator is not None and get_cert is None:
            get_cert = self._authenticator.cert
        self._contexts = transport.TLSContexts(tls, get_cert) if self._url.scheme == "https" else None
        if self._contexts is not None and self._authenticator is None:
            self._contexts.current()  # This call finds unreadable or invalid files now.
        self._tracker = config.connections or transport.ConnectionTracker()
        self._pool = transport.ConnectionPool(self._url, tls.server_name, self._proxy, self._tracker)
        self._rate_limiter = _rate_limiter(config)
        # `_turns` maps a resource to a channel, which is full while a request for the resource waits for the limiter.
        self._turns: dict[str, golang.Channel[None]] = {}
        self._tokens = (
            transport.CachingTokenSource(config.bearer_token_file, config.bearer_token)
            if config.bearer_token_file
            else None
        )
        self._headers = _fixed_headers(config)
        self._warning_handler = config.warning_handler or warnings.default_warning_handler

    @property
    def host(self) -> str:
        """Return host:port of the server."""
        return self._netloc

    def request(
        self,
        ctx: golang.Context,
        verb: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
        resource: str = "",
        name: str = "",
    ) -> bytes:
        """Send a request and return the body of the response.

        `timeout`, in seconds, replaces the config's; `resource` and `name` are for error messages. Raise
        apierrors.StatusError if the server refuses the request, TransportError (an OSError) if it does not respond, and
        ctx.err() once ctx is done.
        """
        seconds = self._config.timeout if timeout is None else timeout
        if timeout is None and seconds:
            params = {**(params or {}), "timeout": request_.go_duration(seconds)}
        call = self._call(verb, path, params, body, content_type, resource, name)
        start = monotonic()
        self._throttle(ctx, call)
        try:
            if not seconds:
                return self._read(ctx, ctx, call)
            own, cancel = golang.with_timeout(ctx, seconds)
            try:
                return self._read(ctx, own, call)
            finally:
                cancel()
        finally:
            metrics.request_latency(call.verb, self.host, monotonic() - start)

    def stream(
        self,
        ctx: golang.Context,
        verb: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        resource: str = "",
        name: str = "",
        watch: bool = False,
    ) -> Stream:
        """Send a request and return the response as a stream, which ends with ctx or with close.

        The stream has a connection of its own. Watches are not throttled. Raise the same exceptions as request.
        """
        call = self._call(verb, path, params, None, "", resource, name)
        call.headers["Accept-Encoding"] = "identity"
        if not watch:
            self._throttle(ctx, call)
        connection, response, forget = self._attempts(ctx, ctx, call)
        if response.status not in range(200, 300):
            with self._reading(ctx, call, connection, response, forget):
                body = transport.read_body(response, MAX_REFUSAL_BYTES)
            raise self._refusal(call, response, body)
        connection.set_deadline(_deadline(ctx), WATCH_IDLE_TIMEOUT)
        return Stream(connection, response, forget)

    def close_idle_connections(self) -> None:
        self._pool.close_idle()

    def _call(
        self,
        verb: str,
        path: str,
        params: dict[str, Any] | None,
        body: bytes | None,
        content_type: str,
        resource: str,
        name: str,
    ) -> _Call:
        target = self._url.path.rstrip("/") + urllib.parse.quote(path)
        if text := request_.query(params):
            target += f"?{text}"
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = content_type
        return _Call(verb, target, headers, body, resource, name)

    def _read(self, outer: golang.Context, ctx: golang.Context, call: _Call) -> bytes:
        """Return the whole body of the response.

        `outer` is the caller's context; `ctx` adds the request's own time limit.
        """
        connection, response, forget = self._attempts(outer, ctx, call)
        with self._reading(outer, call, connection, response, forget), self._until_lost(ctx):
            limit = MAX_RESPONSE_BYTES if response.status in range(200, 300) else MAX_REFUSAL_BYTES
            body = transport.read_body(response, limit)
        metrics.response_size(call.verb, self.host, len(body))
        if response.status not in range(200, 300):
            raise self._refusal(call, response, body)
        return body

    @contextmanager
    def _reading(
        self,
        outer: golang.Context,
        call: _Call,
        connection: transport.Connection,
        response: http.client.HTTPResponse,
        forget: Callable[[], object],
    ) -> Iterator[None]:
        """Read a response within this context manager.

        At the end, keep the connection if the response was read to its end in time, and close it otherwise.
        """
        try:
            yield
        except _BROKEN_ANSWER as err:
            connection.close()
            raise self._failure(outer, call, err, None) from err
        except BaseException:
            connection.close()
            raise
        finally:
            forget()
        # Once the context has ended, another thread may be about to abort the connection.
        if response.isclosed() and not response.will_close and outer.err() is None:
            self._pool.put(connection)
        else:
            connection.close()

    def _attempts(
        self, outer: golang.Context, ctx: golang.Context, call: _Call
    ) -> tuple[transport.Connection, http.client.HTTPResponse, Callable[[], object]]:
        """Repeat the request until a response is final.

        The caller reads the response, and then calls the returned function.
        """
        retry = WithRetry()
        renewed = False
        while True:
            if (done := outer.err() or ctx.err()) is not None:
                raise self._failure(outer, call, done, retry.previous)
            code = "<error>"
            try:
                connection, response, forget = self._attempt(ctx, call)
                code = str(response.status)
            except (OSError, http.client.HTTPException, ValueError) as err:
                self._tracker.note_failure()
                seconds = retry.after_error(call.verb, err) if outer.err() is None else None
                if seconds is None:
                    raise self._failure(outer, call, err, retry.previous) from err
                self._wait(outer, ctx, call, seconds, retry)
                continue
            finally:
                metrics.request_result(code, call.verb, self.host)
                if retry.attempts:
                    metrics.request_retry(code, call.verb, self.host)
                metrics.request_size(call.verb, self.host, len(call.body or b""))
            warnings.handle_warnings(response.headers.get_all("Warning", []), self._warning_handler)
            renew = response.status == 401 and not renewed and self._renew(call)
            seconds = 0 if renew else retry.after_response(response.status, response.headers)
            if seconds is None:
                return connection, response, forget
            renewed = renewed or renew
            with self._reading(outer, call, connection, response, forget):
                _discard(response)
            if not renew:
                klog.v(4).info_s("Got a Retry-After response", delay=f"{seconds}s", attempt=retry.attempts)
                self._wait(outer, ctx, call, seconds, retry)

    def _attempt(
        self, ctx: golang.Context, call: _Call
    ) -> tuple[transport.Connection, http.client.HTTPResponse, Callable[[], object]]:
        """Return one response, with its body still unread.

        A GET whose kept-alive connection turns out to be closed is repeated on a new connection.
        """
        attributes = {
            "http.request.method": call.verb,
            "url.full": self._full_url(call),
            "server.address": self._url.hostname or "",
        }
        with self._tracer.start(ctx, f"HTTP {call.verb}", attributes, tracing.Kind.CLIENT) as span:
            call.headers.update(self._config.tracer_provider.inject(span.ctx))
            connection, response, forget = self._authorized_attempt(ctx, call)
            span.set_attributes({"http.response.status_code": response.status})
            return connection, response, forget

    def _authorized_attempt(
        self, ctx: golang.Context, call: _Call
    ) -> tuple[transport.Connection, http.client.HTTPResponse, Callable[[], object]]:
        self._authorize(call)
        context = self._contexts.current() if self._contexts is not None else None
        connection = self._pool.get(context)
        try:
            return self._exchange(ctx, call, connection)
        except (OSError, http.client.HTTPException) as err:
            if not (connection.used and call.verb == "GET" and is_cut(err)):
                raise
        return self._exchange(ctx, call, self._pool.get(context, fresh=True))

    def _exchange(
        self, ctx: golang.Context, call: _Call, connection: transport.Connection
    ) -> tuple[transport.Connection, http.client.HTTPResponse, Callable[[], object]]:
        forget = golang.after_func(ctx, connection.abort)
        try:
            if connection.sock is None:
                connection.set_deadline(_deadline(ctx))
                connection.connect()
            connection.set_deadline(min(_deadline(ctx), monotonic() + ATTEMPT_TIMEOUT))
            target = call.target
            if self._proxy is not None and self._url.scheme == "http":
                target = f"http://{self._netloc}{target}"
            with self._until_lost(ctx):
                _send(connection, call, target)
                response = connection.getresponse()
        except BaseException:
            forget()
            connection.close()
            raise
        klog.v(8).info_s("Response", verb=call.verb, url=self._full_url(call), status=response.status)
        return connection, response, forget

    @contextmanager
    def _until_lost(self, ctx: golang.Context) -> Iterator[None]:
        """Turn a TimeoutError that the context's deadline did not cause into ConnectionLostError."""
        try:
            yield
        except TimeoutError as err:
            if ctx.err() is not None:
                raise
            # The idle connections most likely lead to the same server.
            self._pool.close_idle()
            message = f"http: client connection lost: no response within {ATTEMPT_TIMEOUT:g}s"
            raise transport.ConnectionLostError(message) from err

    def _authorize(self, call: _Call) -> None:
        """Add the bearer token to the request; raise OSError or ValueError if no token is available."""
        if self._tokens is not None:
            call.headers["Authorization"] = f"Bearer {self._tokens.token()}"
        elif self._authenticator is not None and "Authorization" not in self._headers:
            token = self._authenticator.token()
            if token:
                call.headers["Authorization"] = f"Bearer {token}"

    def _renew(self, call: _Call) -> bool:
        """Get new credentials after a 401, if possible, and return whether they differ from the old ones."""
        old = str(call.headers.get("Authorization", "")).removeprefix("Bearer ")
        try:
            if self._tokens is not None:
                self._tokens.reset(old)
                return self._tokens.token() != old
            if self._authenticator is not None:
                return self._authenticator.refresh(old)
        except (OSError, ValueError) as err:
            klog.error_s(err, "Refreshing credentials")
        return False

    def _throttle(self, ctx: golang.Context, call: _Call, reason: str = "") -> None:
        """Wait until the rate limiter lets the request through.

        DIVERGES (safer): requests for one resource queue separately, and only the first of them waits for the rate
        limiter.
        Go: k8s.io/client-go/rest/request.go, (*Request).tryThrottleWithInfo: all requests wait for the limiter in one
        queue.
        Why: the kubelet may request many secrets for one pod, and a review for each wrong token that a client shows.
        All other requests would wait for longer than their time limits.
        Test: client_test.py:test_requests_for_one_resource_hold_up_those_for_no_other
        """
        if self._rate_limiter is None:
            return
        start = monotonic()
        turn = self._turns.setdefault(call.resource, golang.Channel(1))
        turn.send(None, ctx)
        try:
            self._rate_limiter.wait(ctx)
        finally:
            turn.recv()
        latency = monotonic() - start
        metrics.rate_limiter_latency(call.verb, self.host, latency)
        if latency <= _LONG_THROTTLE_LATENCY:
            return
        why = reason or "client-side throttling, not priority and fairness"
        message = f"Waited before sending request, due to {why}"
        if latency > _EXTRA_LONG_THROTTLE_LATENCY:
            message = f"Waited for {latency:.3f}s due to {why}"
            klog.info_s(message, verb=call.verb, URL=self._full_url(call))
        else:
            klog.v(3).info_s(message, delay=f"{latency:.3f}s", verb=call.verb, URL=self._full_url(call))

    def _wait(self, outer: golang.Context, ctx: golang.Context, call: _Call, seconds: int, retry: WithRetry) -> None:
        if ctx.wait(seconds):
            err = outer.err() or ctx.err()
            assert err is not None
            raise self._failure(outer, call, err, retry.previous)
        self._throttle(ctx, call, f"retries: {retry.attempts}, retry-after: {seconds}s")

    def _failure(self, outer: golang.Context, call: _Call, err: Exception, previous: Exception | None) -> Exception:
        """Return the exception for the caller; the end of the caller's context takes precedence."""
        if (done := outer.err()) is not None:
            return done
        if isinstance(err, transport.TransportError):
            return err
        return request_.transport_error(call.verb, self._full_url(call), err, previous)

    def _refusal(self, call: _Call, response: http.client.HTTPResponse, body: bytes) -> Exception:
        content_type = response.headers.get("Content-Type", "")
        retry_after = retry_after_seconds(response.headers) or 0
        err = request_.status_error(
            call.verb, call.resource, call.name, response.status, content_type, body, retry_after
        )
        if response.status == 401:
            # DIVERGES (safer): the error for a 401 names the request and the credentials that it was sent with.
            # Go: k8s.io/client-go/rest/request.go, (*Request).transformResponse: the error is the server's message,
            # which is only "Unauthorized".
            # Why: the operator learns which file or certificate to replace.
            # Test: client_test.py:test_who_is_not_known_to_the_server_is_told_with_what,
            # client_test.py:test_whose_certificate_is_not_known_to_the_server_is_told
            where = f'{call.verb.capitalize()} "{self._full_url(call)}"'
            message = f"{err.status.message}: {where}: the server does not accept {self._credentials(call)}"
            return apierrors.from_status(msgspec.structs.replace(err.status, message=message))
        return err

    def _credentials(self, call: _Call) -> str:
        """Describe the credentials of a request in words."""
        if self._config.bearer_token_file:
            return f"the token in {self._config.bearer_token_file}"
        authorization = str(call.headers.get("Authorization", ""))
        if authorization.startswith("Basic "):
            return f"the password of {self._config.username!r}"
        if authorization:
            return "the bearer token"
        certificate = self._contexts.describe_certificate() if self._contexts is not None else ""
        return certificate or "requests without credentials"

    def _full_url(self, call: _Call) -> str:
        return f"{self._url.scheme}://{self._netloc}{call.target}"


def _send(connection: transport.Connection, call: _Call, target: str) -> None:
    connection.putrequest(call.verb, target, skip_accept_encoding=True)
    for name, value in call.headers.items():
        for one in value if isinstance(value, list) else [value]:
            http_.check_field(name, one)
            connection.putheader(name, one)
    if call.body is not None:
        connection.putheader("Content-Length", str(len(call.body)))
    connection.endheaders(call.body)


def _deadline(ctx: golang.Context) -> float:
    """Return when the context ends, by time.monotonic, or infinity if it has no deadline."""
    remaining = ctx.remaining()
    return math.inf if remaining is None else monotonic() + remaining


def _discard(response: http.client.HTTPResponse) -> None:
    """Read a short response to its end, so that its connection can be reused.

    A longer response, or one of unknown length, is left unread, and its connection is closed.
    """
    if response.length is not None and response.length <= MAX_DISCARDED_BYTES:
        while response.read1(MAX_DISCARDED_BYTES):
            pass
        response.close()


def _fixed_headers(config: Config) -> dict[str, str | list[str]]:
    headers: dict[str, str | list[str]] = {
        "Accept": "application/json",
        "User-Agent": config.user_agent or default_kubernetes_user_agent(),
    }
    headers["Accept-Encoding"] = "identity" if config.disable_compression else "gzip"
    if config.bearer_token and not config.bearer_token_file:
        headers["Authorization"] = f"Bearer {config.bearer_token}"
    elif config.username or config.password:
        pair = base64.b64encode(f"{config.username}:{config.password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    who = config.impersonate
    if who.user_name:
        headers["Impersonate-User"] = who.user_name
        if who.uid:
            headers["Impersonate-Uid"] = who.uid
        headers["Impersonate-Group"] = who.groups
        for key, values in who.extra.items():
            headers[f"Impersonate-Extra-{urllib.parse.quote(key, safe='').lower()}"] = values
    return headers


def _rate_limiter(config: Config) -> flowcontrol.RateLimiter | None:
    if config.rate_limiter is not None:
        return config.rate_limiter
    qps = config.qps or DEFAULT_QPS
    return flowcontrol.TokenBucketRateLimiter(qps, config.burst or DEFAULT_BURST) if qps > 0 else None
