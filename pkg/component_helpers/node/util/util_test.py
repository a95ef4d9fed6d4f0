"""Test the helpers for node objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.client_go.kubernetes import testing as kubernetestesting
from pkg.component_helpers.node import util as nodeutil

READY = v1.NodeCondition(type="Ready", status="True")


def addresses(*pairs: tuple[str, str]) -> list[v1.NodeAddress]:
    return [v1.NodeAddress(type=kind, address=address) for kind, address in pairs]


def node(labels: dict[str, str] | None = None, spec: v1.NodeSpec | None = None, **status: Any) -> v1.Node:
    return v1.Node(
        metadata=metav1.ObjectMeta(name="n", labels=labels or {}),
        spec=spec or v1.NodeSpec(),
        status=v1.NodeStatus(**status),
    )


ONE = addresses(("InternalIP", "10.0.0.1"), ("Hostname", "n"))
TWO = addresses(("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"), ("Hostname", "n"))

PATCHES: dict[str, tuple[v1.Node, v1.Node, dict[str, Any]]] = {
    "nothing": (node(addresses=ONE), node(addresses=ONE), {}),
    "specs are left alone": (
        node(spec=v1.NodeSpec(pod_cidr="10.1.0.0/24")),
        node(spec=v1.NodeSpec(unschedulable=True), conditions=[READY]),
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    ),
    "a spec that the old one has not": (node(), node(spec=v1.NodeSpec(unschedulable=True)), {}),
    "labels": (node(labels={"a": "1"}), node(labels={"b": "2"}), {"metadata": {"labels": {"a": None, "b": "2"}}}),
    "condition": (
        node(conditions=[v1.NodeCondition(type="DiskPressure"), v1.NodeCondition(type="Ready", status="False")]),
        node(conditions=[v1.NodeCondition(type="DiskPressure"), READY]),
        {
            "status": {
                "$setElementOrder/conditions": [{"type": "DiskPressure"}, {"type": "Ready"}],
                "conditions": [{"type": "Ready", "status": "True"}],
            }
        },
    ),
    "first addresses": (
        node(),
        node(addresses=ONE),
        {"status": {"addresses": codec.to_builtins(ONE)}},
    ),
    "other addresses": (
        node(addresses=ONE),
        node(addresses=TWO),
        {"status": {"addresses": [*codec.to_builtins(TWO), {"$patch": "replace"}]}},
    ),
    "no address any more": (
        node(addresses=ONE),
        node(),
        {"status": {"addresses": [{"$patch": "replace"}]}},
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), PATCHES.values(), ids=PATCHES)
def test_patch_node_status(old: v1.Node, new: v1.Node, expected: dict[str, Any]) -> None:
    client = kubernetestesting.FakeClientset(old)
    patched, patch = nodeutil.patch_node_status(golang.background(), client.core_v1, "n", old, new)
    assert json.loads(patch) == expected
    assert patched.status == new.status, "what the patch makes of the old one"
    (action,) = client.actions()
    assert (action.verb, action.subresource, action.name, action.patch) == ("patch", "status", "n", patch)
    assert action.patch_type == types.PatchType.STRATEGIC_MERGE


def test_get_node_condition() -> None:
    status = v1.NodeStatus(conditions=[v1.NodeCondition(type="DiskPressure"), READY])
    assert nodeutil.get_node_condition(status, "Ready") == (1, READY)
    assert nodeutil.get_node_condition(status, "Other") == (-1, None)


@pytest.mark.parametrize(("override", "expected"), [("Foo", "foo"), (" BAR \n", "bar")])
def test_get_hostname(override: str, expected: str) -> None:
    assert nodeutil.get_hostname(override) == expected
    assert nodeutil.get_hostname("") == nodeutil.get_hostname("").strip().lower() != ""
    with pytest.raises(ValueError, match="empty hostname"):
        nodeutil.get_hostname("  ")


@pytest.mark.parametrize(
    ("argument", "cloud_provider", "ips", "invalid"),
    [
        ("", "", [], []),
        ("1.2.3.4", "", ["1.2.3.4"], []),
        ("blah", "", [], ["blah"]),
        ("1.2.3.4, ::1", "external", ["1.2.3.4", "::1"], []),
        ("0.0.0.0", "other", ["0.0.0.0"], []),
        ("1.2.3.4,,x", "", ["1.2.3.4"], ["", "x"]),
    ],
)
def test_parse_node_ip_argument(argument: str, cloud_provider: str, ips: list[str], invalid: list[str]) -> None:
    parsed, bad = nodeutil.parse_node_ip_argument(argument, cloud_provider)
    assert ([str(ip) for ip in parsed], bad) == (ips, invalid)


@pytest.mark.parametrize(
    ("argument", "cloud_provider", "text"),
    [
        ("1.2.3.4,5.6.7.8", "", "dual-stack pair"),
        ("1.2.3.4,::1,::2", "", "dual-stack pair"),
        ("1.2.3.4,::1", "other", "not supported"),
        ("1.2.3.4,::", "", "cannot include"),
    ],
)
def test_bad_node_ip_argument(argument: str, cloud_provider: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        nodeutil.parse_node_ip_argument(argument, cloud_provider)
