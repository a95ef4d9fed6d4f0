"""Test the active deadline."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubelet import active_deadline
from kubelet.status.testing import FakePodStatusProvider
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as clocktesting
from pkg.client_go.tools.record.testing import FakeRecorder


@pytest.mark.parametrize(
    ("deadline", "has_started", "expected"),
    [
        pytest.param(30, True, True, id="past"),
        pytest.param(60, True, True, id="just reached"),
        pytest.param(120, True, False, id="to come"),
        pytest.param(0, True, True, id="at once"),
        pytest.param(None, True, False, id="none"),
        pytest.param(120, False, False, id="not started"),
        pytest.param(None, False, False, id="none, and not started"),
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_active_deadline_handler(deadline: int | None, has_started: bool, expected: bool, is_known: bool) -> None:
    clock = clocktesting.FakeClock()
    pod = v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("uid"), name="pod", namespace="ns"))
    pod.spec.active_deadline_seconds = deadline
    start = clock.now() - timedelta(minutes=1) if has_started else None
    provider, recorder = FakePodStatusProvider(), FakeRecorder(1)
    if is_known:
        # The status that came with the pod is older than the kubelet's own.
        pod.status.start_time = clock.now() - timedelta(days=1)
        provider.statuses[types.UID("uid")] = v1.PodStatus(start_time=start)
    else:
        pod.status.start_time = start
    handler = active_deadline.ActiveDeadlineHandler(provider, recorder, clock)

    assert handler.should_sync(pod) is expected
    assert recorder.drain() == []
    response = handler.should_evict(pod)
    assert response.evict is expected
    if not expected:
        assert recorder.drain() == []
        return
    assert (response.reason, response.message) == (active_deadline.REASON, active_deadline.MESSAGE)
    assert recorder.drain() == [f"Normal DeadlineExceeded {active_deadline.MESSAGE}"]
