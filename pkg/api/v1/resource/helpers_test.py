"""Test the resource helpers.

Go: pkg/api/v1/resource/helpers_test.go
"""

from __future__ import annotations

import pytest

from pkg.api.core import v1
from pkg.api.v1 import resource as resourceutil
from pkg.apimachinery.api import resource
from pkg.apimachinery.api.testing import quantities
from pkg.apimachinery.runtime import codec

CONTAINER = v1.Container(
    name="c",
    resources=v1.ResourceRequirements(
        requests=quantities(cpu="100m", memory="1Ki", ephemeral_storage="9", hugepages_2Mi="4Mi"),
        limits=quantities(cpu="9", memory="3Mi"),
    ),
)


@pytest.mark.parametrize(
    ("name", "divisor", "expected"),
    [
        ("limits.cpu", None, "9"),
        ("limits.cpu", "0", "9"),
        ("requests.cpu", None, "1"),  # The value is rounded up.
        ("requests.cpu", "1m", "100"),
        ("requests.memory", None, "1024"),
        ("limits.memory", "1Mi", "3"),
        ("limits.memory", "2Mi", "2"),
        ("requests.ephemeral-storage", "2", "5"),
        ("limits.ephemeral-storage", None, "0"),
        ("requests.hugepages-2Mi", "1Mi", "4"),
    ],
)
def test_extract_container_resource_value(name: str, divisor: str | None, expected: str) -> None:
    selector = v1.ResourceFieldSelector(
        resource=name, divisor=None if divisor is None else resource.must_parse(divisor)
    )
    assert resourceutil.extract_container_resource_value(selector, CONTAINER) == expected


@pytest.mark.parametrize("name", ["limits.pods", "cpu", "", "requests.", "others.cpu"])
def test_unsupported(name: str) -> None:
    with pytest.raises(ValueError, match="unsupported container resource"):
        resourceutil.extract_container_resource_value(v1.ResourceFieldSelector(resource=name), CONTAINER)


def test_node_allocatable() -> None:
    pod = v1.Pod(spec=v1.PodSpec(containers=[v1.Container(name="bare"), CONTAINER]))
    selector = v1.ResourceFieldSelector(resource="limits.cpu")
    extract = resourceutil.extract_resource_value_by_container_name_and_node_allocatable
    assert extract(selector, pod, "bare", quantities(cpu="4")) == "4"
    assert extract(selector, pod, "c", quantities(cpu="4")) == "9"
    assert pod.spec.containers[0].resources.limits == {}
    with pytest.raises(LookupError, match="container none not found"):
        extract(selector, pod, "none", {})


def test_a_value_takes_no_copy_of_its_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value is computed without a copy of the container.

    A volume may have thousands of such values, and the container thousands of variables.
    """
    copied = []

    def deepcopy(obj: object) -> object:
        copied.append(type(obj))
        return codec.deepcopy(obj)

    monkeypatch.setattr(v1, "deepcopy", deepcopy)
    pod = v1.Pod(spec=v1.PodSpec(containers=[CONTAINER]))
    selector = v1.ResourceFieldSelector(resource="limits.cpu")
    extract = resourceutil.extract_resource_value_by_container_name_and_node_allocatable
    assert extract(selector, pod, "c", quantities(cpu="4")) == "9"
    assert set(copied) <= {v1.ResourceRequirements}


@pytest.mark.parametrize(
    ("pod", "name", "expected"),
    [
        pytest.param(v1.PodSpec(), "pods", 1, id="each pod is one"),
        pytest.param(v1.PodSpec(), "cpu", 0, id="nothing"),
        pytest.param(v1.PodSpec(overhead=quantities(cpu="2")), "cpu", 0, id="overhead of nothing"),
        pytest.param(
            v1.PodSpec(
                containers=[v1.Container(resources=v1.ResourceRequirements(requests=quantities(cpu="1500m")))],
                overhead=quantities(cpu="2"),
            ),
            "cpu",
            3500,
            id="cpu in thousandths",
        ),
        pytest.param(
            v1.PodSpec(
                containers=[v1.Container(resources=v1.ResourceRequirements(requests=quantities(memory="1Mi")))],
                resources=v1.ResourceRequirements(requests=quantities(memory="3Mi")),
            ),
            "memory",
            3 << 20,
            id="of the pod as a whole",
        ),
        pytest.param(
            v1.PodSpec(
                containers=[v1.Container(resources=v1.ResourceRequirements(requests=quantities(memory="1Mi")))],
                resources=v1.ResourceRequirements(requests=quantities(cpu="3")),
            ),
            "memory",
            0,
            id="not of containers, once the pod as a whole requests anything",
        ),
    ],
)
def test_get_resource_request(pod: v1.PodSpec, name: str, expected: int) -> None:
    assert resourceutil.get_resource_request(v1.Pod(spec=pod), name) == expected
