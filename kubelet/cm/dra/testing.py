"""Define a DRA driver whose responses and faults the test sets, and which records its calls."""

from __future__ import annotations

import threading
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from kubelet.apis.dra.v1 import api_pb2 as drapb
from kubelet.apis.dra.v1 import api_pb2_grpc as drapb_grpc
from kubelet.apis.dra.v1beta1 import api_pb2 as drapbv1beta1
from kubelet.apis.dra.v1beta1 import api_pb2_grpc as drapbv1beta1_grpc
from kubelet.apis.dra_health.v1alpha1 import api_pb2 as drahealth
from kubelet.apis.dra_health.v1alpha1 import api_pb2_grpc as drahealth_grpc

_Unprepared = drapb.NodeUnprepareResourcesResponse


class FakeDRADriver:
    """Serve at `endpoint` while the context is entered. Tests may change the attributes meanwhile."""

    def __init__(self, endpoint: Path, services: tuple[str, ...] = ("v1", "v1beta1"), health: bool = False) -> None:
        self.endpoint = str(endpoint)
        # `calls` holds the method and the UIDs of the claims of each call.
        self.calls: list[tuple[str, list[str]]] = []
        # `devices` maps a claim's UID to its devices, `errors` to the error that replaces them. The response leaves out
        # the claims in `skipped`.
        self.devices: dict[str, list[drapb.Device]] = {}
        self.errors: dict[str, str] = {}
        self.skipped: set[str] = set()
        # The response also contains results for these UIDs, which were not requested.
        self.unasked: set[str] = set()
        # If set, calls fail with `failure`, and wait for `gate`.
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.gate: threading.Event | None = None
        self.reports: list[list[drahealth.DeviceHealth]] = []
        self.news = threading.Condition()  # This lock guards `reports` and `ended`.
        self.ended = False
        self._services = services
        self._health = health

    def __enter__(self) -> Self:
        Path(self.endpoint).unlink(missing_ok=True)
        self.ended = False
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        if "v1" in self._services:
            drapb_grpc.add_DRAPluginServicer_to_server(_V1(self), self._server)
        if "v1beta1" in self._services:
            drapbv1beta1_grpc.add_DRAPluginServicer_to_server(_V1Beta1(self), self._server)
        if self._health:
            drahealth_grpc.add_DRAResourceHealthServicer_to_server(_Health(self), self._server)
        self._server.add_insecure_port(f"unix://{self.endpoint}")
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        with self.news:
            self.ended = True
            self.news.notify_all()
        if self.gate is not None:
            self.gate.set()
        self._server.stop(grace=None).wait()

    def report(self, *devices: drahealth.DeviceHealth) -> None:
        """Report the health of all devices."""
        with self.news:
            self.reports.append(list(devices))
            self.news.notify_all()

    def asked(self, method: str) -> list[list[str]]:
        """List the claims of each call of a method."""
        return [uids for name, uids in self.calls if name == method]

    def prepare(self, request: Any, context: Any) -> drapb.NodePrepareResourcesResponse:
        answer = drapb.NodePrepareResourcesResponse()
        for uid in self._answered("prepare", request, context):
            result = drapb.NodePrepareResourceResponse(error=self.errors.get(uid, ""))
            if not result.error:
                result.devices.extend(self.devices.get(uid, []))
            answer.claims[uid].CopyFrom(result)
        return answer

    def unprepare(self, request: Any, context: Any) -> drapb.NodeUnprepareResourcesResponse:
        answer = _Unprepared()
        for uid in self._answered("unprepare", request, context):
            answer.claims[uid].error = self.errors.get(uid, "")
        return answer

    def _answered(self, method: str, request: Any, context: Any) -> list[str]:
        uids = [claim.uid for claim in request.claims]
        self.calls.append((method, uids))
        if self.gate is not None:
            self.gate.wait(30)
        if self.failure is not None:
            context.abort(*self.failure)
        return [*(uid for uid in uids if uid not in self.skipped), *self.unasked]


class _V1(drapb_grpc.DRAPluginServicer):
    def __init__(self, driver: FakeDRADriver) -> None:
        self._driver = driver

    def NodePrepareResources(self, request: Any, context: Any) -> Any:
        return self._driver.prepare(request, context)

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
        return self._driver.unprepare(request, context)


class _V1Beta1(drapbv1beta1_grpc.DRAPluginServicer):
    def __init__(self, driver: FakeDRADriver) -> None:
        self._driver = driver

    def NodePrepareResources(self, request: Any, context: Any) -> Any:
        answer = self._driver.prepare(request, context).SerializeToString()
        return drapbv1beta1.NodePrepareResourcesResponse.FromString(answer)

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
        answer = self._driver.unprepare(request, context).SerializeToString()
        return drapbv1beta1.NodeUnprepareResourcesResponse.FromString(answer)


class _Health(drahealth_grpc.DRAResourceHealthServicer):
    def __init__(self, driver: FakeDRADriver) -> None:
        self._driver = driver

    def NodeWatchResources(self, request: Any, context: Any) -> Any:
        sent, driver = 0, self._driver
        while context.is_active():
            with driver.news:
                driver.news.wait(0.1)
                if driver.ended:
                    return
                new, sent = driver.reports[sent:], len(driver.reports)
            for devices in new:
                yield drahealth.NodeWatchResourcesResponse(devices=devices)
