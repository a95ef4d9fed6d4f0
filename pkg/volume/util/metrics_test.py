"""Test the metrics of operations on volumes."""

from __future__ import annotations

import grpc
import pytest

from pkg.api.core import v1
from pkg.component_base.metrics import testing as metricstesting
from pkg.volume import util
from pkg.volume.plugins import Spec
from pkg.volume.util import metrics
from pkg.volume.util import types as volumetypes


class RpcError(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


@pytest.mark.parametrize(
    ("err", "code"),
    [
        (None, "OK"),
        (ValueError("x"), "unknown-non-grpc"),
        (RpcError(grpc.StatusCode.NOT_FOUND), "NotFound"),
        (RpcError(grpc.StatusCode.CANCELLED), "Canceled"),
        (RpcError(grpc.StatusCode.DEADLINE_EXCEEDED), "DeadlineExceeded"),
    ],
)
def test_error_code(err: Exception | None, code: str) -> None:
    assert metrics.get_error_code(err) == code


def test_plugin_is_named_with_its_driver() -> None:
    inline = Spec(volume=v1.Volume(name="v", csi=v1.CSIVolumeSource(driver="d")))
    source = v1.CSIPersistentVolumeSource(driver="e", volume_handle="h")
    persistent = Spec(persistent_volume=v1.PersistentVolume(spec=v1.PersistentVolumeSpec(csi=source)))
    name = util.get_full_qualified_plugin_name_for_volume
    assert [name("p", spec) for spec in (None, Spec(), inline, persistent)] == ["p", "p", "p:d", "p:e"]


def test_operations_are_counted_by_so_many_drivers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of names is limited, because a pod may name any driver and each metric is kept forever."""
    monkeypatch.setattr(metrics, "MAX_PLUGIN_NAMES", 2)
    monkeypatch.setattr(metrics, "_plugin_names", set())
    for driver in ("a", "b", "c", "d", "a"):
        util.operation_complete_hook(f"bounded:{driver}", "o")(volumetypes.CompleteFuncParam(None, migrated=False))
        util.record_operation_latency_metric(f"bounded:{driver}", "o", 1.0)
    families = (
        (metrics.STORAGE_OPERATION_METRIC, "volume_plugin"),
        (metrics.STORAGE_OPERATION_END_TO_END_LATENCY_METRIC, "plugin_name"),
    )
    for metric, label in families:
        (family,) = metric.collect()
        counts = {s.labels[label]: s.value for s in family.samples if s.name.endswith("_count")}
        found = {name: count for name, count in counts.items() if name.startswith("bounded")}
        assert found == {"bounded:a": 2, "bounded:b": 1, "bounded": 2}


@pytest.mark.parametrize(("err", "status"), [(None, "success"), (ValueError("x"), "fail-unknown")])
def test_operation_is_counted_once_it_has_ended(err: Exception | None, status: str) -> None:
    counted = metrics.STORAGE_OPERATION_METRIC.labels("test-plugin", "test-operation", status, "false")
    hook = util.operation_complete_hook("test-plugin", "test-operation")
    with metricstesting.moves(counted):
        hook(volumetypes.CompleteFuncParam(err, migrated=False))
