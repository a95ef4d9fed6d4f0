"""When a kubelet collects images, and what it says when that fails. Go: pkg/kubelet/kubelet_test.go"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kubelet import events
from kubelet import kubelet as kubelet_module
from kubelet.testing import TestKubelet
from pkg import golang


@pytest.fixture
def test_kubelet(tmp_path: Path) -> Iterator[TestKubelet]:
    kubelet = TestKubelet(tmp_path)
    yield kubelet
    kubelet.close()


class _Collector:
    """Collects nothing, and tells of every time it is asked to."""

    def __init__(self) -> None:
        self.asked: golang.Channel[datetime] = golang.Channel(10)
        self.err: Exception | None = None

    def garbage_collect(self, ctx: golang.Context, began: datetime | None = None) -> None:
        self.asked.send(began or datetime.min)
        if self.err is not None:
            raise self.err


@pytest.mark.parametrize(
    ("threshold", "max_age", "collects"), [(85, 0.0, True), (100, 3600.0, True), (100, 0.0, False)]
)
def test_images_are_collected_unless_nothing_asks_for_it(
    test_kubelet: TestKubelet, threshold: int, max_age: float, collects: bool
) -> None:
    kubelet = test_kubelet.kubelet
    containers: Any = _Collector()
    images: Any = _Collector()
    kubelet.container_gc, kubelet.image_manager = containers, images
    kubelet.kubelet_configuration.image_gc_high_threshold_percent = threshold
    kubelet.kubelet_configuration.image_maximum_gc_age = max_age
    kubelet.start_garbage_collection(test_kubelet.ctx)
    assert containers.asked.recv(timeout=30)[1]
    if collects:
        assert images.asked.recv(timeout=30)[0] == test_kubelet.clock.now()
    assert len(images.asked) == 0


def test_second_failure_in_a_row_is_an_event(test_kubelet: TestKubelet) -> None:
    kubelet = test_kubelet.kubelet
    images: Any = _Collector()
    kubelet.image_manager = images
    collection = kubelet_module._GarbageCollection("Image", lambda: images.garbage_collect(test_kubelet.ctx))
    test_kubelet.events()

    def collect(err: Exception | None) -> list[str]:
        images.err = err
        kubelet._collect(collection, events.IMAGE_GC_FAILED, first_failure_event=False)
        return test_kubelet.events()

    full = RuntimeError("disk full")
    assert [collect(full), collect(full), collect(None), collect(full)] == [
        [],
        ["Warning ImageGCFailed disk full"],
        [],
        [],
    ]
