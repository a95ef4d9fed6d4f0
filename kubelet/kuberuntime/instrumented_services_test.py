"""Test the measurement of calls to the runtime.

Go: pkg/kubelet/kuberuntime/instrumented_services_test.go
"""

from __future__ import annotations

import inspect

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import metrics
from kubelet.cri import apis as internalapi
from kubelet.cri import remote, testing
from kubelet.kuberuntime import instrumented_services
from pkg import golang

CTX = golang.background()


def _value(name: str, **labels: str) -> float:
    metrics.register()
    return metrics.get_gather().get_sample_value(name, labels) or 0.0


def _error(message: str) -> remote.RemoteError:
    return remote.RemoteError(grpc.StatusCode.UNKNOWN, message)


def test_operations_and_errors_are_counted() -> None:
    runtime = testing.FakeRuntimeService()
    service = instrumented_services.InstrumentedRuntimeService(runtime)
    before = _value("kubelet_runtime_operations_total", operation_type="version")
    errors_before = _value("kubelet_runtime_operations_errors_total", operation_type="version")
    timed_before = _value("kubelet_runtime_operations_duration_seconds_count", operation_type="version")
    service.version(CTX, "")
    runtime.inject_error("Version", _error("down"))
    with pytest.raises(remote.RemoteError, match="down"):
        service.version(CTX, "")
    assert _value("kubelet_runtime_operations_total", operation_type="version") == before + 2
    assert _value("kubelet_runtime_operations_errors_total", operation_type="version") == errors_before + 1
    after = _value("kubelet_runtime_operations_duration_seconds_count", operation_type="version")
    assert after == timed_before + 2


def test_sandboxes_are_counted_by_runtime_handler() -> None:
    runtime = testing.FakeRuntimeService()
    runtime.inject_error("RunPodSandbox", _error("no network"))
    service = instrumented_services.InstrumentedRuntimeService(runtime)
    before = _value("kubelet_run_podsandbox_errors_total", runtime_handler="kata")
    config = runtimeapi.PodSandboxConfig(metadata=runtimeapi.PodSandboxMetadata(name="a", uid="b"))
    with pytest.raises(remote.RemoteError, match="no network"):
        service.run_pod_sandbox(CTX, config, "kata")
    service.run_pod_sandbox(CTX, config, "kata")
    assert _value("kubelet_run_podsandbox_errors_total", runtime_handler="kata") == before + 1
    assert _value("kubelet_run_podsandbox_duration_seconds_count", runtime_handler="kata") >= 2


def test_image_operations_are_counted() -> None:
    service = instrumented_services.InstrumentedImageManagerService(testing.FakeImageService())
    before = _value("kubelet_runtime_operations_total", operation_type="list_images")
    assert service.list_images(CTX, None) == []
    assert _value("kubelet_runtime_operations_total", operation_type="list_images") == before + 1


def test_failed_image_fs_info_is_an_error() -> None:
    images = testing.FakeImageService()
    images.inject_error("ImageFsInfo", remote.RemoteError(grpc.StatusCode.UNAVAILABLE, "is away"))
    service = instrumented_services.InstrumentedImageManagerService(images)
    with pytest.raises(remote.RemoteError, match="is away"):
        service.image_fs_info(CTX)


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [
        (internalapi.RuntimeService, instrumented_services.InstrumentedRuntimeService),
        (internalapi.ImageManagerService, instrumented_services.InstrumentedImageManagerService),
    ],
)
def test_every_call_is_wrapped(protocol: type, implementation: type) -> None:
    names = {name for name, member in inspect.getmembers(protocol, inspect.isfunction) if name[0] != "_"}
    assert names == {name for name in vars(implementation) if name[0] != "_"}
