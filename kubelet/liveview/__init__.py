"""The live view: what the running machine does, drawn as the documentation draws it, and why a pod does not run.

Go: none

- history: what is noted all the time, at next to no cost
- collector: a snapshot of everything, made when somebody looks
- activity: what a pod worker is at, read from its stack
- explanation: the one sentence about a pod or the node, with its evidence
- evictions: who would be evicted now
- handlers, page.html: the page, its data and its stream

A kubelet that nobody looks at has loaded the first of these alone.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubelet.kubelet import Kubelet
    from pkg.golang import http

PATHS = (
    "/debug/syncloop",
    "/debug/syncloop.json",
    "/debug/syncloop/events",
    "/debug/syncloop/explain",
    "/debug/syncloop/evictions",
    "/debug/syncloop/manifests",
)


def install(mux: http.ServeMux, kubelet: Kubelet) -> None:
    """Serve the live view; what it takes is loaded by the first request for it."""

    @cache
    def routes() -> dict[str, http.Handler]:
        from kubelet.liveview import handlers

        return handlers.routes(kubelet)

    def handler(path: str) -> http.Handler:
        return lambda w, r: routes()[path](w, r)

    for path in PATHS:
        mux.handle(path, handler(path), ["GET"])


__all__ = ["PATHS", "install"]
