"""A process that does nothing but wake up at every tick: how late the machine is for anybody.

    python -m framework.hostile.idle PERIOD SECONDS

prints by how many seconds a tick came later after the one before it than the period, at worst, as
framework.sync_loop.Ticks does of the sync loop. So much of the loop's lateness is not the kubelet's fault: it waits
for a processor as this process does.
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
