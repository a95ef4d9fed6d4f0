"""Fakes for tests of what takes pods from sources."""

from __future__ import annotations

import datetime

from pkg.api.core import v1


class FakeSourcesReady:
    """A SourcesReady that says what it is told to."""

    def __init__(self, ready: bool = True) -> None:
        self.ready = ready
        self.sources: list[str] = []

    def add_source(self, source: str) -> None:
        self.sources.append(source)

    def all_ready(self) -> bool:
        return self.ready


class FakePodStartupSLIObserver:
    """Records the pods that were observed."""

    def __init__(self) -> None:
        self.observed: list[str] = []

    def observed_pod_on_watch(self, pod: v1.Pod, when: datetime.datetime) -> None:
        self.observed.append(pod.metadata.name)
