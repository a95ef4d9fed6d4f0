"""Measure the cost of the live view, with and without a viewer."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import process_time

from kubelet.liveview import collector, history
from kubelet.liveview.history import History
from pkg.api.core import v1

# On an idle node the sync loop and housekeeping tick, and the runtime gets the two list calls of each relist and, every
# five seconds, a request for its status.
EVENTS_A_SECOND = 1.5
CALLS_A_SECOND = 2.2


def unwatched() -> dict[str, float]:
    """Return the CPU microseconds of a record, the cores that an idle node uses, and the kB that 100 pods keep."""
    event = _microseconds(_note_event(History(9)))
    calls = History(9).calls
    call = _microseconds(lambda: _note_call(calls))
    return {
        "event of the loop, noted": event,
        "call of the runtime, noted": call,
        "idle node, unwatched, cores": (EVENTS_A_SECOND * event + CALLS_A_SECOND * call) / 1e6,
        "history of 100 pods": _history_kilobytes(100),
    }


def watched(pods: int = 100) -> float:
    """Return the CPU milliseconds of a snapshot of `pods` pods.

    The live view takes a snapshot once a second, however many viewers there are.
    """
    from kubelet.liveview.testing import ObservedKubelet
    from kubelet.testing import new_pod

    with tempfile.TemporaryDirectory() as folder:
        kubelet = ObservedKubelet(Path(folder))
        try:
            containers = [v1.Container(name="main", image="app:1"), v1.Container(name="other", image="app:1")]
            added = [new_pod(f"pod-{number}", containers=containers) for number in range(pods)]
            kubelet.kubelet.handle_pod_additions(kubelet.ctx, added)
            look = collector.Collector(kubelet.kubelet, kubelet.history)
            began = process_time()
            for _ in range(10):
                look._snapshot()
            return (process_time() - began) * 100
        finally:
            kubelet.close()


def _note_event(noted: History) -> Callable[[], None]:
    def note() -> None:
        noted.loop.took(2)
        noted.loop.done()

    return note


def _note_call(calls: history.RuntimeCalls) -> None:
    with calls.recorded("list_podsandbox"):
        pass


def _microseconds(do: Callable[[], None], times: int = 50_000) -> float:
    began = process_time()
    for _ in range(times):
        do()
    return (process_time() - began) / times * 1e6


def _history_kilobytes(pods: int) -> float:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        noted = History(9)
        for number in range(pods):
            uid = f"{number:032x}"
            for stage in ("seen", "admitted", "pending", "running", "ready"):
                noted.pods.mark(uid, stage)
            for operation in ("run_podsandbox", "create_container", "start_container"):
                with noted.calls.recorded(operation, (uid, "main")):
                    pass
        after, _ = tracemalloc.get_traced_memory()
        return (after - before) / 1024
    finally:
        tracemalloc.stop()
