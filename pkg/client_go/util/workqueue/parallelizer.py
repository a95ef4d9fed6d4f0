"""Independent pieces of work, side by side.

Go: k8s.io/client-go/util/workqueue/parallelizer.go
"""

from __future__ import annotations

from collections.abc import Callable

from pkg import golang


def parallelize_until(
    ctx: golang.Context, workers: int, pieces: int, do_work_piece: Callable[[int], None], name: str
) -> None:
    """Call do_work_piece(0) to do_work_piece(pieces - 1) in this order on at most `workers` threads; wait for all.

    The caller's thread is one of them, so a single piece starts none. Pieces that have not begun when ctx ends are
    left out. do_work_piece must not raise.
    """
    to_process: golang.Channel[int] = golang.Channel(max(pieces, 1))
    for piece in range(pieces):
        to_process.send(piece)
    to_process.close()

    def work() -> None:
        for piece in to_process:
            if ctx.err() is not None:
                return
            do_work_piece(piece)

    threads = [golang.go(work, name=f"{name}-{i}") for i in range(1, min(workers, pieces))]
    work()
    for thread in threads:
        thread.join()
