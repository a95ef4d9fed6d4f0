"""Define fakes of pod sources, and of the observers and readers of PodConfig."""

from __future__ import annotations

import datetime
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from kubelet.config.sources import SourcesReady
from pkg import golang
from pkg.api.core import v1


class FakePodStartupSLIObserver:
    """Record the pods that were observed."""

    def __init__(self) -> None:
        self.observed: list[str] = []

    def observed_pod_on_watch(self, pod: v1.Pod, when: datetime.datetime) -> None:
        self.observed.append(pod.metadata.name)


@dataclass
class FakeSourcesReady:
    """Fake sources, all of which have been seen or none."""

    ready: bool = True

    def add_source(self, source: str) -> None: ...

    def all_ready(self) -> bool:
        return self.ready


class FakeManifestServer:
    """Respond to every request alike, and record the headers of each request."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.extra: dict[str, str] = {}
        self.headers: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.headers.append(dict(self.headers))
                self.send_response(server.status)
                for name, value in server.extra.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(server.body)))
                self.end_headers()
                self.wfile.write(server.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address: tuple[str, int] = "127.0.0.1", self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.address[1]}/pods"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), name="fake-http")
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class FakeMerger:
    """Send each merged update to a channel, and record the names of the calling threads."""

    def __init__(self) -> None:
        self.merged: golang.Channel[tuple[str, str]] = golang.Channel(10)
        self.threads: set[str] = set()

    def merge(self, ctx: golang.Context, source: str, update: str) -> bool:
        self.threads.add(threading.current_thread().name)
        self.merged.send((source, update), ctx)
        return True


if TYPE_CHECKING:
    _: SourcesReady = FakeSourcesReady()
