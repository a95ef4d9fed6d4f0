from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from typing import Any

import pytest

from framework.apiserver import APIServer
from framework.apiserver.client import Client
from framework.apiserver.controllers import GarbageCollector
from framework.apiserver.errors import ApiError
from framework.apiserver.interfaces import Object
from framework.waiting import wait_for

TIMEOUT = 10.0
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def api() -> Iterator[APIServer]:
    """Run a server with the controller."""
    with APIServer(controllers=[GarbageCollector()]) as api:
        yield api


def _reference(owner: Object, **changes: Any) -> Object:
    reference: Object = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return reference | {key: owner["metadata"][key] for key in ("name", "uid")} | changes


def _make(api: APIServer, name: str, *owners: Object, resource: str = "configmaps", **metadata: Any) -> Object:
    """Create an object in the default namespace. The owners are objects or references to them."""
    references = [each if "uid" in each else _reference(each) for each in owners]
    metadata = {"name": name, "namespace": "default", "ownerReferences": references, **metadata}
    return api.store.create(resource, {"metadata": metadata})


def _delete(api: APIServer, name: str, policy: str = "", resource: str = "configmaps") -> None:
    api.store.delete(resource, name, "default", propagation_policy=policy)


def _find(api: APIServer, name: str, namespace: str = "default", resource: str = "configmaps") -> Object | None:
    try:
        return api.store.get(resource, name, namespace)
    except ApiError:
        return None


def _wait_gone(api: APIServer, *names: str) -> None:
    wait_for(f"{names} are gone", lambda: not any(_find(api, name) for name in names), TIMEOUT)


def _settle(api: APIServer) -> None:
    """Wait until the collector has seen everything so far: it collects this object last."""
    _make(api, "settled", {"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "absent"})
    _wait_gone(api, "settled")


@pytest.mark.parametrize("policy", ["", "Background"])
def test_dependents_go_with_their_owner(api: APIServer, policy: str) -> None:
    owner = _make(api, "owner")
    child = _make(api, "child", owner)
    _make(api, "grandchild", child)
    _make(api, "other")
    _delete(api, "owner", policy)
    assert _find(api, "owner") is None
    _wait_gone(api, "child", "grandchild")
    assert _find(api, "other")


def test_one_owner_is_enough(api: APIServer) -> None:
    first, second = _make(api, "first"), _make(api, "second")
    _make(api, "child", first, second)
    _delete(api, "first")
    wait_for(
        "the reference to the deleted owner is removed",
        lambda: [each["name"] for each in _owners(api, "child")] == ["second"],
        TIMEOUT,
    )
    _delete(api, "second")
    _wait_gone(api, "child")


def _owners(api: APIServer, name: str) -> list[Object]:
    found = _find(api, name)
    assert found is not None
    owners: list[Object] = found["metadata"].get("ownerReferences") or []
    return owners


def test_an_owner_may_go_last(api: APIServer) -> None:
    owner = _make(api, "owner")
    child = _make(api, "child", _reference(owner, blockOwnerDeletion=True), finalizers=["example.com/wait"])
    _make(api, "grandchild", _reference(child, blockOwnerDeletion=True))
    _delete(api, "owner", "Foreground")
    found = _find(api, "owner")
    assert found is not None
    assert found["metadata"]["finalizers"] == ["foregroundDeletion"] and found["metadata"]["deletionTimestamp"]
    _wait_gone(api, "grandchild")
    wait_for("the child waits", lambda: _finalizers(api, "child") == ["example.com/wait"], TIMEOUT)
    _settle(api)
    assert _find(api, "owner")
    api.store.patch("configmaps", "child", {"metadata": {"finalizers": None}}, "default")
    _wait_gone(api, "child", "owner")


def _finalizers(api: APIServer, name: str) -> list[str]:
    found = _find(api, name)
    assert found is not None
    finalizers: list[str] = found["metadata"].get("finalizers") or []
    return finalizers


def test_events_tell_that_the_owner_goes_last(api: APIServer) -> None:
    owner = _make(api, "owner")
    child = _make(api, "child", _reference(owner, blockOwnerDeletion=True))
    _make(api, "grandchild", _reference(child, blockOwnerDeletion=True))
    _delete(api, "owner", "Foreground")
    with Client(api.port) as client:
        changes = []
        for event in client.watch(MAPS, resourceVersion=child["metadata"]["resourceVersion"]):
            changes.append((event["type"], event["object"]["metadata"]["name"]))
            if changes[-1] == ("DELETED", "owner"):
                break
    ends = [name for type_, name in changes if type_ == "DELETED"]
    assert ends == ["grandchild", "child", "owner"]


def test_an_owner_waits_only_for_those_that_block(api: APIServer) -> None:
    owner = _make(api, "owner")
    _make(api, "child", owner, finalizers=["example.com/wait"])
    _delete(api, "owner", "Foreground")
    _wait_gone(api, "owner")
    child = _find(api, "child")
    assert child is not None and child["metadata"]["deletionTimestamp"]


def test_an_owner_need_not_wait_for_what_has_another(api: APIServer) -> None:
    owner, other = _make(api, "owner"), _make(api, "other")
    _make(api, "child", _reference(owner, blockOwnerDeletion=True), other)
    _delete(api, "owner", "Foreground")
    _wait_gone(api, "owner")
    assert [each["name"] for each in _owners(api, "child")] == ["other"]


def test_those_that_wait_for_one_another_go_all_the_same(api: APIServer) -> None:
    first = _make(api, "first")
    second = _make(api, "second", _reference(first, blockOwnerDeletion=True))
    references = [_reference(second, blockOwnerDeletion=True)]
    api.store.patch("configmaps", "first", {"metadata": {"ownerReferences": references}}, "default")
    _delete(api, "first", "Foreground")
    _wait_gone(api, "first", "second")


@pytest.mark.parametrize(
    ("resource", "policy"), [("configmaps", "Orphan"), ("jobs", ""), ("replicationcontrollers", "")]
)
def test_dependents_may_be_left(api: APIServer, resource: str, policy: str) -> None:
    owner = _make(api, "owner", resource=resource)
    _make(api, "child", _reference(owner, blockOwnerDeletion=True))
    _delete(api, "owner", policy, resource)
    wait_for("the owner is gone", lambda: _find(api, "owner", resource=resource) is None, TIMEOUT)
    assert _owners(api, "child") == []
    _settle(api)
    assert _find(api, "child")


def test_a_second_deletion_may_say_otherwise(api: APIServer) -> None:
    owner = _make(api, "owner")
    _make(api, "child", _reference(owner, blockOwnerDeletion=True), finalizers=["example.com/wait"])
    _delete(api, "owner", "Foreground")
    _delete(api, "owner")
    assert _find(api, "owner")
    _delete(api, "owner", "Background")
    _wait_gone(api, "owner")


def test_owners_that_never_were(api: APIServer) -> None:
    owner = _make(api, "owner")
    for name, reference in (
        ("another-uid", _reference(owner, uid="0")),
        ("another-name", _reference(owner, name="nobody")),
        ("another-kind", _reference(owner, kind="Secret")),
    ):
        _make(api, name, reference)
        _wait_gone(api, name)
    for name, reference in (
        ("unknown-kind", {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "1"}),
        ("known", _reference(owner)),
    ):
        _make(api, name, reference)
    _settle(api)
    assert _find(api, "unknown-kind") and _find(api, "known")


def test_an_owner_in_another_namespace_is_none(api: APIServer) -> None:
    api.store.create("namespaces", {"metadata": {"name": "elsewhere"}})
    owner = _make(api, "owner", namespace="elsewhere")
    child = _make(api, "child", owner)
    _wait_gone(api, "child")
    (event,) = (each for each in api.store.list("events", "default") if each["reason"] == "OwnerRefInvalidNamespace")
    assert event["involvedObject"]["uid"] == child["metadata"]["uid"]
    assert event["message"] == (
        f"ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {owner['metadata']['uid']}] does not exist in "
        'namespace "default"'
    )


def test_what_is_not_in_a_namespace(api: APIServer) -> None:
    node = api.store.create("nodes", {"metadata": {"name": "n1"}})
    _make(api, "child", node)
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "0"}]
    api.store.create("nodes", {"metadata": {"name": "n2", "ownerReferences": references}})
    api.store.delete("nodes", "n1")
    _wait_gone(api, "child")
    # A namespaced object cannot own the node, so the collector does not know whether the owner still exists.
    assert api.store.get("nodes", "n2")


def test_what_is_found_at_the_start() -> None:
    with APIServer() as api:
        owner = _make(api, "owner")
        _make(api, "child", owner)
        _make(api, "orphan", _reference(owner, uid="0"))
        _delete(api, "owner", "Foreground")
        collector = GarbageCollector()
        collector.start(api)
        try:
            _wait_gone(api, "owner", "child", "orphan")
        finally:
            collector.stop()


def test_propagation_over_http(api: APIServer) -> None:
    with Client(api.port) as client:
        _make(api, "child", _make(api, "owner"))
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
        code, answer = client.call("DELETE", f"{MAPS}/owner", options)
        assert (code, answer["kind"], answer["metadata"]["finalizers"]) == (200, "ConfigMap", ["foregroundDeletion"])
        _wait_gone(api, "child", "owner")
        _make(api, "child", _make(api, "owner"))
        assert client.call("DELETE", f"{MAPS}/owner", orphanDependents="true")[0] == 200
        _wait_gone(api, "owner")
        assert _owners(api, "child") == []
        assert client.call("DELETE", f"{MAPS}/child", propagationPolicy="Sideways") == (
            422,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": 'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sideways": '
                'supported values: "Foreground", "Background", "Orphan", "nil"',
                "reason": "Invalid",
                "details": {
                    "group": "meta.k8s.io",
                    "kind": "DeleteOptions",
                    "causes": [
                        {
                            "reason": "FieldValueNotSupported",
                            "message": 'Unsupported value: "Sideways": supported values: "Foreground", "Background", '
                            '"Orphan", "nil"',
                            "field": "propagationPolicy",
                        }
                    ],
                },
                "code": 422,
            },
        )


@pytest.mark.parametrize(("query", "warned"), [("", True), ("?propagationPolicy=Background", False)])
def test_who_deletes_a_job_hears_that_its_pods_stay(api: APIServer, query: str, warned: bool) -> None:
    _make(api, "job", resource="jobs")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)) as connection:
        connection.request("DELETE", f"/apis/batch/v1/namespaces/default/jobs/job{query}")
        warning = connection.getresponse().getheader("Warning") or ""
    assert ("child pods are preserved by default when jobs are deleted" in warning) == warned


def test_what_an_owner_may_be(api: APIServer) -> None:
    with pytest.raises(ApiError) as refused:
        _make(api, "child", {"apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": "1"})
    assert str(refused.value) == (
        'ConfigMap "child" is invalid: metadata.ownerReferences[0].name: Invalid value: "": must not be empty'
    )
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True} for name in ("a", "b")]
    with pytest.raises(ApiError, match='Found "true" in references for Pod/a and Pod/b'):
        _make(api, "child", *owners)
