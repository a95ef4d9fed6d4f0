"""Serve manifests over HTTP, with failures on request, and send requests to servers in pods."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from framework.waiting import wait_for


def fetch(url: str) -> str:
    """Return a server's response. The server may have just started and not listen yet."""

    def look() -> list[str]:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return [answer.read().decode()]
        except (urllib.error.URLError, ConnectionError):
            return []

    return wait_for(f"a response from {url}", look, timeout=30)[0]


class ManifestServer:
    """Serve `body` with `status` for every GET, within a `with` block. Both may change at any time."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self._requests = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._requests += 1
                self.send_response(server.status)
                self.send_header("Content-Length", str(len(server.body)))
                self.end_headers()
                self.wfile.write(server.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="manifest-server")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/manifests"

    def wait_for_requests(self, count: int) -> None:
        """Wait until the server has handled this many more requests."""
        goal = self._requests + count
        wait_for(f"{count} more requests", lambda: self._requests >= goal, timeout=120)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
