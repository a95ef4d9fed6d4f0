"""Pages of metrics.

Go: k8s.io/component-base/metrics/http.go
"""

from __future__ import annotations

import gzip
import time
from typing import TYPE_CHECKING

from pkg.component_base.metrics.metrics import CONTENT_TYPE
from pkg.component_base.metrics.registry import KubeRegistry
from pkg.golang import singleflight

if TYPE_CHECKING:
    from pkg.golang.http import Handler, Request, ResponseWriter

# A scrape is made often and soon thrown away: little time is better spent on it than much.
_GZIP_LEVEL = 4

_process_started_at = int(time.time())


def handler_for(registry: KubeRegistry) -> Handler:
    """Make a handler that serves the registry's metrics in the text format, compressed for clients that accept gzip.

    DIVERGES (platform): all who ask while a page is being made share the next page.
    Go: k8s.io/component-base/metrics/http.go, HandlerFor: each request makes a page of its own, side by side.
    Why: a page takes the one interpreter a tenth of a second, and a client with hundreds of connections would stop the
    sync loop.
    Test: registry_test.py:test_who_asks_while_a_page_is_made_shares_the_next_one
    """
    plain = singleflight.Rounds(registry.expose)
    zipped = singleflight.Rounds(lambda: gzip.compress(registry.expose(), _GZIP_LEVEL))

    def serve(w: ResponseWriter, r: Request) -> None:
        compressed = accepts_gzip(r.headers.get_all("Accept-Encoding"))
        page = (zipped if compressed else plain).get(r.ctx)
        # DIVERGES (platform): a scraper that asks for protobuf gets text, which it understands as well.
        # Go: k8s.io/component-base/metrics/http.go, HandlerFor: a page can also be had as protobuf.
        # Why: prometheus_client, which makes the pages, writes text alone.
        # Test: registry_test.py:test_scraper_that_asks_for_protobuf_gets_text
        w.headers.set("Content-Type", f"{CONTENT_TYPE}; escaping=underscores")
        w.headers.set("Process-Start-Time-Unix", str(_process_started_at))
        if compressed:
            w.headers.set("Content-Encoding", "gzip")
        w.headers.set("Content-Length", str(len(page)))
        w.write_header(200)
        if r.method != "HEAD":
            w.write(page)

    return serve


def accepts_gzip(accept_encodings: list[str]) -> bool:
    """Whether gzip is among them, and not with the weight 0 that refuses it."""
    for entry in ",".join(accept_encodings).split(","):
        name, _, parameters = entry.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return parameters.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def handler_with_reset(registry: KubeRegistry) -> Handler:
    """As `handler_for`, and a DELETE starts all metrics of the registry afresh."""
    serve = handler_for(registry)

    def serve_or_reset(w: ResponseWriter, r: Request) -> None:
        if r.method == "DELETE":
            registry.reset()
            w.write(b"metrics reset\n")
        else:
            serve(w, r)

    return serve_or_reset
