"""Run a kubelet on fakes that the live view can observe.

Go: none
"""

from __future__ import annotations

from pathlib import Path

from kubelet.kubelet import LoopCase
from kubelet.liveview.history import History
from kubelet.testing import TestKubelet


class ObservedKubelet(TestKubelet):
    """Run a test kubelet that reports to `history`."""

    __test__ = False

    def __init__(self, root: Path) -> None:
        self.history = History(len(LoopCase))
        super().__init__(root, observers=self.history.observers())
        self.recorder.observer = self.history.pods.note_event
        self.kubelet.status_manager.add_pod_update_notifier(self.history.pods)
