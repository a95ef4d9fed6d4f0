"""Independent pieces of work, side by side.

Go: k8s.io/client-go/util/workqueue/parallelizer.go
"""

from __future__ import annotations

from collections.abc import Callable

from pkg import golang, klog
from pkg.apimachinery.util.runtime import contain


def parallelize_until(
    ctx: golang.Context, workers: int, pieces: int, do_work_piece: Callable[[int], None], name: str
) -> None:
    """Call do_work_piece(0) to do_work_piece(pieces - 1) in this order on at most `workers` threads; wait for all.

    The caller's thread is one of them, so a single piece starts none. Pieces that have not begun when ctx ends are
    left out. What a piece raises is logged, and the other pieces are worked on; if the machine has no more threads, by
    those that there are.
    """
    to_process: golang.Channel[int] = golang.Channel(max(pieces, 1))
    for piece in range(pieces):
        to_process.send(piece)
    to_process.close()

    def work() -> None:
        for piece in to_process:
            if ctx.err() is not None:
                return
            with contain("Failed to work on a piece", golang.background(), name=name, piece=piece):
                do_work_piece(piece)

    threads: list[golang.Thread] = []
    try:
        for i in range(1, min(workers, pieces)):
            threads.append(golang.go(work, name=f"{name}-{i}"))
    except golang.ThreadError as err:
        klog.error_s(err, "Working on fewer pieces at a time", name=name, workers=len(threads) + 1)
    work()
    for thread in threads:
        thread.join()
