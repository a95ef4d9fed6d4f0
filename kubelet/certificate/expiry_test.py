"""Test the warnings about certificates that expire before the next one is approved."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from kubelet.certificate.expiry import ExpiryWarning
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.clock import testing as clocktesting
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.client_go.util import certificate
from pkg.client_go.util.certificate import testing

START = testing.now()
AUTHORITY = testing.Authority()
NODE_REF = v1.ObjectReference(kind="Node", name="n", uid=types.UID("n"))
YEAR, DAY, HOUR, MINUTE = 365 * 86400.0, 86400.0, 3600.0, 60.0


class Rig:
    def __init__(self, life: float, left: float) -> None:
        self.clock = clocktesting.FakeClock(START)
        self.recorder = FakeRecorder(1000)
        self.warning = ExpiryWarning("client", NODE_REF, self.recorder, self.clock)
        end = START + timedelta(seconds=left)
        self.cert: certificate.Certificate | None = AUTHORITY.pair(
            "n", not_before=end - timedelta(seconds=life), not_after=end
        )

    def run(self, seconds: float, step: float) -> list[float]:
        """Let a request wait for this time, and return the remaining seconds at each warning."""
        warnings = []
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.warning.waiting(self.cert, "csr-1")
            if self.recorder.drain():
                warnings.append(self.cert.not_after.timestamp() - self.clock.now().timestamp() if self.cert else 0.0)
            self.clock.step(step)
        return warnings


@pytest.mark.parametrize(
    ("life", "left", "first"),
    [
        pytest.param(YEAR, 90 * DAY, 30 * DAY, id="a year: 30 days before"),
        pytest.param(10 * DAY, 3 * DAY, 2.5 * DAY, id="ten days: at a quarter"),
        pytest.param(HOUR, 20 * MINUTE, 15 * MINUTE, id="an hour: at a quarter"),
        pytest.param(MINUTE, 20, 15, id="a minute: at a quarter"),
    ],
)
def test_the_first_warning_comes_well_before_the_end_and_then_ever_sooner(
    life: float, left: float, first: float
) -> None:
    rig = Rig(life, left)
    warnings = rig.run(left - 1, left / 5000)
    assert warnings[0] == pytest.approx(first, rel=0.02)
    gaps = [before - after for before, after in itertools.pairwise(warnings)]
    assert gaps == sorted(gaps, reverse=True) or max(gaps[1:]) <= gaps[0]
    assert 4 <= len(warnings) <= 20


def test_a_request_that_is_approved_soon_is_not_worth_a_warning() -> None:
    rig = Rig(100 * DAY, 10 * DAY)
    assert rig.run(9 * MINUTE, 1) == []
    rig.warning.renewed()
    assert rig.run(9 * MINUTE, 1) == [], "a new request has its own patience"
    assert len(rig.run(2 * MINUTE, 1)) == 1


def test_what_the_warning_says() -> None:
    rig = Rig(100 * DAY, 10 * DAY)
    rig.warning.waiting(rig.cert, "csr-1")
    rig.clock.step(HOUR)
    rig.warning.waiting(rig.cert, "csr-1")
    end = (START + timedelta(days=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    (event,) = rig.recorder.drain()
    assert event.startswith("Warning CertificateExpiring ") and event.endswith(
        f"The client certificate of this node expires in 9d23h, at {end}, "
        "and certificate signing request csr-1 waits for approval"
    )


def test_failures_count_as_well() -> None:
    rig = Rig(100 * DAY, 10 * DAY)
    rig.warning.waiting(rig.cert, "csr-1")
    rig.clock.step(HOUR)
    rig.warning.failed(rig.cert, ValueError("certificate signing request is denied"))
    (event,) = rig.recorder.drain()
    assert event.endswith("and the last attempt to get a new one failed: certificate signing request is denied")


def test_after_the_end_it_is_repeated_each_hour() -> None:
    rig = Rig(100 * DAY, 0)
    rig.clock.step(DAY)
    assert len(rig.run(10 * HOUR, MINUTE)) == 10
    rig.clock.step(HOUR)
    rig.warning.waiting(rig.cert, "csr-1")
    assert "The client certificate of this node expired 1d11h ago, at " in rig.recorder.drain()[0]


def test_a_node_that_never_had_a_certificate() -> None:
    rig = Rig(DAY, DAY)
    rig.cert = None
    assert len(rig.run(3 * HOUR, MINUTE)) == 3
    rig.clock.step(HOUR)
    rig.warning.waiting(None, "csr-1")
    assert "This node has no client certificate, and certificate signing request csr-1 waits" in rig.recorder.drain()[0]


def test_the_recorder_may_come_later() -> None:
    rig = Rig(100 * DAY, 10 * DAY)
    rig.warning.recorder = None
    assert rig.run(HOUR, MINUTE) == []
    rig.warning.recorder = rig.recorder
    assert len(rig.run(MINUTE, MINUTE)) == 1
