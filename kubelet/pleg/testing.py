"""Define a fake observer of relists for tests.

Go: none
"""

from __future__ import annotations


class FakeRelistObserver:
    """Record whether each relist failed."""

    def __init__(self) -> None:
        self.failed: list[bool] = []

    def relisted(self, at: float, seconds: float, failed: bool) -> None:
        self.failed.append(failed)
