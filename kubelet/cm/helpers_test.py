"""Test the conversion of a spec's resource amounts to cgroup settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet import cm
from kubelet.cm import helpers
from kubelet.cm.helpers import resource_config_for_pod
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.api.resource import Quantity

MI = 1 << 20
DEFAULT, TUNED = 100_000, 5_000
Amounts = tuple[str, str]
NONE: Amounts = ("", "")


def amounts(pair: Amounts) -> dict[str, Quantity]:
    return {name: resource.parse_quantity(text) for name, text in zip(("cpu", "memory"), pair, strict=True) if text}


def requirements(requests: Amounts, limits: Amounts = NONE) -> v1.ResourceRequirements:
    return v1.ResourceRequirements(requests=amounts(requests), limits=amounts(limits))


def pod(
    *containers: v1.ResourceRequirements,
    init: list[v1.ResourceRequirements] | None = None,
    whole: v1.ResourceRequirements | None = None,
) -> v1.Pod:
    spec = v1.PodSpec(
        containers=[v1.Container(name=f"c{n}", resources=r) for n, r in enumerate(containers)],
        init_containers=[v1.Container(name=f"i{n}", resources=r) for n, r in enumerate(init or [])],
        resources=whole,
    )
    return v1.Pod(spec=spec)


EMPTY = requirements(NONE)
SMALL = ("100m", "100Mi")
LARGE = ("200m", "200Mi")
BURSTABLE = requirements(SMALL, LARGE)
GUARANTEED = requirements(SMALL, SMALL)
UNLIMITED = requirements(SMALL)

CASES = {
    "besteffort": (pod(EMPTY), True, DEFAULT, (2, None, None, None)),
    "burstable-no-limits": (pod(UNLIMITED), True, DEFAULT, (102, None, None, None)),
    "burstable-with-limits": (pod(BURSTABLE), True, DEFAULT, (102, 20000, DEFAULT, 200 * MI)),
    "burstable-with-limits-no-cpu-enforcement": (pod(BURSTABLE), False, DEFAULT, (102, -1, DEFAULT, 200 * MI)),
    "burstable-partial-limits": (pod(BURSTABLE, UNLIMITED), True, DEFAULT, (204, None, None, None)),
    "burstable-with-a-limit-of-zero": (
        pod(BURSTABLE, requirements(SMALL, ("0", "0"))),
        True,
        DEFAULT,
        (204, None, None, None),
    ),
    "burstable-with-tuned-quota": (pod(BURSTABLE), True, TUNED, (102, 1000, TUNED, 200 * MI)),
    "burstable-no-cpu-enforcement-with-tuned-quota": (pod(BURSTABLE), False, TUNED, (102, -1, TUNED, 200 * MI)),
    "guaranteed": (pod(GUARANTEED), True, DEFAULT, (102, 10000, DEFAULT, 100 * MI)),
    "guaranteed-no-cpu-enforcement": (pod(GUARANTEED), False, DEFAULT, (102, -1, DEFAULT, 100 * MI)),
    "guaranteed-with-tuned-quota": (pod(GUARANTEED), True, TUNED, (102, 1000, TUNED, 100 * MI)),
    "burstable-partial-limits-with-init-containers": (
        pod(GUARANTEED, UNLIMITED, init=[GUARANTEED, UNLIMITED]),
        True,
        TUNED,
        (204, None, None, None),
    ),
    "besteffort-with-pod-level-resources": (pod(EMPTY, whole=EMPTY), True, DEFAULT, (2, None, None, None)),
    "burstable-with-pod-level-requests": (pod(EMPTY, whole=UNLIMITED), True, DEFAULT, (102, None, None, None)),
    "burstable-with-pod-level-resources": (
        pod(EMPTY, whole=BURSTABLE),
        True,
        DEFAULT,
        (102, 20000, DEFAULT, 200 * MI),
    ),
    "burstable-with-pod-and-container-level-resources": (
        pod(requirements(("10m", "50Mi"), ("50m", "100Mi")), whole=BURSTABLE),
        True,
        DEFAULT,
        (102, 20000, DEFAULT, 200 * MI),
    ),
    "burstable-with-partial-pod-level-limits": (
        pod(requirements(LARGE, LARGE), whole=requirements(("200m", "300Mi"))),
        True,
        DEFAULT,
        (204, 20000, DEFAULT, 200 * MI),
    ),
    "guaranteed-with-pod-level-resources": (
        pod(EMPTY, whole=GUARANTEED),
        True,
        DEFAULT,
        (102, 10000, DEFAULT, 100 * MI),
    ),
    "guaranteed-pod-level-resources-with-init-containers": (
        pod(requirements(("10m", "50Mi"), ("50m", "50Mi")), init=[UNLIMITED], whole=GUARANTEED),
        True,
        DEFAULT,
        (102, 10000, DEFAULT, 100 * MI),
    ),
}


@pytest.mark.parametrize(("spec", "enforce", "period", "expected"), CASES.values(), ids=list(CASES))
def test_resource_config_for_pod(
    spec: v1.Pod, enforce: bool, period: int, expected: tuple[int, int | None, int | None, int | None]
) -> None:
    config = resource_config_for_pod(spec, enforce, period)
    assert (config.cpu_shares, config.cpu_quota, config.cpu_period, config.memory) == expected


@pytest.mark.parametrize(
    ("milli_cpu", "quota"),
    [(0, 0), (5, 1000), (9, 1000), (10, 1000), (200, 20000), (500, 50000), (1000, 100000), (1500, 150000)],
)
def test_milli_cpu_to_quota(milli_cpu: int, quota: int) -> None:
    assert cm.milli_cpu_to_quota(milli_cpu, DEFAULT) == quota


@pytest.mark.parametrize(
    ("milli_cpu", "shares"), [(0, 2), (1, 2), (2, 2), (3, 3), (100, 102), (1000, 1024), (1_000_000, 262144)]
)
def test_milli_cpu_to_shares(milli_cpu: int, shares: int) -> None:
    assert cm.milli_cpu_to_shares(milli_cpu) == shares


@pytest.mark.parametrize(
    ("resources", "limits"),
    [
        ({}, {}),
        ({"cpu": "1", "memory": "1Gi"}, {}),
        ({"hugepages-2Mi": "100Mi"}, {2 * MI: 100 * MI}),
        ({"hugepages-2Mi": "100Mi", "hugepages-1Gi": "2Gi"}, {2 * MI: 100 * MI, 1024 * MI: 2048 * MI}),
        ({"hugepages-2048Ki": "2Mi", "hugepages-2Mi": "4Mi"}, {2 * MI: 6 * MI}),
    ],
)
def test_huge_page_limits(resources: dict[str, str], limits: dict[int, int]) -> None:
    quantities = {name: resource.parse_quantity(text) for name, text in resources.items()}
    assert cm.huge_page_limits(quantities) == limits


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            cm.ResourceConfig(memory=1 << 20, cpu_shares=102, cpu_quota=50_000, cpu_period=100_000),
            ("100m", "500m", "1Mi"),
        ),
        (cm.ResourceConfig(memory=-1, cpu_shares=2, cpu_quota=-1, cpu_period=100_000), ("2m", None, None)),
        (cm.ResourceConfig(), (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_amounts_from_config(config: cm.ResourceConfig | None, expected: tuple[str | None, ...]) -> None:
    found = (
        cm.cpu_requests_from_config(config),
        cm.cpu_limits_from_config(config),
        cm.memory_limits_from_config(config),
    )
    assert tuple(str(each) if each is not None else None for each in found) == expected


@pytest.mark.parametrize(
    ("root", "per_qos", "driver", "expected"),
    [
        ("/", True, "cgroupfs", "/kubepods"),
        ("/", True, "systemd", "/kubepods.slice"),
        ("/a/b", True, "cgroupfs", "/a/b/kubepods"),
        ("/a", True, "systemd", "/a.slice/a-kubepods.slice"),
        ("", False, "cgroupfs", "/"),
        ("/", False, "systemd", "/"),
        ("/a", False, "cgroupfs", "/a"),
    ],
)
def test_node_allocatable_root(root: str, per_qos: bool, driver: str, expected: str) -> None:
    assert helpers.node_allocatable_root(root, per_qos, driver) == expected


V1 = "4:memory:{memory}\n3:cpu,cpuacct:{cpu}\n1:name=systemd:{systemd}\n0::/ignored\n"


@pytest.mark.parametrize(
    ("text", "unified", "expected"),
    [
        pytest.param("0::/system.slice/kubelet.service\n", True, "/system.slice/kubelet.service", id="version 2"),
        pytest.param(V1.format(memory="/k", cpu="/k", systemd="/k"), False, "/k", id="version 1"),
        pytest.param(V1.format(memory="/", cpu="/", systemd="/k"), False, "/k", id="nobody counts the service"),
        pytest.param("4:memory:/k\n3:cpu:/k\n", False, "/k", id="without systemd"),
    ],
)
def test_kubelet_container(tmp_path: Path, text: str, unified: bool, expected: str) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(text)
    if unified:
        (tmp_path / "cgroup.controllers").touch()
    assert helpers.get_kubelet_container("", str(tmp_path), str(tmp_path)) == expected
    assert helpers.get_kubelet_container("/told", str(tmp_path), str(tmp_path)) == "/told"


def test_kubelet_in_several_containers(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(V1.format(memory="/m", cpu="/c", systemd="/"))
    with pytest.raises(LookupError, match=r"cgroup hierarchy not unified\.  cpu: /c, memory: /m"):
        helpers.get_kubelet_container("", str(tmp_path), str(tmp_path))


def test_kubelet_where_nobody_counts_memory(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("3:cpu:/c\n")
    with pytest.raises(LookupError, match="mountpoint for memory not found"):
        helpers.get_kubelet_container("", str(tmp_path), str(tmp_path))
