"""Test the options of streaming requests, and the conversion of a runtime's errors."""

from __future__ import annotations

import grpc
import pytest

from kubelet.cri import errors
from kubelet.cri.streaming import portforward, remotecommand, write_error
from pkg.golang import http
from pkg.golang.http.testing import record, request

Options = remotecommand.Options


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("input=1&output=1", Options(stdin=True, stdout=True)),
        ("error=1", Options(stderr=True)),
        ("tty=1&input=1&output=1", Options(stdin=True, stdout=True, tty=True)),
        # A terminal has one output.
        ("tty=1&output=1&error=1", Options(stdout=True, tty=True)),
        ("output=true&input=1", Options(stdin=True)),
        ("tty=1&error=1", None),
        ("tty=1", None),
        ("", None),
    ],
)
def test_which_streams_a_command_has(query: str, expected: Options | None) -> None:
    req = request("POST", f"/exec/ns/p/c?{query}")
    if expected is None:
        with pytest.raises(ValueError, match="you must specify at least 1 of stdin, stdout, stderr"):
            remotecommand.new_options(req)
    else:
        assert remotecommand.new_options(req) == expected


@pytest.mark.parametrize(
    ("upgrade", "query", "expected"),
    [
        ("SPDY/3.1", "", []),
        ("SPDY/3.1", "port=junk", []),
        ("websocket", "port=80", [80]),
        ("websocket", "port=1,65535&port=443", [1, 65535, 443]),
        ("WebSocket", "", 'query parameter "port" is required'),
        ("websocket", "port=", 'query parameter "port" cannot be empty'),
        ("websocket", "port=80,", 'unable to parse "80," as a port'),
        ("websocket", "port=http", 'unable to parse "http" as a port'),
        ("websocket", "port=65536", 'unable to parse "65536" as a port'),
        ("websocket", "port=-1", 'unable to parse "-1" as a port'),
        ("websocket", "port=%D9%A1", "as a port"),
        ("websocket", "port=0", 'port "0" must be > 0'),
    ],
)
def test_which_ports_are_forwarded(upgrade: str, query: str, expected: list[int] | str) -> None:
    req = request("GET", f"/portForward/ns/p?{query}", {"Connection": "upgrade", "Upgrade": upgrade})
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            portforward.new_v4_options(req)
    else:
        assert portforward.new_v4_options(req).ports == expected


@pytest.mark.parametrize(
    ("err", "status", "text"),
    [
        (errors.RemoteError(grpc.StatusCode.NOT_FOUND, "gone"), 404, "rpc error: code = NotFound desc = gone"),
        (
            errors.RemoteError(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many"),
            429,
            "rpc error: code = ResourceExhausted desc = too many",
        ),
        (errors.UncodedError("no"), 500, "no"),
        (LookupError('container not found ("c")'), 500, 'container not found ("c")'),
    ],
)
def test_refusals(err: Exception, status: int, text: str) -> None:
    def handler(w: http.ResponseWriter, req: http.Request) -> None:
        write_error(err, w)

    recorded = record(handler, "POST", "/exec")
    assert (recorded.status, recorded.text) == (status, text)
    assert ("Retry-After" in recorded.headers) == (status == 429)
