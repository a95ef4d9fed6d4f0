"""Test QoS classes.

Go: pkg/apis/core/v1/helper/qos/qos_test.go
"""

from __future__ import annotations

import pytest

from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apis.core.v1.helper import qos


def resources(requests: str, limits: str) -> v1.ResourceRequirements:
    """Return resources for texts of the form "cpu memory", where "-" means none."""

    def parse(text: str) -> dict[str, resource.Quantity]:
        pairs = zip(("cpu", "memory"), text.split(), strict=True)
        return {name: resource.must_parse(value) for name, value in pairs if value != "-"}

    return v1.ResourceRequirements(requests=parse(requests), limits=parse(limits))


FULL = resources("100m 1Gi", "100m 1Gi")
NONE = v1.ResourceRequirements()


@pytest.mark.parametrize(
    ("containers", "init", "pod_level", "expected"),
    [
        pytest.param([FULL], [], None, "Guaranteed", id="equal"),
        pytest.param([FULL, FULL], [FULL], None, "Guaranteed", id="all equal"),
        pytest.param([resources("- -", "100m 1Gi")], [], None, "Burstable", id="limits alone"),
        pytest.param([FULL, NONE], [], None, "Burstable", id="one without"),
        pytest.param([FULL], [NONE], None, "Burstable", id="an init container without"),
        pytest.param([resources("50m 1Gi", "100m 1Gi")], [], None, "Burstable", id="less requested"),
        pytest.param([resources("100m -", "100m -")], [], None, "Burstable", id="cpu only"),
        pytest.param([NONE], [], None, "BestEffort", id="nothing"),
        pytest.param([resources("0 0", "0 0")], [], None, "BestEffort", id="zeros"),
        pytest.param([NONE], [], FULL, "Guaranteed", id="pod-level equal"),
        pytest.param([FULL], [], resources("50m -", "- -"), "Burstable", id="pod-level requests"),
        pytest.param([FULL], [], NONE, "BestEffort", id="pod-level empty"),
        pytest.param([FULL], [], resources("100m -", "100m -"), "Burstable", id="pod-level cpu only"),
    ],
)
def test_compute_pod_qos(
    containers: list[v1.ResourceRequirements],
    init: list[v1.ResourceRequirements],
    pod_level: v1.ResourceRequirements | None,
    expected: str,
) -> None:
    spec = v1.PodSpec(
        containers=[v1.Container(resources=r) for r in containers],
        init_containers=[v1.Container(resources=r) for r in init],
        resources=pod_level,
    )
    assert qos.compute_pod_qos(v1.Pod(spec=spec)) == expected


def test_get_pod_qos() -> None:
    assert qos.get_pod_qos(v1.Pod()) == "BestEffort"
    assert qos.get_pod_qos(v1.Pod(status=v1.PodStatus(qos_class="Burstable"))) == "Burstable"
