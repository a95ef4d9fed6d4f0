"""Test references to objects."""

from __future__ import annotations

import pytest

from pkg.api.coordination import v1 as coordinationv1
from pkg.api.core import v1
from pkg.api.node import v1 as nodev1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.tools import reference

META = metav1.ObjectMeta(namespace="ns", name="n", uid=types.UID("u"), resource_version="7")


@pytest.mark.parametrize(
    ("obj", "api_version", "kind"),
    [
        (v1.Pod(metadata=META), "v1", "Pod"),
        (v1.Node(metadata=META), "v1", "Node"),
        (coordinationv1.Lease(metadata=META), "coordination.k8s.io/v1", "Lease"),
        (nodev1.RuntimeClass(metadata=META), "node.k8s.io/v1", "RuntimeClass"),
        (v1.Pod(api_version="example.com/v1", kind="Other", metadata=META), "example.com/v1", "Other"),
        (v1.Pod(kind="Other", metadata=META), "v1", "Pod"),
    ],
)
def test_get_reference(obj: object, api_version: str, kind: str) -> None:
    ref = reference.get_reference(obj)
    assert (ref.api_version, ref.kind) == (api_version, kind)
    assert (ref.namespace, ref.name, ref.uid, ref.resource_version) == ("ns", "n", "u", "7")


def test_reference_of_a_reference() -> None:
    ref = v1.ObjectReference(name="n")
    assert reference.get_reference(ref) is ref
    partial = reference.get_partial_reference(ref, "spec.containers{c}")
    assert (partial.name, partial.field_path, ref.field_path) == ("n", "spec.containers{c}", "")


def test_what_is_no_api_object() -> None:
    with pytest.raises(ValueError, match="NoneType, which is not an API object"):
        reference.get_reference(None)
    with pytest.raises(ValueError, match="PodList, which is not an API object"):
        reference.get_reference(v1.PodList())
