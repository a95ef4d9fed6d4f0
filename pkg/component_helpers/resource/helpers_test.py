"""Test the requests and limits of pods.

Go: k8s.io/component-helpers/resource/helpers_test.go
"""

from __future__ import annotations

from typing import Any

import pytest

from pkg.api.core import v1
from pkg.apimachinery.api.testing import quantities
from pkg.component_helpers import resource as resourcehelper
from pkg.component_helpers.resource import PodResourcesOptions


def container(name: str, restart_policy: str | None = None, **kwargs: str) -> v1.Container:
    """Return a container whose requests and limits are the same."""
    resources = v1.ResourceRequirements(requests=quantities(**kwargs), limits=quantities(**kwargs))
    return v1.Container(name=name, resources=resources, restart_policy=restart_policy)


def pod(*containers: v1.Container, init: list[v1.Container] | None = None, **kwargs: Any) -> v1.Pod:
    return v1.Pod(spec=v1.PodSpec(containers=list(containers), init_containers=init or [], **kwargs))


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param(
            pod(container("a", cpu="1"), container("b", cpu="2", memory="3")), {"cpu": "3", "memory": "3"}, id="sum"
        ),
        pytest.param(
            pod(container("a", cpu="1"), init=[container("i", cpu="5"), container("j", cpu="2")]),
            {"cpu": "5"},
            id="largest init container",
        ),
        pytest.param(
            pod(container("a", cpu="1"), init=[container("s", "Always", cpu="2")]), {"cpu": "3"}, id="sidecar adds"
        ),
        pytest.param(
            pod(container("a", cpu="1"), init=[container("s", "Always", cpu="2"), container("i", cpu="7")]),
            {"cpu": "9"},
            id="init container after a sidecar",
        ),
        pytest.param(
            pod(container("a", cpu="1"), init=[container("i", cpu="7"), container("s", "Always", cpu="2")]),
            {"cpu": "7"},
            id="init container before a sidecar",
        ),
        pytest.param(
            pod(
                container("a", cpu="1", memory="3"),
                resources=v1.ResourceRequirements(requests=quantities(cpu="8"), limits=quantities(cpu="8")),
            ),
            {"cpu": "8", "memory": "3"},
            id="pod-level",
        ),
    ],
)
def test_pod_requests_and_limits(subject: v1.Pod, expected: dict[str, str]) -> None:
    assert resourcehelper.pod_requests(subject, PodResourcesOptions()) == quantities(**expected)
    assert resourcehelper.pod_limits(subject, PodResourcesOptions()) == quantities(**expected)


def test_overhead() -> None:
    subject = pod(container("a", cpu="1"), overhead=quantities(cpu="100m", memory="5"))
    assert resourcehelper.pod_requests(subject, PodResourcesOptions()) == quantities(cpu="1100m", memory="5")
    # The overhead is added only to limits that are set.
    assert resourcehelper.pod_limits(subject, PodResourcesOptions()) == quantities(cpu="1100m")
    without = PodResourcesOptions(exclude_overhead=True)
    assert resourcehelper.pod_requests(subject, without) == quantities(cpu="1")


def test_non_missing_container_requests() -> None:
    options = PodResourcesOptions(non_missing_container_requests=quantities(cpu="10m", memory="7"))
    subject = pod(container("a", cpu="0"), container("b"))
    assert resourcehelper.pod_requests(subject, options) == quantities(cpu="10m", memory="14")


@pytest.mark.parametrize(("reason", "requests", "limits"), [("Deferred", "5", "5"), ("Infeasible", "3", "2")])
def test_status_resources(reason: str, requests: str, limits: str) -> None:
    subject = pod(container("a", cpu="5"))
    actuated = v1.ResourceRequirements(requests=quantities(cpu="1"), limits=quantities(cpu="2"))
    subject.status.container_statuses = [
        v1.ContainerStatus(name="a", resources=actuated, allocated_resources=quantities(cpu="3"))
    ]
    subject.status.conditions = [v1.PodCondition(type="PodResizePending", reason=reason)]
    options = PodResourcesOptions(use_status_resources=True)
    assert resourcehelper.pod_requests(subject, options) == quantities(cpu=requests)
    assert resourcehelper.pod_limits(subject, options) == quantities(cpu=limits)
    assert resourcehelper.is_pod_resize_infeasible(subject) is (reason == "Infeasible")


def test_container_fn() -> None:
    seen = []
    options = PodResourcesOptions(container_fn=lambda res, kind: seen.append((str(res["cpu"]), kind.name)))
    init = [container("s", "Always", cpu="2"), container("i", cpu="7")]
    resourcehelper.pod_requests(pod(container("a", cpu="1"), init=init), options)
    assert seen == [("1", "CONTAINERS"), ("2", "INIT_CONTAINERS"), ("9", "INIT_CONTAINERS")]


def test_sources_are_not_modified() -> None:
    subject = pod(container("a", cpu="1"), init=[container("s", "Always", cpu="2")])
    before = v1.deepcopy(subject)
    resourcehelper.pod_requests(subject, PodResourcesOptions())
    resourcehelper.pod_limits(subject, PodResourcesOptions())
    assert subject == before
