"""Read the ticks of a kubelet's sync loop from its live view."""

from __future__ import annotations

from itertools import pairwise

from framework.kubelet_process import KubeletProcess
from kubelet.kubelet import SYNC_PERIOD, LoopCase


class Ticks:
    """Collect the ticks from now on. The kubelet forgets them, so call `look` at least every half minute."""

    def __init__(self, kubelet: KubeletProcess) -> None:
        self._kubelet = kubelet
        self._begin: float = kubelet.debug("/debug/syncloop.json")["now"]
        self._times: set[float] = set()

    def look(self) -> None:
        """Collect the recent ticks. Raise OSError if the kubelet does not respond."""
        tape = self._kubelet.debug("/debug/syncloop.json")["loop"]["tape"]
        self._times |= {at for at, case, _ in tape if case == LoopCase.SYNC and at >= self._begin}

    def worst_lateness(self) -> float:
        """Return, in seconds, by how much the longest time between two collected ticks exceeded the period."""
        return max((after - before - SYNC_PERIOD for before, after in pairwise(sorted(self._times))), default=0.0)
