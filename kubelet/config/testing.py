"""Fakes of what PodConfig tells about its pods."""

from __future__ import annotations

import datetime

from pkg.api.core import v1


class FakePodStartupSLIObserver:
    """Records the pods that were observed."""

    def __init__(self) -> None:
        self.observed: list[str] = []

    def observed_pod_on_watch(self, pod: v1.Pod, when: datetime.datetime) -> None:
        self.observed.append(pod.metadata.name)
