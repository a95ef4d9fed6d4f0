"""Serve the live view over HTTP: the page, its data, the stream that updates it, and the explanations.

Go: none
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubelet.liveview import evictions
from kubelet.liveview.collector import Collector
from pkg import golang
from pkg.apimachinery.runtime import codec
from pkg.golang import http

if TYPE_CHECKING:
    from kubelet.kubelet import Kubelet
    from kubelet.liveview.history import History

PAGE = Path(__file__).with_name("page.html")

# The stream sends a message every INTERVAL seconds by default, and there may be at most _MAX_STREAMS streams.
INTERVAL = 1.0
_MIN_INTERVAL, _MAX_INTERVAL = 0.25, 60.0
_MAX_STREAMS = 20
# The runtime gets this time, in seconds, to measure the pods.
_MEASURE_TIMEOUT = 20.0


class LiveView:
    """Serve the live view with one collector for all handlers. The first request creates this object."""

    def __init__(self, kubelet: Kubelet, history: History) -> None:
        self._kubelet = kubelet
        self._collector = Collector(kubelet, history)
        self._lock = threading.Lock()  # The lock guards the fields below.
        self._streams = 0
        self._encoded: tuple[Any, bytes] | None = None

    def page(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Serve the page. It is self-contained, and its policy forbids the browser to load anything else."""
        body, policy = _page()
        w.headers.set("Content-Type", "text/html; charset=utf-8")
        w.headers.set("Content-Security-Policy", policy)
        w.headers.set("X-Content-Type-Options", "nosniff")
        w.headers.set("Cache-Control", "no-store")
        w.write(body)

    def data(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Serve one snapshot."""
        _answer_json(w, self._snapshot())

    def events(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Stream snapshots as server-sent events: one now, then one each second or each `interval` seconds."""
        interval = _interval(r.param("interval"))
        with self._lock:
            if self._streams >= _MAX_STREAMS:
                raise http.HTTPError(503, f"{_MAX_STREAMS} streams of the live view are already open")
            self._streams += 1
        try:
            w.let_client_pause()
            w.headers.set("Content-Type", "text/event-stream")
            w.headers.set("Cache-Control", "no-store")
            while True:
                began = time.monotonic()
                w.write(b"data: " + self._snapshot() + b"\n\n")
                w.flush()
                if r.ctx.wait(max(0.0, interval - (time.monotonic() - began))):
                    return
        finally:
            with self._lock:
                self._streams -= 1

    def explain(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Explain the state of the pod in `?pod=NAMESPACE/NAME`. Without a pod, explain the state of the node."""
        if not (full_name := r.param("pod")):
            _answer_json(w, codec.encode_json(self._collector.explain_node()))
            return
        namespace, slash, name = full_name.partition("/")
        if not (namespace and slash and name):
            raise http.HTTPError(400, f'pod "{full_name}" is not of the form NAMESPACE/NAME')
        found = self._collector.explain_pod(namespace, name)
        if found is None:
            raise http.HTTPError(
                404, f"this kubelet knows no pod {full_name}, and has seen none of that name since it started"
            )
        _answer_json(w, codec.encode_json(found))

    def manifests(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Serve what is wrong with the manifests now."""
        _answer_json(w, codec.encode_json(self._collector.manifests()))

    def evictions(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Serve which pods would be evicted now.

        Unlike the other handlers, this one measures the pods, so it waits when the runtime does not respond.
        """
        ctx, cancel = golang.with_timeout(r.ctx, _MEASURE_TIMEOUT)
        try:
            preview = self._kubelet.eviction_manager.preview(ctx)
        except Exception as err:
            # The client learns of any error, and an error here does not affect the kubelet.
            raise http.HTTPError(503, f"the node cannot be measured: {err or type(err).__name__}") from err
        finally:
            cancel()
        _answer_json(w, codec.encode_json(evictions.explain(preview, datetime.now(UTC))))

    def _snapshot(self) -> bytes:
        """Return the snapshot as JSON, encoded once for all clients that share it."""
        snapshot = self._collector.snapshot()
        with self._lock:
            if self._encoded is None or self._encoded[0] is not snapshot:
                self._encoded = (snapshot, codec.encode_json(snapshot))
            return self._encoded[1]


def routes(kubelet: Kubelet, history: History) -> dict[str, http.Handler]:
    """Return the handlers by their paths."""
    view = LiveView(kubelet, history)
    return {
        "/debug/syncloop": view.page,
        "/debug/syncloop.json": view.data,
        "/debug/syncloop/events": view.events,
        "/debug/syncloop/explain": view.explain,
        "/debug/syncloop/evictions": view.evictions,
        "/debug/syncloop/manifests": view.manifests,
    }


@functools.cache
def _page() -> tuple[bytes, str]:
    """Return the page, and the policy that allows only the page's own style and script."""
    body = PAGE.read_bytes()
    sources = {
        tag: " ".join(
            _hash(found) for found in re.findall(rb"<%s>(.*?)</%s>" % (tag.encode(), tag.encode()), body, re.S)
        )
        for tag in ("script", "style")
    }
    policy = (
        f"default-src 'none'; script-src {sources['script']}; style-src {sources['style']}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    return body, policy


def _hash(text: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


def _answer_json(w: http.ResponseWriter, body: bytes) -> None:
    w.headers.set("Content-Type", "application/json")
    w.headers.set("Cache-Control", "no-store")
    w.write(body)


def _interval(text: str) -> float:
    try:
        seconds = float(text) if text else INTERVAL
    except ValueError:
        raise http.HTTPError(400, f'interval "{text}" is not a number of seconds') from None
    # NaN compares as neither less nor greater, and with this order of arguments it becomes the minimum.
    return min(max(_MIN_INTERVAL, seconds), _MAX_INTERVAL)
