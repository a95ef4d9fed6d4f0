"""The live view: what the running machine does, drawn as the documentation draws it, and why a pod does not run.

Go: none

- history: what is noted all the time, at next to no cost
- collector: a snapshot of everything, made when somebody looks
- activity: what a pod worker is at, in words
- explanation: the one sentence about a pod or the node, with its evidence
- evictions: who would be evicted now
- handlers, page.html: the page, its data and its stream

The kubelet knows nothing of all this: it tells observers, and answers questions. Whoever starts it has `observe` take
notes before it is made, and `show` serve them with it. A kubelet that nobody looks at has loaded the first of these
alone.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubelet.kubelet import Kubelet
    from kubelet.kubelet_dependencies import Dependencies
    from kubelet.liveview.history import History
    from pkg.golang import http

PATHS = (
    "/debug/syncloop",
    "/debug/syncloop.json",
    "/debug/syncloop/events",
    "/debug/syncloop/explain",
    "/debug/syncloop/evictions",
    "/debug/syncloop/manifests",
)


def observe(kube_deps: Dependencies) -> History:
    """Have the kubelet that will be made of these tell the history that is returned what it does."""
    from kubelet.kubelet import LoopCase
    from kubelet.liveview.history import History
    from pkg.client_go.tools.record import recorder

    history = History(len(LoopCase))
    kube_deps.observers = history.observers()
    if isinstance(kube_deps.recorder, recorder.BaseRecorder):
        kube_deps.recorder.observer = history.pods.note_event
    return history


def show(history: History, kubelet: Kubelet, kube_deps: Dependencies) -> None:
    """Add the live view of this kubelet to its debug pages. Called before the kubelet runs."""
    kubelet.status_manager.add_pod_update_notifier(history.pods)
    kube_deps.debug_pages.append(lambda mux: install(mux, kubelet, history))


def install(mux: http.ServeMux, kubelet: Kubelet, history: History) -> None:
    """Serve the live view; what it takes is loaded by the first request for it."""

    @cache
    def routes() -> dict[str, http.Handler]:
        from kubelet.liveview import handlers

        return handlers.routes(kubelet, history)

    def handler(path: str) -> http.Handler:
        return lambda w, r: routes()[path](w, r)

    for path in PATHS:
        mux.handle(path, handler(path), ["GET"])


__all__ = ["PATHS", "install", "observe", "show"]
