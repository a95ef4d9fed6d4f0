"""Run a process that only wakes up at every tick, to measure how late this machine wakes any process.

    python -m framework.hostile.idle PERIOD SECONDS

The process prints by how many seconds the longest time between two ticks exceeded the period, as
framework.sync_loop.Ticks does for the sync loop. The kubelet is not to blame for that part of the loop's lateness,
because the kubelet waits for a processor as this process does.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise


def main(period: float, seconds: float) -> None:
    begin = time.monotonic()
    times = []
    for number in range(int(seconds / period) + 1):
        time.sleep(max(begin + number * period - time.monotonic(), 0.0))
        times.append(time.monotonic())
    print(max((after - before - period for before, after in pairwise(times)), default=0.0))


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]))
