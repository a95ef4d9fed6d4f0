"""The ticks of a kubelet's sync loop, as its live view tells them."""

from __future__ import annotations

from itertools import pairwise

from framework.kubelet_process import KubeletProcess
from kubelet.kubelet import SYNC_PERIOD, LoopCase


class Ticks:
    """Those that come from now on. The kubelet forgets them, so look every half a minute or more often."""

    def __init__(self, kubelet: KubeletProcess) -> None:
        self._kubelet = kubelet
        self._begin: float = kubelet.debug("/debug/syncloop.json")["now"]
        self._times: set[float] = set()

    def look(self) -> None:
        """Raises OSError when the kubelet does not answer."""
        tape = self._kubelet.debug("/debug/syncloop.json")["loop"]["tape"]
        self._times |= {at for at, case, _ in tape if case == LoopCase.SYNC and at >= self._begin}

    def worst_lateness(self) -> float:
        """In seconds, of those that were seen: by how much more than the period one came after the one before it."""
        return max((after - before - SYNC_PERIOD for before, after in pairwise(sorted(self._times))), default=0.0)
