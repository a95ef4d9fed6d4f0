"""Collect the current problems of the container runtime from the parts that detect them.

Go: pkg/kubelet/runtime.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kubelet import container as kubecontainer
from kubelet.errors import NetworkUnknownError, NotReadyError
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.util import errors as utilerrors

# A HealthCheckFunc raises an exception that describes the problem. It must be quick and must not call other programs,
# least of all the runtime.
HealthCheckFunc = Callable[[], None]


class _HealthCheck(NamedTuple):
    name: str
    fn: HealthCheckFunc


class RuntimeState:
    """Hold the latest state of the runtime. All methods are thread-safe."""

    def __init__(self, runtime_sync_threshold: float, clock: clocklib.Clock | None = None) -> None:
        """Create the state. The runtime counts as down after `runtime_sync_threshold` seconds without a response."""
        self._clock = clock or clocklib.RealClock()
        self._base_runtime_sync_threshold = runtime_sync_threshold
        self._lock = threading.Lock()  # The lock guards the fields below.
        # The runtime last responded at this time of the monotonic clock; None until then.
        self._last_base_runtime_sync: float | None = None
        self._network_error: Exception | None = NetworkUnknownError()
        self._runtime_error: Exception | None = None
        self._storage_error: Exception | None = None
        self._cidr = ""
        self._health_checks: list[_HealthCheck] = []
        self._rt_handlers: list[kubecontainer.RuntimeHandler] = []
        self._rt_features: kubecontainer.RuntimeFeatures | None = None

    def add_health_check(self, name: str, fn: HealthCheckFunc) -> None:
        with self._lock:
            self._health_checks.append(_HealthCheck(name, fn))

    def set_runtime_sync(self, t: float) -> None:
        """Record that the runtime responded at the monotonic time t."""
        with self._lock:
            self._last_base_runtime_sync = t

    def set_network_state(self, err: Exception | None) -> None:
        with self._lock:
            self._network_error = err

    def set_runtime_state(self, err: Exception | None) -> None:
        with self._lock:
            self._runtime_error = err

    def set_runtime_handlers(self, rt_handlers: Iterable[kubecontainer.RuntimeHandler]) -> None:
        # Sort the handlers, so that an unchanged set does not look like a change of the node's status.
        handlers = sorted(rt_handlers, key=lambda handler: handler.name)
        with self._lock:
            self._rt_handlers = handlers

    def runtime_handlers(self) -> list[kubecontainer.RuntimeHandler]:
        """Return the handlers, sorted by name. The caller must not modify the list."""
        with self._lock:
            return self._rt_handlers

    def set_runtime_features(self, features: kubecontainer.RuntimeFeatures | None) -> None:
        with self._lock:
            self._rt_features = features

    def runtime_features(self) -> kubecontainer.RuntimeFeatures | None:
        with self._lock:
            return self._rt_features

    def set_storage_state(self, err: Exception | None) -> None:
        with self._lock:
            self._storage_error = err

    def set_pod_cidr(self, cidr: str) -> None:
        with self._lock:
            self._cidr = cidr

    def pod_cidr(self) -> str:
        with self._lock:
            return self._cidr

    def runtime_errors(self) -> utilerrors.Aggregate | None:
        """Return why no pod can be synced now: the runtime is silent or reports errors, or a health check fails."""
        with self._lock:
            last_sync = self._last_base_runtime_sync
            health_checks = list(self._health_checks)
            runtime_error = self._runtime_error
        errs: list[Exception] = []
        if last_sync is None:
            errs.append(NotReadyError("container runtime status check may not have completed yet"))
        elif last_sync + self._base_runtime_sync_threshold <= self._clock.monotonic():
            errs.append(NotReadyError("container runtime is down"))
        for check in health_checks:
            try:
                check.fn()
            except Exception as err:  # Any exception of a check is the reason why it is not healthy.
                errs.append(NotReadyError(f"{check.name} is not healthy: {err}"))
        if runtime_error is not None:
            errs.append(runtime_error)
        return utilerrors.new_aggregate(errs)

    def network_errors(self) -> utilerrors.Aggregate | None:
        """Return why pods that need their own network cannot start now."""
        with self._lock:
            return utilerrors.new_aggregate([self._network_error])

    def storage_errors(self) -> utilerrors.Aggregate | None:
        """Return why the node's storage is not usable now."""
        with self._lock:
            return utilerrors.new_aggregate([self._storage_error])
