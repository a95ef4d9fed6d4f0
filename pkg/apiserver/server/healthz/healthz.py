"""The health endpoint.

Go: staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pkg import golang, klog

# Raises an exception whose text says what is wrong.
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Response:
    """What a request is answered with."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class HealthzServer(ThreadingHTTPServer):
    """Answers `/healthz` with all checks and `/healthz/NAME` with one.

    Binding happens in the constructor, which raises OSError. `serve` runs until `stop`.
    """

    daemon_threads = True
    # A probe that comes after a restart must not find the port taken.
    allow_reuse_address = True
    # Seconds; `stop` does not rely on it, so that an idle server sleeps.
    poll_interval = 3600

    def __init__(self, address: str, port: int, checks: dict[str, Check]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.checks: dict[str, Check] = {"ping": lambda: None, **checks}
        super().__init__((address, port), _Handler)

    def serve(self) -> None:
        self.serve_forever(self.poll_interval)

    def stop(self) -> None:
        """End a running `serve` and free the port."""
        ending = golang.go(self.shutdown, name="healthz-stop")
        # Wakes the thread that waits for connections.
        self.socket.shutdown(socket.SHUT_RDWR)
        ending.join()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        golang.go(self.process_request_thread, request, client_address, name="healthz-request")

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A prober that hangs up early is its own business.
        klog.v(4).info_s("Healthz request failed", client=str(client_address))

    def respond(self, path: str, query: dict[str, list[str]]) -> Response:
        """The response to a GET; servers with more paths extend this."""
        status, text = self.answer(path, "verbose" in query)
        return Response(status, text.encode())

    def answer(self, path: str, verbose: bool) -> tuple[int, str]:
        """Status and body for a request's path."""
        name = path.removeprefix("/healthz").strip("/")
        if path != "/healthz" and name not in self.checks:
            return 404, "404 page not found\n"
        lines, failed = [], []
        for check_name, check in self.checks.items():
            if name not in ("", check_name):
                continue
            try:
                check()
                lines.append(f"[+]{check_name} ok\n")
            except Exception as err:  # any failure of a check is the answer, not a fault of the server
                lines.append(f"[-]{check_name} failed: {err}\n")
                failed.append(check_name)
        if failed:
            return 500, "".join(lines) + "healthz check failed\n"
        return 200, "".join(lines) + "healthz check passed\n" if verbose else "ok"


class _Handler(BaseHTTPRequestHandler):
    server: HealthzServer

    # A client that sends nothing must not hold its thread for ever.
    timeout = 10

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        response = self.server.respond(url.path, parse_qs(url.query, keep_blank_values=True))
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        klog.v(6).info_s("Healthz request", request=format % args)
