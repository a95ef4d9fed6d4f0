"""Test the OOM score adjustment.

Go: pkg/kubelet/qos/policy_test.go
"""

from __future__ import annotations

import pytest

from kubelet import qos
from pkg.api.core import v1
from pkg.apimachinery.api import resource

_CAPACITY = 8_000_000_000


def _container(name: str, request: str = "", limit: str = "", cpu: str = "", cpu_limit: str = "") -> v1.Container:
    result = v1.Container(name=name)
    for amounts, key, text in (
        (result.resources.requests, "memory", request),
        (result.resources.limits, "memory", limit),
        (result.resources.requests, "cpu", cpu),
        (result.resources.limits, "cpu", cpu_limit),
    ):
        if text:
            amounts[key] = resource.must_parse(text)
    return result


def _score(pod: v1.Pod, name: str) -> int:
    container = next(c for c in [*pod.spec.init_containers, *pod.spec.containers] if c.name == name)
    return qos.get_container_oom_score_adjust(pod, container, _CAPACITY)


def _pod(*containers: v1.Container, **spec: object) -> v1.Pod:
    return v1.Pod(spec=v1.PodSpec(containers=list(containers), **spec))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (_container("c"), 1000),
        (_container("c", limit="0"), 1000),
        (_container("c", cpu_limit="10"), 999),
        (_container("c", cpu="5m", limit="10G"), 999),
        (_container("c", "10G", "10G", "5m", "5m"), -997),
        (_container("c", "4G", "8G", "2"), 500),
        (_container("c", "7999999999"), 3),
        (_container("c", "1G"), 875),
    ],
)
def test_one_container(container: v1.Container, expected: int) -> None:
    assert _score(_pod(container), "c") == expected


def test_node_critical_pods_are_spared() -> None:
    name = "system-node-critical"
    assert _score(_pod(_container("c"), priority=2000001000, priority_class_name=name), "c") == -997
    assert _score(_pod(_container("c"), priority=2000000000), "c") == 1000


@pytest.mark.parametrize(("sidecar", "expected"), [("500M", 875), ("1G", 875), ("4G", 500)])
def test_sidecar_is_spared_at_least_as_long_as_what_it_serves(sidecar: str, expected: int) -> None:
    side = _container("side", sidecar)
    side.restart_policy = "Always"
    init = _container("init", "500M")
    pod = _pod(_container("main", "1G"), init_containers=[init, side])
    assert _score(pod, "side") == expected
    assert _score(pod, "main") == 875
    assert _score(pod, "init") == 938, "an ordinary init container goes by its own request"


@pytest.mark.parametrize(
    ("requests", "pod_request", "expected"),
    [
        (("", ""), "4G", (750, 750)),
        (("1G", ""), "3G", (750, 875)),
        (("2G", "2G"), "4G", (750, 750)),
    ],
)
def test_pod_level_request_is_shared_out(
    requests: tuple[str, str], pod_request: str, expected: tuple[int, int]
) -> None:
    pod = _pod(*(_container(f"c{i}", request) for i, request in enumerate(requests)))
    pod.spec.resources = v1.ResourceRequirements(requests={"memory": resource.must_parse(pod_request)})
    assert (_score(pod, "c0"), _score(pod, "c1")) == expected
