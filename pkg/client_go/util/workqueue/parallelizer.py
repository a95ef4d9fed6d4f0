"""Run independent pieces of work in parallel.

Go: k8s.io/client-go/util/workqueue/parallelizer.go
"""

from __future__ import annotations

from collections.abc import Callable

from pkg import golang, klog
from pkg.apimachinery.util.runtime import contain


def parallelize_until(
    ctx: golang.Context, workers: int, pieces: int, do_work_piece: Callable[[int], None], name: str
) -> None:
    """Call do_work_piece for 0 to pieces - 1, in this order, on at most `workers` threads, and wait for all.

    The caller's thread is one of the workers, so a single piece starts no thread. Pieces that have not started when ctx
    ends are skipped. An exception of one piece is logged, and the other pieces run. If the machine cannot start more
    threads, the existing ones do the work.
    """
    to_process: golang.Channel[int] = golang.Channel(max(pieces, 1))
    for piece in range(pieces):
        to_process.send(piece)
    to_process.close()

    def work() -> None:
        for piece in to_process:
            if ctx.err() is not None:
                return
            with contain("Failed to process a piece of work", golang.background(), name=name, piece=piece):
                do_work_piece(piece)

    threads: list[golang.Thread] = []
    try:
        for i in range(1, min(workers, pieces)):
            threads.append(golang.go(work, name=f"{name}-{i}"))
    except golang.ThreadError as err:
        klog.error_s(err, "Failed to start all workers, continuing with fewer", name=name, workers=len(threads) + 1)
    work()
    for thread in threads:
        thread.join()
