"""Show what the running kubelet does, and explain why a pod does not run.

Go: none

- history: record events all the time, at very low cost
- collector: make a snapshot of the whole kubelet when a client requests one
- activity: describe in words what a pod worker is doing
- explanation: explain a pod or the node in one sentence, with evidence
- evictions: list the pods that would be evicted now
- handlers, page.html: serve the page, its data and its stream

The kubelet does not depend on this package: it calls observers and answers queries. The command that starts the kubelet
calls `observe` before it creates the kubelet, so that the history sees everything, and `show` afterwards. Until the
first request to one of the paths, only the history module is loaded.
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
    """Return a history that records what the kubelet made from `kube_deps` will do."""
    from kubelet.kubelet import LoopCase
    from kubelet.liveview.history import History
    from pkg.client_go.tools.record import recorder

    history = History(len(LoopCase))
    kube_deps.observers = history.observers()
    if isinstance(kube_deps.recorder, recorder.BaseRecorder):
        kube_deps.recorder.observer = history.pods.note_event
    return history


def show(history: History, kubelet: Kubelet, kube_deps: Dependencies) -> None:
    """Add the live view of this kubelet to its debug pages. Call this function before the kubelet runs."""
    kubelet.status_manager.add_pod_update_notifier(history.pods)
    kube_deps.debug_pages.append(lambda mux: install(mux, kubelet, history))


def install(mux: http.ServeMux, kubelet: Kubelet, history: History) -> None:
    """Register the handlers of the live view. Their modules are loaded by the first request."""

    @cache
    def routes() -> dict[str, http.Handler]:
        from kubelet.liveview import handlers

        return handlers.routes(kubelet, history)

    def handler(path: str) -> http.Handler:
        return lambda w, r: routes()[path](w, r)

    for path in PATHS:
        mux.handle(path, handler(path), ["GET"])


__all__ = ["PATHS", "install", "observe", "show"]
