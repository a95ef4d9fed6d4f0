"""Warn in an event of the node while there is still time to approve the request for the next certificate.

DIVERGES (safer): warning events report that the node's certificate is about to expire and that no new one is available.
Go: k8s.io/client-go/util/certificate/certificate_manager.go, (*manager).rotateCerts: the Go kubelet only logs that a
request was not signed.
Why: a node with an expired certificate is lost to the cluster, and nobody reads the log of a working node.
Test: expiry_test.py:test_what_the_warning_says, expiry_test.py:test_failures_count_as_well
"""

from __future__ import annotations

import datetime

from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.client_go.tools import record
from pkg.client_go.util import certificate

# This is the reason of the event.
CERTIFICATE_EXPIRING = "CertificateExpiring"

# All times are in seconds. Warnings begin this long before the expiry, or at this fraction of a shorter lifetime.
_WARN_BEFORE = 30 * 86400.0
_WARN_LIFE_LEFT = 0.25
# A request may be pending for this long without a warning, which is also the minimum time between two warnings. For
# short lifetimes it is this fraction of the lifetime.
_PATIENCE = 600.0
_PATIENCE_OF_LIFE = 0.01
# This is the time between two warnings after the certificate has expired, or if there never was one.
_REPEAT_AFTER_END = 3600.0


class ExpiryWarning:
    """Observe a certificate manager, and warn when the renewal makes no progress. Implement certificate.Observer.

    The next warning comes when half of the remaining time has passed since the last one, so warnings become more
    frequent towards the expiry.
    """

    def __init__(
        self,
        what: str,
        node_ref: v1.ObjectReference,
        recorder: record.EventRecorder | None = None,
        clock: clock_.Clock | None = None,
    ) -> None:
        """Create a warning. `what` is "client" or "serving"."""
        # The recorder needs the client, which needs the certificate, so the recorder may be set later and by any
        # thread.
        self.recorder = recorder
        self._what = what
        self._node_ref = node_ref
        self._clock = clock or clock_.RealClock()
        # Only the manager's thread uses the following fields.
        self._since: datetime.datetime | None = None
        self._next: datetime.datetime | None = None

    def waiting(self, current: certificate.Certificate | None, request_name: str) -> None:
        """Warn that nobody has approved the request, if a warning is due."""
        self._warn(current, f"certificate signing request {request_name} waits for approval")

    def failed(self, current: certificate.Certificate | None, err: Exception) -> None:
        """Warn that requesting a certificate failed, if a warning is due."""
        self._warn(current, f"the last attempt to get a new one failed: {err}")

    def renewed(self) -> None:
        """Forget the pending renewal."""
        self._since = self._next = None

    def _warn(self, current: certificate.Certificate | None, why: str) -> None:
        now = self._clock.now()
        if self._since is None:
            self._since = now
        recorder = self.recorder
        if recorder is None or not self._due(now, current):
            return
        message = f"{self._state(now, current)}, and {why}"
        klog.warning_s(message)
        recorder.event(self._node_ref, v1.EVENT_TYPE_WARNING, CERTIFICATE_EXPIRING, message)
        self._next = now + datetime.timedelta(seconds=_pause(now, current))

    def _due(self, now: datetime.datetime, current: certificate.Certificate | None) -> bool:
        assert self._since is not None
        if self._next is not None:
            return now >= self._next
        if (now - self._since).total_seconds() < _patience(current):
            return False
        return current is None or _left(now, current) < min(_WARN_BEFORE, _life(current) * _WARN_LIFE_LEFT)

    def _state(self, now: datetime.datetime, current: certificate.Certificate | None) -> str:
        if current is None:
            return f"This node has no {self._what} certificate"
        left = _left(now, current)
        when = f"expires in {_duration(left)}" if left > 0 else f"expired {_duration(-left)} ago"
        end = current.not_after.strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"The {self._what} certificate of this node {when}, at {end}"


def _life(cert: certificate.Certificate) -> float:
    return (cert.not_after - cert.not_before).total_seconds()


def _left(now: datetime.datetime, cert: certificate.Certificate) -> float:
    return (cert.not_after - now).total_seconds()


def _patience(current: certificate.Certificate | None) -> float:
    return _PATIENCE if current is None else min(_PATIENCE, _life(current) * _PATIENCE_OF_LIFE)


def _pause(now: datetime.datetime, current: certificate.Certificate | None) -> float:
    if current is None or _left(now, current) <= 0:
        return _REPEAT_AFTER_END
    return max(_left(now, current) / 2, _patience(current))


def _duration(seconds: float) -> str:
    """Return the duration in its two largest units: "3d4h", "2h5m", "1m30s"."""
    days, rest = divmod(int(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (secs, "s")]
    first = next((i for i, (amount, _) in enumerate(parts) if amount), 3)
    return "".join(f"{amount}{unit}" for amount, unit in parts[first : first + 2] if amount) or "0s"
