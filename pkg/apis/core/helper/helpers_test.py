"""Test the helpers for resource names, tolerations and annotations."""

from __future__ import annotations

import pytest

from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apis.core import helper


@pytest.mark.parametrize(
    ("name", "standard", "extended", "overcommit", "integer"),
    [
        ("cpu", True, False, True, False),
        ("memory", True, False, True, False),
        ("ephemeral-storage", True, False, True, False),
        ("hugepages-2Mi", True, False, False, False),
        ("pods", False, False, True, True),
        ("disk", False, False, True, False),
        ("example.com/gpu", False, True, False, True),
        ("requests.example.com/gpu", False, False, False, False),
        ("kubernetes.io/thing", False, False, True, False),
    ],
)
def test_resource_names(name: str, standard: bool, extended: bool, overcommit: bool, integer: bool) -> None:
    assert helper.is_standard_container_resource_name(name) is standard
    assert helper.is_extended_resource_name(name) is extended
    assert helper.is_overcommit_allowed(name) is overcommit
    assert helper.is_integer_resource_name(name) is integer


@pytest.mark.parametrize(
    ("name", "amount", "divisible"),
    [
        ("hugepages-2Mi", "4Mi", True),
        ("hugepages-2Mi", "3Mi", False),
        ("hugepages-0", "4Mi", False),
        ("hugepages-1.5", "3", False),
        ("hugepages-x", "4Mi", False),
        ("cpu", "1", False),
    ],
)
def test_huge_pages(name: str, amount: str, divisible: bool) -> None:
    assert helper.is_huge_page_resource_value_divisible(name, resource.parse_quantity(amount)) is divisible


def test_add_or_update_toleration_in_pod() -> None:
    forever = v1.Toleration(key="k", operator="Exists", effect="NoExecute")
    briefly = v1.Toleration(key="k", operator="Exists", effect="NoExecute", toleration_seconds=3)
    other = v1.Toleration(key="other", operator="Exists")
    pod = v1.Pod(spec=v1.PodSpec(tolerations=[briefly, other]))
    assert helper.add_or_update_toleration_in_pod(pod, forever)
    assert pod.spec.tolerations == [forever, other]
    assert not helper.add_or_update_toleration_in_pod(pod, forever)
    assert helper.add_or_update_toleration_in_pod(pod, v1.Toleration(key="new", operator="Exists"))
    assert [t.key for t in pod.spec.tolerations] == ["k", "other", "new"]


@pytest.mark.parametrize(
    ("value", "cost"),
    [("0", 0), ("-5", -5), ("2147483647", 2**31 - 1), ("2147483648", None), ("+1", None), ("008", None), ("", None)],
)
def test_deletion_cost(value: str, cost: int | None) -> None:
    annotations = {helper.POD_DELETION_COST: value}
    if cost is not None:
        assert helper.get_deletion_cost_from_pod_annotations(annotations) == cost
        return
    with pytest.raises(ValueError, match=r"strconv\.ParseInt"):
        helper.get_deletion_cost_from_pod_annotations(annotations)


def test_no_deletion_cost() -> None:
    assert helper.get_deletion_cost_from_pod_annotations({}) == 0
