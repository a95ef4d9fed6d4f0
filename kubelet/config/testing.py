"""Fakes of what PodConfig tells about its pods, and of where they come from."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubelet.config.sources import SourcesReady
from pkg.api.core import v1


class FakePodStartupSLIObserver:
    """Records the pods that were observed."""

    def __init__(self) -> None:
        self.observed: list[str] = []

    def observed_pod_on_watch(self, pod: v1.Pod, when: datetime.datetime) -> None:
        self.observed.append(pod.metadata.name)


@dataclass
class FakeSourcesReady:
    """Sources of pods that have all delivered, or not."""

    ready: bool = True

    def add_source(self, source: str) -> None: ...

    def all_ready(self) -> bool:
        return self.ready


if TYPE_CHECKING:
    _: SourcesReady = FakeSourcesReady()
