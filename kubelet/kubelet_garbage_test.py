"""Test when a kubelet collects images, and how it reports failures.

Go: pkg/kubelet/kubelet_test.go
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import pytest

from kubelet import events, kubelet_garbage
from kubelet.apis.config import KubeletConfiguration
from kubelet.kubelet_garbage import KubeletGarbage
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.client_go.tools.record.testing import FakeRecorder


class _Collector:
    """Collect nothing, but record the time of each request."""

    def __init__(self) -> None:
        self.asked: golang.Channel[datetime] = golang.Channel(10)
        self.err: Exception | None = None

    def garbage_collect(self, ctx: golang.Context, began: datetime | None = None) -> None:
        self.asked.send(began or datetime.min)
        if self.err is not None:
            raise self.err


def new_garbage(
    containers: _Collector, images: _Collector, clock: FakeClock, recorder: FakeRecorder | None = None
) -> KubeletGarbage:
    return KubeletGarbage(
        kubelet_configuration=KubeletConfiguration(),
        container_gc=cast(Any, containers),
        image_manager=cast(Any, images),
        node_ref=v1.ObjectReference(kind="Node", name="node"),
        recorder=recorder or FakeRecorder(10),
        clock=clock,
    )


@pytest.mark.parametrize(
    ("threshold", "max_age", "collects"), [(85, 0.0, True), (100, 3600.0, True), (100, 0.0, False)]
)
def test_images_are_collected_unless_nothing_asks_for_it(threshold: int, max_age: float, collects: bool) -> None:
    containers, images, clock = _Collector(), _Collector(), FakeClock()
    kubelet = new_garbage(containers, images, clock)
    kubelet.kubelet_configuration.image_gc_high_threshold_percent = threshold
    kubelet.kubelet_configuration.image_maximum_gc_age = max_age
    ctx, cancel = golang.with_cancel(golang.background())
    kubelet.start_garbage_collection(ctx)
    assert containers.asked.recv(timeout=30)[1]
    if collects:
        assert images.asked.recv(timeout=30)[0] == clock.now()
    assert len(images.asked) == 0
    cancel()


def test_second_failure_in_a_row_is_an_event() -> None:
    images, recorder = _Collector(), FakeRecorder(10)
    kubelet = new_garbage(_Collector(), images, FakeClock(), recorder)
    collection = kubelet_garbage._GarbageCollection("Image", lambda: images.garbage_collect(golang.background()))

    def collect(err: Exception | None) -> list[str]:
        images.err = err
        kubelet._collect(collection, events.IMAGE_GC_FAILED, first_failure_event=False)
        return recorder.drain()

    full = RuntimeError("disk full")
    assert [collect(full), collect(full), collect(None), collect(full)] == [
        [],
        ["Warning ImageGCFailed disk full"],
        [],
        [],
    ]
