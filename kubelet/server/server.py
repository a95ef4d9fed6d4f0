"""The read-only server: health, pods and metrics, for whoever can reach the port.

Go: pkg/kubelet/server/server.go
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Protocol

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.runtime import codec
from pkg.apiserver.server import healthz
from pkg.component_base.metrics import legacyregistry

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
JSON_CONTENT_TYPE = "application/json"
# The least time, in seconds, without an iteration after which the sync loop counts as stuck.
MIN_SYNC_LOOP_DURATION = 300.0


class HostInterface(Protocol):
    """What the server asks of the kubelet. Called from the server's threads."""

    def get_pods(self) -> list[v1.Pod]: ...

    def get_running_pods(self, ctx: golang.Context) -> list[v1.Pod]: ...

    def latest_loop_entry_time(self) -> datetime.datetime | None: ...

    resync_interval: float


class ReadOnlyServer(healthz.HealthzServer):
    """Serves /healthz, /pods, /runningpods and /metrics without asking who is there.

    Binding happens in the constructor, which raises OSError. `serve` runs until `stop`.
    """

    def __init__(self, ctx: golang.Context, host: HostInterface, address: str, port: int) -> None:
        self._ctx = ctx
        self._host = host
        super().__init__(address, port, {"syncloop": sync_loop_health_check(host)})

    def respond(self, path: str, query: dict[str, list[str]]) -> healthz.Response:
        match path.rstrip("/"):
            case "/pods":
                return _pod_list(self._host.get_pods())
            case "/runningpods":
                return _pod_list(self._host.get_running_pods(self._ctx))
            case "/metrics":
                return healthz.Response(200, legacyregistry.expose(), METRICS_CONTENT_TYPE)
        return super().respond(path, query)


def _pod_list(pods: list[v1.Pod]) -> healthz.Response:
    body = codec.encode_json(v1.PodList(api_version="v1", kind="PodList", items=pods))
    return healthz.Response(200, body, JSON_CONTENT_TYPE)


def sync_loop_health_check(host: HostInterface, clock: clocklib.Clock | None = None) -> Callable[[], None]:
    """A check that fails when the sync loop has not come round for twice the resync interval, at least 5 minutes."""
    clock = clock or clocklib.RealClock()

    def check() -> None:
        entered = host.latest_loop_entry_time()
        if entered is None:
            return
        allowed = max(host.resync_interval * 2, MIN_SYNC_LOOP_DURATION)
        if (clock.steady() - entered).total_seconds() > allowed:
            raise RuntimeError("sync Loop took longer than expected")

    return check
