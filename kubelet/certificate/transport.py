"""Let clients use the current certificate.

Go: pkg/kubelet/certificate/transport.go
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.util import wait
from pkg.client_go.util import certificate

# A kubelet that uses certificates only to serve does not load the API client.
if TYPE_CHECKING:
    from pkg.client_go import rest

# This is the time between two checks of the manager, in seconds.
_PERIOD = 10.0


def _exit_process(code: int) -> object:
    klog.flush()
    os._exit(code)


def update_transport(
    ctx: golang.Context,
    client_config: rest.Config,
    client_certificate_manager: certificate.Manager | None,
    exit_after: float,
    *,
    period: float = _PERIOD,
    clock: clock_.Clock | None = None,
    exit_process: Callable[[int], object] = _exit_process,
) -> Callable[[], None]:
    """Make clients of the configuration present the manager's certificate.

    Return a function that closes all connections if the API server has not responded. It is meant for repeated
    heartbeat failures: the server behind a connection may be dead although the connection itself is alive.

    The caller must call this function before it creates a client from the configuration. A thread checks the manager
    until ctx ends. If exit_after, in seconds, is above 0, the process exits when there has been no valid certificate
    for that time while the API server responds: the program that restarts the process, or the bootstrap kubeconfig, may
    have better credentials. Raise ValueError if the configuration has its own source of certificates.

    DIVERGES (fault of Go): when the client certificate changes, running requests and watches continue, and only later
    requests use new connections.
    Go: pkg/kubelet/certificate/transport.go, addCertRotation: the Go kubelet closes all connections, whatever they are
    used for.
    Why: an interrupted request counts as failed although the server may have executed it.
    Test: transport_test.py:test_rotation_while_a_watch_runs
    """
    from pkg.client_go import rest

    if client_config.get_cert is not None or client_config.connections is not None:
        raise ValueError("there is already a transport or dialer configured")
    connections = rest.ConnectionTracker()
    client_config.connections = connections
    if client_certificate_manager is not None:
        client_config.get_cert = client_certificate_manager.current
        tls = client_config.tls_client_config
        tls.cert_data = tls.key_data = b""
        tls.cert_file = tls.key_file = ""
        rotation = CertRotation(client_certificate_manager, exit_after, clock or clock_.RealClock(), exit_process)
        golang.go(wait.until, rotation.check, period, ctx, clock, name="certificate-transport")
    return connections.close_all_if_failing


class CertRotation:
    """Check the manager periodically, on one thread.

    Go: addCertRotation
    """

    def __init__(
        self,
        manager: certificate.Manager,
        exit_after: float,
        clock: clock_.Clock,
        exit_process: Callable[[int], object],
    ) -> None:
        self._manager = manager
        self._exit_after = exit_after
        self._clock = clock
        self._exit_process = exit_process
        # The time is monotonic, because a clock that is set forward must not end the process.
        self._last_cert_available = clock.monotonic()
        self._last_cert = manager.current()

    def check(self) -> None:
        """Log a new certificate, and exit the process if there has been none for too long."""
        current = self._manager.current()
        if self._exit_after > 0:
            self._exit_without_certificate(current)
        if current is None or current is self._last_cert:
            return
        self._last_cert = current
        klog.info_s(
            "Certificate rotation detected, new client connections start using new credentials",
            expiration=current.not_after,
        )

    def _exit_without_certificate(self, current: certificate.Certificate | None) -> None:
        now = self._clock.monotonic()
        # The manager never returns an expired certificate.
        if current is not None:
            self._last_cert_available = now
            return
        without = now - self._last_cert_available
        if without <= self._exit_after:
            return
        facts = {
            # time of day: the log shows this time.
            "lastCertificateAvailabilityTime": self._clock.now() - datetime.timedelta(seconds=without),
            "shutdownThreshold": f"{self._exit_after:g}s",
        }
        if self._manager.server_healthy():
            message = "No valid client certificate is found and the server is responsive, exiting."
            klog.error_s(None, message, **facts)
            self._exit_process(1)
        else:
            klog.error_s(
                None,
                "No valid client certificate is found but the server is not responsive. "
                "A restart may be necessary to retrieve new initial credentials.",
                **facts,
            )
