"""Call a resource's plugin for the device manager.

Go: pkg/kubelet/cm/devicemanager/endpoint.go
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from kubelet.apis.deviceplugin import v1beta1 as api
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.cm.devicemanager.plugin import v1beta1 as plugin
from kubelet.cm.devicemanager.types import ENDPOINT_STOP_GRACE_PERIOD

if TYPE_CHECKING:
    from pkg.apimachinery import clock as clocklib

# These timeouts are in seconds.
# DIVERGES (safer): a pod fails if its plugin does not allocate within 120 seconds, or state its preference within ten.
# Go: pkg/kubelet/cm/devicemanager/endpoint.go, (*endpointImpl).allocate: there is no timeout.
# Why: a plugin that hangs would keep all other pods from being admitted.
# Test: plugin/v1beta1/server_test.py:test_plugin_that_hangs_in_allocate
PREFERRED_ALLOCATION_TIMEOUT = 10.0
ALLOCATE_TIMEOUT = 120.0


class EndpointStoppedError(Exception):
    """Signal that the plugin is gone."""

    def __init__(self, resource_name: str) -> None:
        super().__init__(f"endpoint {resource_name} has been stopped")


class Endpoint(Protocol):
    """Define the calls to a plugin.

    All methods are thread-safe. The calls raise EndpointStoppedError, grpcstatus.StatusError or golang.ThreadError.
    """

    def get_preferred_allocation(
        self, available: Iterable[str], must_include: Iterable[str], size: int
    ) -> Future[pluginapi.PreferredAllocationResponse]: ...

    def allocate(self, devs: Iterable[str]) -> Future[pluginapi.AllocateResponse]: ...

    def pre_start_container(self, devs: Iterable[str]) -> pluginapi.PreStartContainerResponse: ...

    def set_stop_time(self, at: float) -> None:
        """Record that the plugin disconnected at `at`, a time of the monotonic clock."""
        ...

    def is_stopped(self) -> bool: ...

    def stop_grace_period_expired(self) -> bool:
        """Report whether the plugin has been gone so long that it is no longer expected."""
        ...


class EndpointImpl:
    """Implement Endpoint.

    Go: endpointImpl
    """

    def __init__(self, resource_name: str, device_plugin: plugin.DevicePlugin | None, clock: clocklib.Clock) -> None:
        """Represent the plugin; None stands for an earlier kubelet's plugin that has not returned yet."""
        self._resource_name = resource_name
        self._plugin = device_plugin
        self._clock = clock
        self._lock = threading.Lock()  # This lock guards _stop_time.
        self._stop_time: float | None = None if device_plugin is not None else clock.monotonic()

    def is_stopped(self) -> bool:
        with self._lock:
            return self._stop_time is not None

    def stop_grace_period_expired(self) -> bool:
        with self._lock:
            gone = self._stop_time
        return gone is not None and self._clock.monotonic() - gone > ENDPOINT_STOP_GRACE_PERIOD

    def set_stop_time(self, at: float) -> None:
        with self._lock:
            self._stop_time = at

    def get_preferred_allocation(
        self, available: Iterable[str], must_include: Iterable[str], size: int
    ) -> Future[pluginapi.PreferredAllocationResponse]:
        request = pluginapi.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=sorted(available), must_include_deviceIDs=sorted(must_include), allocation_size=size
        )
        device_plugin = self._running_plugin()
        return device_plugin.begin(device_plugin.api.GetPreferredAllocation, request, PREFERRED_ALLOCATION_TIMEOUT)

    def allocate(self, devs: Iterable[str]) -> Future[pluginapi.AllocateResponse]:
        request = pluginapi.AllocateRequest()
        request.container_requests.add(devices_ids=sorted(devs))
        device_plugin = self._running_plugin()
        return device_plugin.begin(device_plugin.api.Allocate, request, ALLOCATE_TIMEOUT)

    def pre_start_container(self, devs: Iterable[str]) -> pluginapi.PreStartContainerResponse:
        request = pluginapi.PreStartContainerRequest(devices_ids=sorted(devs))
        method = self._running_plugin().api.PreStartContainer
        return plugin.call(method, request, api.KUBELET_PRE_START_CONTAINER_RPC_TIMEOUT, self._resource_name)

    def _running_plugin(self) -> plugin.DevicePlugin:
        if self._plugin is None or self.is_stopped():
            raise EndpointStoppedError(self._resource_name)
        return self._plugin
