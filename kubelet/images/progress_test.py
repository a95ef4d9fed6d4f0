"""Test the reports about long image pulls."""

from __future__ import annotations

import pytest

from kubelet.images import progress
from kubelet.images.progress import PullProgress
from pkg import golang
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util.runtime.testing import failures
from pkg.golang import testing as golangtesting


class _ImageService:
    """Represent a service that these tests never call."""


@failures
def test_report_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    clock = FakeClock()
    pulls = PullProgress(_ImageService(), clock)  # type: ignore[arg-type]
    reports: golang.Channel[None] = golang.Channel(10)

    def report(used_before: int | None) -> int | None:
        reports.send(None)
        raise err

    monkeypatch.setattr(pulls, "report", report)
    with golang.ThreadGroup() as group, pulls.watch("image", "ns/pod"):
        for _ in range(2):
            clock.wait_for_waiters()
            clock.step(progress.REPORT_PERIOD)
            assert reports.recv(30)[1]
    assert group.join(30) == []


def test_image_is_pulled_without_a_thread_to_tell_of_it() -> None:
    pulls = PullProgress(_ImageService(), FakeClock())  # type: ignore[arg-type]
    with golangtesting.out_of_threads(), pulls.watch("image", "ns/pod"):
        pass
    with golang.ThreadGroup() as group, pulls.watch("image", "ns/pod"):
        assert [thread.name for thread in group.alive()] == ["image-pull-progress"]
    assert group.join(30) == []
