"""Test that the kubelet's server responds to any input in time, and never with an internal error."""

from __future__ import annotations

import contextlib
import json
import socket
import warnings
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from framework.hollow_node import HollowNode
from framework.pods import pod, sleeper
from framework.waiting import wait_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubelet import server
from pkg import golang
from pkg.golang import http

NODE = "fuzzed"
TIMEOUT = 20.0
# Each test runs this many examples. They differ from run to run, and Hypothesis prints a failing one.
EXAMPLES = 100
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# When the runtime refuses these requests, the response is 500 with the runtime's message, as in the Go kubelet.
_ASK_THE_RUNTIME = ("run", "exec", "attach", "portForward", "checkpoint")


@pytest.fixture(autouse=True)
def _chance_is_shared(_no_warnings: None) -> None:
    """Ignore a warning of Hypothesis: the kubelet's threads use the same random generator as the tests."""
    warnings.filterwarnings("ignore", "Do not use the `random` module inside strategies")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Yield the port of a kubelet with a pod.

    Its server does not authenticate clients, so requests reach all of its code.
    """
    manifests = tmp_path_factory.mktemp("manifests")
    (manifests / "pod.json").write_text(json.dumps(pod("pod", sleeper("c"))))
    with HollowNode(None, NODE, config={"staticPodPath": str(manifests)}) as node:
        kubelet = node.kubelet
        assert kubelet is not None
        wait_for("the pod runs", lambda: node.runtime.recorder.counts.get("StartContainer", 0) > 0, timeout=60)
        kube_cfg = kubelet.kubelet_configuration
        handler = server.Server(kubelet, kubelet.resource_analyzer, kube_cfg=kube_cfg, debug_pages=node.debug_pages)
        listening = http.Server(handler, name="fuzzed-server", read_header_timeout=TIMEOUT, body_timeout=0.5)
        listening.listen("127.0.0.1", 0)
        thread = golang.go(listening.serve, name="fuzzed-server")
        yield listening.port
        listening.close()
        thread.join()


def exchange(port: int, data: bytes, *, then_end: bool = True) -> bytes:
    """Return the beginning of the response, or b"" if the server closed the connection without one.

    The server treats a client that has closed its side as gone, so it may respond or not. Raise TimeoutError if neither
    a response nor the end arrives in time.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as sock:
        # The server may have responded and closed the connection before it has read everything.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(data)
            if then_end:
                sock.shutdown(socket.SHUT_WR)
        try:
            return sock.recv(1 << 16)
        except ConnectionResetError:
            return b""


_SEGMENTS = st.one_of(
    st.sampled_from(["default", f"pod-{NODE}", "c", "none", "..", ".", "%2e%2e", "%00", "%", "a%2fb", "%ff", ""]),
    st.text(max_size=20).map(lambda text: quote(text, safe="")),
    st.integers().map(str),
)
_ROOTS = st.sampled_from(
    [
        "pods", "runningpods", "run", "exec", "attach", "portForward", "containerLogs", "checkpoint", "logs", "stats",
        "stats/summary", "metrics", "metrics/cadvisor", "metrics/resource", "metrics/probes", "metrics/slis", "configz",
        "flagz", "statusz", "healthz", "healthz/syncloop", "debug/pprof", "debug/pprof/goroutine", "debug/pprof/heap",
        "debug/flags/v", "debug/syncloop", "debug/syncloop.json", "debug/syncloop/explain",
        "debug/syncloop/evictions", "debug/syncloop/manifests", "..", "",
    ]
)  # fmt: skip
_NAMES = st.sampled_from(
    [
        "command", "cmd", "input", "output", "error", "tty", "stdin", "stdout", "port", "timeout", "tailLines", "tail",
        "limitBytes", "sinceSeconds", "sinceTime", "timestamps", "previous", "container", "stream", "query",
        "untilTime", "pattern", "boot", "only_cpu_and_memory", "verbose", "exclude", "debug", "pod",
        "namespace", "name",
    ]
)  # fmt: skip
_VALUES = st.one_of(
    st.sampled_from(["1", "true", "0", "-1", "9" * 30, "", "2020-01-01T00:00:00Z", "All", "Stdout", "all", "NaN", "["]),
    st.integers().map(str),
    st.text(max_size=30),
)
_KNOWN_HEADERS = st.sampled_from(
    [
        "Connection: Upgrade", "Upgrade: SPDY/3.1", "Upgrade: websocket", "Connection: close", "Accept: */*",
        "X-Stream-Protocol-Version: v4.channel.k8s.io", "Sec-WebSocket-Version: 13", "Accept-Encoding: gzip",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: v5.channel.k8s.io",
        "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io", "Expect: 100-continue", "Range: bytes=-5,9-3",
        "Authorization: Bearer x", "Transfer-Encoding: chunked", "Content-Length: 5", "If-Modified-Since: x",
    ]
)  # fmt: skip
_OTHER_HEADERS = st.tuples(st.from_regex(r"[A-Za-z-]{1,12}", fullmatch=True), st.text(max_size=20)).map(": ".join)
_HEADERS = st.lists(st.one_of(_KNOWN_HEADERS, _OTHER_HEADERS), max_size=6)


@st.composite
def _requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return the first part of the path, and a request that is nearly valid."""
    root = draw(_ROOTS)
    path = "/".join(["", root, *draw(st.lists(_SEGMENTS, max_size=4))])
    query = urlencode(draw(st.lists(st.tuples(_NAMES, _VALUES), max_size=4)))
    method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "BREW"]))
    head = [f"{method} {path}?{query} HTTP/1.1", "Host: node", *draw(_HEADERS), "", ""]
    body = draw(st.binary(max_size=50))
    return root, "\r\n".join(head).encode(errors="replace") + body


@FUZZ
@given(_requests())
def test_requests(port: int, request: tuple[str, bytes]) -> None:
    root, data = request
    answer = exchange(port, data, then_end=False)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), "the server sent no response"
    if head.startswith(b"HTTP/1.1 500"):
        assert root in _ASK_THE_RUNTIME, answer
        assert b"Internal Server Error\n" not in body


@FUZZ
@given(st.binary(min_size=1, max_size=300))
def test_bytes_that_are_no_request(port: int, data: bytes) -> None:
    answer = exchange(port, data)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert b" 500 " not in answer.partition(b"\r\n")[0]


@FUZZ
@given(st.data())
def test_requests_with_a_fault(port: int, data: st.DataObject) -> None:
    """Requests with a few changed, missing or added bytes get a valid response or none."""
    whole = bytearray(data.draw(_requests())[1])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole)))
        whole[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    answer = exchange(port, bytes(whole))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert b"Internal Server Error\n" not in answer


def test_the_server_is_well_after_all_that(port: int) -> None:
    assert exchange(port, b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n", then_end=False).endswith(b"\r\n\r\nok")
