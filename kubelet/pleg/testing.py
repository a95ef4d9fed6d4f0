"""Who is told of relists in tests.

Go: none
"""

from __future__ import annotations


class FakeRelistObserver:
    """Keeps of each relist whether it failed."""

    def __init__(self) -> None:
        self.failed: list[bool] = []

    def relisted(self, at: float, seconds: float, failed: bool) -> None:
        self.failed.append(failed)
