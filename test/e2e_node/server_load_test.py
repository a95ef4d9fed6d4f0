"""Many streams at once: none fails, and what they took is given back."""

from __future__ import annotations

from collections.abc import Callable

from framework.kubelet_process import KubeletProcess
from framework.server_load import OPEN_SERVER, Load, Usage, load_pod
from framework.waiting import wait_for

# Of a minute in `make bench`; it shows the same.
SECONDS = 6.0
# How much more memory, in MiB, the kubelet may hold after the second time than after the first.
GROWTH = 10.0


def test_many_streams_at_once_leave_nothing_behind(new_kubelet: Callable[..., KubeletProcess]) -> None:
    kubelet = new_kubelet("load", OPEN_SERVER)
    kubelet.start()
    kubelet.write(load_pod())
    kubelet.wait_for_running("load")
    # What is loaded for the first stream of a kind stays.
    Load(kubelet, execs=1, forwards=1, followers=1).run(1.0)
    before = Usage.of(kubelet.pid)

    after: list[Usage] = []
    for _ in range(2):
        load = Load(kubelet)
        load.run(SECONDS)
        assert load.exchanges > load.execs + load.forwards
        assert load.lines > load.followers
        assert load.peak.threads - before.threads < 1.2 * (load.execs + load.forwards + load.followers), load.peak

        def given_back() -> bool:
            now = Usage.of(kubelet.pid)
            return now.threads <= before.threads + 2 and now.descriptors <= before.descriptors + 2

        wait_for("threads and descriptors given back", given_back, 30, lambda: (before, Usage.of(kubelet.pid)))
        after.append(Usage.of(kubelet.pid))
    assert after[1].memory - after[0].memory < GROWTH, (before, after)
