"""Serve pages of metrics.

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

# Scrapes are frequent and short-lived, so a fast compression is better than a strong one.
_GZIP_LEVEL = 4

_process_started_at = int(time.time())


def handler_for(registry: KubeRegistry) -> Handler:
    """Return a handler for the registry's metrics in the text format, compressed for clients that accept gzip.

    DIVERGES (platform): all requests that arrive while a page of metrics is being made share the next page.
    Go: k8s.io/component-base/metrics/http.go, HandlerFor: each request makes its own page, in parallel.
    Why: a page occupies the single Python interpreter for a tenth of a second, and a client with hundreds of
    connections would stop the sync loop.
    Test: registry_test.py:test_who_asks_while_a_page_is_made_shares_the_next_one
    """
    plain = singleflight.Rounds(registry.expose)
    zipped = singleflight.Rounds(lambda: gzip.compress(registry.expose(), _GZIP_LEVEL))

    def serve(w: ResponseWriter, r: Request) -> None:
        compressed = accepts_gzip(r.headers.get_all("Accept-Encoding"))
        page = (zipped if compressed else plain).get(r.ctx)
        # DIVERGES (platform): a scraper that requests protobuf receives text, which it understands too.
        # Go: k8s.io/component-base/metrics/http.go, HandlerFor: the Go kubelet can also serve protobuf.
        # Why: prometheus_client, which makes the pages, writes only text.
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
    """Report whether gzip is among the encodings, without the weight 0 that refuses it."""
    for entry in ",".join(accept_encodings).split(","):
        name, _, parameters = entry.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return parameters.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def handler_with_reset(registry: KubeRegistry) -> Handler:
    """Return a handler like that of `handler_for` that also resets all metrics on DELETE."""
    serve = handler_for(registry)

    def serve_or_reset(w: ResponseWriter, r: Request) -> None:
        if r.method == "DELETE":
            registry.reset()
            w.write(b"metrics reset\n")
        else:
            serve(w, r)

    return serve_or_reset
