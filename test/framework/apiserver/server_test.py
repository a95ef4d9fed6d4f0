"""Test the responses of a running server. The expected messages were compared by hand with those of a real server."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from framework.apiserver import ApiError, APIServer, Request, UserInfo
from framework.apiserver.certificates import CertificateAuthority, server_context
from framework.apiserver.client import JSON, JSON_PATCH, MERGE, STRATEGIC, Client
from framework.apiserver.interfaces import AllowAll, Cut, NoFaults, Object
from pkg import golang

_PODS = "/api/v1/namespaces/default/pods"
_MAPS = "/api/v1/namespaces/default/configmaps"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.fixture
def api() -> Iterator[APIServer]:
    with APIServer(bookmark_interval=0.05) as api:
        yield api


@pytest.fixture
def client(api: APIServer) -> Iterator[Client]:
    with Client(api.port) as client:
        yield client


def _pod(name: str = "p", node: str = "n", **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "busybox"}], **({"nodeName": node} if node else {}), **spec}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}


def test_create_fills_in(client: Client) -> None:
    code, pod = client.call("POST", _PODS, _pod(unknown={"newer": [1]}))
    assert code == 201
    assert list(pod)[:3] == ["kind", "apiVersion", "metadata"]
    assert pod["metadata"]["namespace"] == "default"
    assert pod["metadata"]["generation"] == 1
    assert pod["metadata"]["uid"] and pod["metadata"]["resourceVersion"] and pod["metadata"]["creationTimestamp"]
    spec = pod["spec"]
    assert "unknown" not in spec
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["terminationGracePeriodSeconds"]) == (
        "Always",
        "ClusterFirst",
        30,
    )
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type", "code", "message"),
    [
        ("GET", f"{_PODS}/nope", None, JSON, 404, 'pods "nope" not found'),
        ("GET", f"{_LEASES}/nope", None, JSON, 404, 'leases.coordination.k8s.io "nope" not found'),
        ("GET", "/api/v1/foos", None, JSON, 404, "the server could not find the requested resource"),
        ("POST", f"{_PODS}/p", {}, JSON, 405, "the server does not allow this method on the requested resource"),
        ("POST", _PODS, _pod("old"), JSON, 409, 'pods "old" already exists'),
        ("POST", "/api/v1/namespaces/zz/pods", _pod(), JSON, 404, 'namespaces "zz" not found'),
        (
            "POST",
            _PODS,
            {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}},
            JSON,
            400,
            'Node in version "v1" cannot be handled as a Pod: converting (v1.Node) to (core.Pod): unknown conversion',
        ),
        (
            "POST",
            _PODS,
            {"metadata": {"name": "a", "namespace": "other"}},
            JSON,
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ("POST", _PODS, _pod(containers=5), JSON, 400, 'Pod in version "v1" cannot be handled as a Pod: Expected'),
        (
            "POST",
            _PODS,
            _pod("q", containers=[{"name": "c"}]),
            JSON,
            422,
            'Pod "q" is invalid: spec.containers[0].image: Required value',
        ),
        ("POST", _MAPS, b"a: b", "text/plain", 415, "the body of the request was in an unknown format"),
        (
            "POST",
            _MAPS,
            {"metadata": {}},
            JSON,
            422,
            'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required',
        ),
        (
            "POST",
            _MAPS,
            {"metadata": {"name": "a", "resourceVersion": "1"}},
            JSON,
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        ("PUT", f"{_PODS}/new", _pod("new"), JSON, 404, 'pods "new" not found'),
        (
            "PUT",
            f"{_PODS}/new",
            _pod("old"),
            JSON,
            400,
            "the name of the object (old) does not match the name on the URL (new)",
        ),
        (
            "PUT",
            f"{_LEASES}/l",
            {"metadata": {"name": "l"}, "spec": {}},
            JSON,
            422,
            'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: '
            "must be specified for an update",
        ),
        (
            "PATCH",
            f"{_PODS}/old",
            {"metadata": {"resourceVersion": "1"}},
            MERGE,
            409,
            'Operation cannot be fulfilled on pods "old": the object has been modified; please apply your changes to '
            "the latest version and try again",
        ),
        (
            "PATCH",
            f"{_PODS}/old",
            {"metadata": {"uid": "other"}},
            STRATEGIC,
            422,
            'Pod "old" is invalid: metadata.uid: Invalid value: "other": field is immutable',
        ),
        (
            "PATCH",
            f"{_PODS}/old",
            {"spec": {"hostNetwork": True}},
            STRATEGIC,
            422,
            'Pod "old" is invalid: spec: Forbidden: pod updates may not change fields other than',
        ),
        ("PATCH", f"{_PODS}/old", b"{", MERGE, 400, "error decoding patch: "),
        ("PATCH", f"{_PODS}/old", {}, "text/plain", 415, "415: Unsupported Media Type"),
        (
            "PATCH",
            f"{_PODS}/old",
            [{"op": "remove", "path": "/nothing"}],
            JSON_PATCH,
            422,
            "the server rejected our request due to an error in our request",
        ),
        (
            "POST",
            f"{_PODS}/old/binding",
            {"target": {"name": "n2"}},
            JSON,
            409,
            'Operation cannot be fulfilled on pods/binding "old": pod old is already assigned to node "n"',
        ),
        (
            "DELETE",
            f"{_PODS}/old",
            {"preconditions": {"uid": "other"}},
            JSON,
            409,
            'Operation cannot be fulfilled on Pod "old": the UID in the precondition (other) does not match the UID in '
            "record",
        ),
        ("GET", f"{_PODS}?fieldSelector=spec.foo%3Dx", None, JSON, 400, "field label not supported: spec.foo"),
        (
            "GET",
            f"{_MAPS}?fieldSelector=a%3Dx",
            None,
            JSON,
            400,
            '"a" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            "GET",
            f"{_PODS}?labelSelector=a%3D%3D%3D",
            None,
            JSON,
            400,
            "unable to parse requirement: found '=', expected: identifier",
        ),
        ("GET", f"{_PODS}?resourceVersion=x", None, JSON, 400, "invalid resource version: "),
        ("GET", f"{_PODS}?resourceVersion=999999", None, JSON, 504, "Timeout: Too large resource version: 999999"),
        (
            "GET",
            f"{_PODS}?watch=1&sendInitialEvents=true",
            None,
            JSON,
            422,
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires '
            "setting resourceVersionMatch to NotOlderThan",
        ),
        ("GET", f"{_PODS}?continue=zz", None, JSON, 400, "invalid continue token: continue key is not valid: "),
        ("GET", f"{_PODS}/old/log", None, JSON, 404, 'pods "n" not found'),
        ("GET", f"{_PODS}/old/log?container=z", None, JSON, 400, "container z is not valid for pod old"),
    ],
)
def test_refusals(
    api: APIServer, client: Client, method: str, path: str, body: Any, content_type: str, code: int, message: str
) -> None:
    api.store.create("pods", {**_pod("old"), "metadata": {"name": "old", "namespace": "default"}})
    api.store.create("leases", {"metadata": {"name": "l", "namespace": "default"}, "spec": {}})
    got, status = client.call(method, path, body, content_type=content_type)
    assert (got, status["code"]) == (code, code)
    assert status["kind"] == "Status" and status["status"] == "Failure"
    assert status["message"].startswith(message)


def test_an_update_with_an_old_version_or_uid_conflicts(client: Client) -> None:
    _, first = client.call("POST", _MAPS, {"metadata": {"name": "m"}})
    code, second = client.call("PUT", f"{_MAPS}/m", {**first, "data": {"a": "1"}})
    assert code == 200 and int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert client.call("PUT", f"{_MAPS}/m", {**first, "data": {"a": "2"}})[0] == 409
    other = {"metadata": {"name": "m", "uid": "other"}}
    code, status = client.call("PUT", f"{_MAPS}/m", other)
    assert code == 409 and "Precondition failed: UID in precondition: other, UID in object meta: " in status["message"]
    assert client.call("GET", f"{_MAPS}/m") == (200, second)


def test_an_update_that_changes_nothing_is_no_new_version(client: Client) -> None:
    _, first = client.call("POST", _MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    assert client.call("PUT", f"{_MAPS}/m", {"metadata": {"name": "m"}, "data": {"a": "1"}}) == (200, first)
    assert client.call("PATCH", f"{_MAPS}/m", {"data": {"a": "1"}}, content_type=MERGE) == (200, first)


def test_status_and_the_rest_are_written_apart(client: Client) -> None:
    _, pod = client.call("POST", _PODS, _pod())
    changed = {**pod, "status": {"phase": "Running"}, "metadata": {**pod["metadata"], "labels": {"a": "b"}}}
    _, updated = client.call("PUT", f"{_PODS}/p", changed)
    assert updated["metadata"]["labels"] == {"a": "b"}
    assert updated["status"]["phase"] == "Pending"
    patch = {"spec": {"nodeName": "other"}, "status": {"phase": "Running", "observedGeneration": 1}}
    _, updated = client.call("PATCH", f"{_PODS}/p/status", patch, content_type=STRATEGIC)
    assert updated["spec"] == pod["spec"]
    assert updated["status"] == {"phase": "Running", "qosClass": "BestEffort", "observedGeneration": 1}
    assert updated["metadata"]["generation"] == 1


def test_generation_counts_changes_of_the_spec(client: Client) -> None:
    client.call("POST", _PODS, _pod())
    patch = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    assert client.call("PATCH", f"{_PODS}/p", patch, content_type=STRATEGIC)[1]["metadata"]["generation"] == 2
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert client.call("PATCH", f"{_PODS}/p", labels, content_type=STRATEGIC)[1]["metadata"]["generation"] == 2


def test_lists_merge_by_key_in_a_strategic_patch(client: Client) -> None:
    client.call("POST", _PODS, _pod())
    ready, scheduled = {"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}
    for conditions in ([ready, scheduled], [{"type": "Ready", "status": "True"}]):
        patch = {"status": {"conditions": conditions}}
        _, pod = client.call("PATCH", f"{_PODS}/p/status", patch, content_type=STRATEGIC)
    assert {c["type"]: c["status"] for c in pod["status"]["conditions"]} == {"Ready": "True", "PodScheduled": "True"}


def test_ephemeral_containers_are_added_and_never_changed(client: Client) -> None:
    client.call("POST", _PODS, _pod())

    def patch(**container: Any) -> tuple[int, Any]:
        body = {"spec": {"ephemeralContainers": [{"name": "debug", **container}], "hostNetwork": True}}
        return client.call("PATCH", f"{_PODS}/p/ephemeralcontainers", body, content_type=STRATEGIC)

    code, pod = patch(image="busybox", targetContainerName="c")
    assert code == 200
    [container] = pod["spec"]["ephemeralContainers"]
    assert (container["imagePullPolicy"], container["targetContainerName"]) == ("Always", "c")
    assert "hostNetwork" not in pod["spec"] and pod["metadata"]["generation"] == 2
    assert patch(image="other")[0] == 422


def _resizable(**spec: Any) -> Object:
    resources = {"requests": {"cpu": "100m", "memory": "10Mi"}}
    return _pod(containers=[{"name": "c", "image": "i", "resources": resources}], **spec)


def _resize(client: Client, **container: Any) -> tuple[int, Any]:
    body = {"spec": {"containers": [{"name": "c", **container}]}}
    return client.call("PATCH", f"{_PODS}/p/resize", body, content_type=STRATEGIC)


def test_resources_are_resized_apart(client: Client) -> None:
    client.call("POST", _PODS, _resizable())
    body = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1000m"}}}]}}
    assert client.call("PATCH", f"{_PODS}/p", body, content_type=STRATEGIC)[0] == 422
    code, pod = _resize(client, resources={"requests": {"cpu": "1000m"}}, image="other")
    resources = {"requests": {"cpu": "1", "memory": "10Mi"}}
    assert (code, pod["spec"]["containers"][0]["resources"]) == (200, resources)
    assert (pod["spec"]["containers"][0]["image"], pod["metadata"]["generation"]) == ("i", 2)


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (
            {"limits": {"cpu": "100m", "memory": "10Mi"}},
            "Pod QOS Class may not change as a result of resizing",
        ),
        ({"requests": {"cpu": None}}, ".resources.requests: Forbidden: resource requests cannot be removed"),
        ({"requests": {"ephemeral-storage": "1Mi"}}, "spec: Forbidden: only cpu and memory resources are mutable"),
        ({"limits": {"cpu": "50m"}}, "must be less than or equal to cpu limit of 50m"),
    ],
)
def test_resizes_that_are_refused(client: Client, resources: Object, message: str) -> None:
    client.call("POST", _PODS, _resizable())
    code, status = _resize(client, resources=resources)
    assert code == 422
    assert message in status["message"]


def test_resources_of_the_pod_as_a_whole_are_resized(client: Client) -> None:
    client.call("POST", _PODS, _resizable(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}))

    def patch(resources: Object | None) -> tuple[int, Any]:
        return client.call("PATCH", f"{_PODS}/p/resize", {"spec": {"resources": resources}}, content_type=STRATEGIC)

    code, pod = patch({"limits": {"cpu": "3"}})
    assert (code, pod["spec"]["resources"]) == (
        200,
        {"limits": {"cpu": "3"}, "requests": {"cpu": "1", "memory": "10Mi"}},
    )
    code, status = patch(None)
    assert code == 422
    assert "spec.resources: Forbidden: pod-level resources cannot be removed" in status["message"]


def test_a_container_that_ended_for_good_stays_so(client: Client) -> None:
    client.call("POST", _PODS, _pod(restartPolicy="Never"))
    ended = {"name": "c", "state": {"terminated": {"exitCode": 0}}}
    again = {"name": "c", "state": {"running": {}}}
    for status, code in ((ended, 200), (again, 422)):
        patch = {"status": {"containerStatuses": [status]}}
        assert client.call("PATCH", f"{_PODS}/p/status", patch, content_type=MERGE)[0] == code


@pytest.mark.parametrize(
    ("node", "options", "left"),
    [
        ("n", {}, 30),
        ("n", {"gracePeriodSeconds": 5}, 5),
        ("n", {"gracePeriodSeconds": -1}, 1),
        ("n", {"gracePeriodSeconds": 0}, None),
        ("", {}, None),
        ("", {"gracePeriodSeconds": 5}, None),
    ],
    ids=["default", "shorter", "negative", "zero", "unscheduled", "unscheduled with grace"],
)
def test_deleting_a_pod(client: Client, node: str, options: dict[str, Any], left: int | None) -> None:
    client.call("POST", _PODS, _pod(node=node))
    code, answered = client.call("DELETE", f"{_PODS}/p", options)
    assert code == 200 and answered["kind"] == "Pod" and answered["metadata"]["generation"] == 2
    code, pod = client.call("GET", f"{_PODS}/p")
    if left is None:
        assert code == 404
        return
    assert pod["metadata"]["deletionGracePeriodSeconds"] == left


def test_a_grace_period_may_only_become_shorter(client: Client) -> None:
    client.call("POST", _PODS, _pod())
    client.call("DELETE", f"{_PODS}/p")
    for wanted, left in ((60, 30), (7, 7)):
        _, pod = client.call("DELETE", f"{_PODS}/p", {"gracePeriodSeconds": wanted})
        assert pod["metadata"]["deletionGracePeriodSeconds"] == left
    assert pod["metadata"]["generation"] == 2
    _, changed = client.call("PUT", f"{_PODS}/p", {**pod, "metadata": {"name": "p"}})
    assert changed["metadata"]["deletionTimestamp"] == pod["metadata"]["deletionTimestamp"]
    assert client.call("DELETE", f"{_PODS}/p?gracePeriodSeconds=0")[0] == 200
    assert client.call("GET", f"{_PODS}/p")[0] == 404


def test_a_finalizer_keeps_an_object(client: Client) -> None:
    client.call("POST", _MAPS, {"metadata": {"name": "m", "finalizers": ["a/b"]}})
    _, kept = client.call("DELETE", f"{_MAPS}/m")
    assert kept["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["a/b", "c/d"]}}
    assert client.call("PATCH", f"{_MAPS}/m", more, content_type=MERGE)[0] == 422
    assert client.call("PATCH", f"{_MAPS}/m", {"metadata": {"finalizers": None}}, content_type=MERGE)[0] == 200
    assert client.call("GET", f"{_MAPS}/m")[0] == 404


def test_binding_and_eviction(client: Client) -> None:
    client.call("POST", _PODS, _pod(node=""))
    code, status = client.call("POST", f"{_PODS}/p/binding", {"target": {"kind": "Node", "name": "n9"}})
    assert (code, status["status"]) == (201, "Success")
    _, pod = client.call("GET", f"{_PODS}/p")
    assert pod["spec"]["nodeName"] == "n9"
    assert [(c["type"], c["status"]) for c in pod["status"]["conditions"]] == [("PodScheduled", "True")]
    client.call("PATCH", f"{_PODS}/p/status", {"status": {"phase": "Running"}}, content_type=MERGE)
    assert client.call("POST", f"{_PODS}/p/eviction", {"metadata": {"name": "p"}})[0] == 201
    _, pod = client.call("GET", f"{_PODS}/p")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert pod["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"


def test_a_lease_may_be_created_by_an_update(client: Client) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 40}}
    code, created = client.call("PUT", f"{_LEASES}/l", lease)
    assert code == 201
    assert client.call("PUT", f"{_LEASES}/l", created)[0] == 200


def test_generated_names(client: Client) -> None:
    names = {client.call("POST", _MAPS, {"metadata": {"generateName": "m-"}})[1]["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5 and all(name.startswith("m-") and len(name) == 7 for name in names)


def test_a_dry_run_changes_nothing(client: Client) -> None:
    assert client.call("POST", f"{_MAPS}?dryRun=All", {"metadata": {"name": "m"}})[0] == 201
    assert client.call("GET", f"{_MAPS}/m")[0] == 404
    client.call("POST", _MAPS, {"metadata": {"name": "m"}})
    client.call("DELETE", f"{_MAPS}/m?dryRun=All")
    assert client.call("GET", f"{_MAPS}/m")[0] == 200


def test_deleting_a_collection(client: Client) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        client.call("POST", _MAPS, {"metadata": {"name": name, "labels": {"l": label}}})
    code, deleted = client.call("DELETE", f"{_MAPS}?labelSelector=l%3Dx")
    assert (code, [item["metadata"]["name"] for item in deleted["items"]]) == (200, ["a", "b"])
    assert [item["metadata"]["name"] for item in client.call("GET", _MAPS)[1]["items"]] == ["c"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({"fieldSelector": "spec.nodeName=n1"}, ["a", "b"]),
        ({"fieldSelector": "spec.nodeName!=n1"}, ["c"]),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "status.phase=Running"}, ["a"]),
        ({"fieldSelector": "spec.nodeName=n1,status.phase!=Running"}, ["b"]),
        ({"labelSelector": "app"}, ["a", "b"]),
        ({"labelSelector": "!app"}, ["c"]),
        ({"labelSelector": "app in (x,z)"}, ["a"]),
        ({"labelSelector": "app notin (x)"}, ["b", "c"]),
        ({"labelSelector": "app=y", "fieldSelector": "spec.nodeName=n1"}, ["b"]),
    ],
)
def test_selectors(api: APIServer, client: Client, selector: dict[str, str], names: list[str]) -> None:
    for name, node, labels in (("a", "n1", {"app": "x"}), ("b", "n1", {"app": "y"}), ("c", "n2", {})):
        client.call("POST", _PODS, {**_pod(name, node), "metadata": {"name": name, "labels": labels}})
    api.store.patch("pods", "a", {"status": {"phase": "Running"}}, "default", subresource="status")
    _, found = client.call("GET", "/api/v1/pods", **selector)
    assert [item["metadata"]["name"] for item in found["items"]] == names
    assert "kind" not in found["items"][0]


def test_paging_shows_one_moment(client: Client) -> None:
    for i in range(5):
        client.call("POST", _MAPS, {"metadata": {"name": f"m{i}"}})
    _, page = client.call("GET", _MAPS, limit="2")
    assert page["metadata"]["remainingItemCount"] == 3
    client.call("DELETE", f"{_MAPS}/m3")
    client.call("POST", _MAPS, {"metadata": {"name": "m9"}})
    names = [item["metadata"]["name"] for item in page["items"]]
    while token := page["metadata"].get("continue"):
        _, page = client.call("GET", _MAPS, **{"limit": "2", "continue": token})
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == ["m0", "m1", "m2", "m3", "m4"]
    # With version 0 the limit does not apply, as in a real server's cache.
    assert len(client.call("GET", _MAPS, limit="2", resourceVersion="0")[1]["items"]) == 5


def test_a_page_that_was_forgotten_is_gone(api: APIServer, client: Client) -> None:
    for i in range(3):
        client.call("POST", _MAPS, {"metadata": {"name": f"m{i}"}})
    _, page = client.call("GET", _MAPS, limit="1")
    client.call("DELETE", f"{_MAPS}/m2")
    api.compact()
    code, status = client.call("GET", _MAPS, **{"limit": "1", "continue": page["metadata"]["continue"]})
    assert (code, status["reason"]) == (410, "Expired")
    # The token in the refusal continues with the present objects.
    _, rest = client.call("GET", _MAPS, **{"continue": status["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in rest["items"]] == ["m1"]


def test_a_list_as_of_an_older_version(api: APIServer, client: Client) -> None:
    _, first = client.call("POST", _MAPS, {"metadata": {"name": "m1"}})
    client.call("POST", _MAPS, {"metadata": {"name": "m2"}})
    client.call("DELETE", f"{_MAPS}/m1")
    version = first["metadata"]["resourceVersion"]
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    _, found = client.call("GET", _MAPS, **exact)
    assert [item["metadata"]["name"] for item in found["items"]] == ["m1"]
    api.compact()
    assert client.call("GET", _MAPS, **exact)[0] == 410
    newer = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
    assert [item["metadata"]["name"] for item in client.call("GET", _MAPS, **newer)[1]["items"]] == ["m2"]


def test_watch_from_a_version(api: APIServer, client: Client) -> None:
    _, first = client.call("POST", _MAPS, {"metadata": {"name": "m"}})
    client.call("PATCH", f"{_MAPS}/m", {"data": {"a": "b"}}, content_type=MERGE)
    client.call("DELETE", f"{_MAPS}/m")
    events = client.watch(_MAPS, resourceVersion=first["metadata"]["resourceVersion"])
    assert [next(events)["type"] for _ in range(2)] == ["MODIFIED", "DELETED"]
    client.call("POST", _MAPS, {"metadata": {"name": "m2"}})
    event = next(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "m2")
    assert event["object"]["kind"] == "ConfigMap"
    events.close()


@pytest.mark.parametrize("version", ["", "0"])
def test_watch_begins_with_what_there_is(client: Client, version: str) -> None:
    client.call("POST", _MAPS, {"metadata": {"name": "m"}})
    events = client.watch(_MAPS, resourceVersion=version, timeoutSeconds="1")
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "m")]


@pytest.mark.parametrize(
    ("text", "on"), [("true", True), ("True", True), ("1", True), ("", True), ("0", False), ("False", False)]
)
def test_flags_in_a_query(client: Client, text: str, on: bool) -> None:
    """A boolean query parameter may have any case, because the client library for Python writes True."""
    client.call("POST", _MAPS, {"metadata": {"name": "m"}})
    answer = client.watch(_MAPS, watch=text)
    assert next(answer).get("type") == ("ADDED" if on else None)
    answer.close()


def test_watch_list(client: Client) -> None:
    client.call("POST", _MAPS, {"metadata": {"name": "m"}})
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    events = client.watch(_MAPS, **options)
    assert next(events)["type"] == "ADDED"
    end = next(events)
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    client.call("POST", _MAPS, {"metadata": {"name": "m2"}})
    names = (event["object"]["metadata"]["name"] for event in events if event["type"] == "ADDED")
    assert next(names) == "m2"
    events.close()


def test_bookmarks_say_how_far_a_watch_is(api: APIServer, client: Client) -> None:
    events = client.watch(_MAPS, allowWatchBookmarks="true")
    client.call("POST", _PODS, _pod())
    version = api.store.resource_version
    bookmarks = (event["object"]["metadata"]["resourceVersion"] for event in events if event["type"] == "BOOKMARK")
    assert next(found for found in bookmarks if found == version)
    events.close()


def test_watch_of_what_was_forgotten(api: APIServer, client: Client) -> None:
    client.call("POST", _MAPS, {"metadata": {"name": "m"}})
    api.compact()
    [event] = client.watch(_MAPS, resourceVersion="1")
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: 1 (")


def test_a_watch_sees_objects_come_into_its_selector_and_leave_it(client: Client) -> None:
    _, first = client.call("POST", _MAPS, {"metadata": {"name": "m"}})
    events = client.watch(_MAPS, labelSelector="on=yes", resourceVersion=first["metadata"]["resourceVersion"])
    for labels in ({"on": "yes"}, {"x": "y"}, {"on": "no"}, {"on": "yes"}):
        client.call("PATCH", f"{_MAPS}/m", {"metadata": {"labels": labels}}, content_type=MERGE)
    _, last = client.call("GET", f"{_MAPS}/m")
    client.call("DELETE", f"{_MAPS}/m")
    seen = [next(events) for _ in range(5)]
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    left = seen[2]["object"]["metadata"]
    assert left["labels"] == {"on": "yes", "x": "y"}, "the state before it left"
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions)) and versions[-1] > int(last["metadata"]["resourceVersion"])
    events.close()


def test_events_have_two_names(client: Client) -> None:
    path = "/api/v1/namespaces/default/events"
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    client.call("POST", path, {**event, "reason": "R", "message": "text", "count": 2, "type": "Normal"})
    other = "/apis/events.k8s.io/v1/namespaces/default/events"
    _, seen = client.call("GET", f"{other}/e")
    assert (seen["apiVersion"], seen["note"], seen["deprecatedCount"]) == ("events.k8s.io/v1", "text", 2)
    assert seen["regarding"]["name"] == "p"
    new = {"metadata": {"name": "f"}, "regarding": {"namespace": "default"}, "note": "n"}
    assert client.call("POST", other, new)[0] == 201
    _, found = client.call("GET", path, fieldSelector="involvedObject.name=p")
    assert [item["message"] for item in found["items"]] == ["text"]
    assert client.call("GET", f"{path}/f")[1]["message"] == "n"


def test_a_service_gets_an_address_once(client: Client) -> None:
    path = "/api/v1/namespaces/default/services"
    spec = {"ports": [{"port": 80}]}
    addresses = set()
    for name in ("a", "b"):
        _, service = client.call("POST", path, {"metadata": {"name": name}, "spec": spec})
        addresses.add(service["spec"]["clusterIP"])
    assert len(addresses) == 2
    assert service["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    patch = {"spec": {"clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"]}}
    assert client.call("PATCH", f"{path}/b", patch, content_type=MERGE)[0] == 422
    client.call("POST", path, {"metadata": {"name": "c"}, "spec": {**spec, "clusterIP": "None"}})
    _, found = client.call("GET", path, fieldSelector="spec.clusterIP!=None")
    assert [item["metadata"]["name"] for item in found["items"]] == ["a", "b"]


def test_signing_requests_are_approved_and_signed_apart(client: Client) -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = {"request": "cGVt", "signerName": "a/b", "usages": ["client auth"], "username": "somebody else"}
    _, request = client.call("POST", path, {"metadata": {"name": "c"}, "spec": spec})
    assert request["spec"]["username"] == "admin"
    approved = {**request, "status": {"conditions": [{"type": "Approved", "status": "True"}], "certificate": "eA=="}}
    _, updated = client.call("PUT", f"{path}/c", approved)
    assert updated["status"] == {}
    _, updated = client.call("PUT", f"{path}/c/approval", approved)
    assert [c["type"] for c in updated["status"]["conditions"]] == ["Approved"]
    assert "certificate" not in updated["status"]
    _, updated = client.call("PATCH", f"{path}/c/status", {"status": {"certificate": "eA=="}}, content_type=MERGE)
    assert updated["status"]["certificate"] == "eA==" and updated["status"]["conditions"]


def test_what_a_client_accepts(client: Client) -> None:
    client.call("POST", _MAPS, {"metadata": {"name": "m"}, "data": {"a": "b"}})
    assert client.call("GET", f"{_MAPS}/m", accept="application/vnd.kubernetes.protobuf")[0] == 406
    assert client.call("GET", f"{_MAPS}/m", accept="application/vnd.kubernetes.protobuf,*/*")[0] == 200
    _, partial = client.call("GET", f"{_MAPS}/m", accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    assert (partial["kind"], sorted(partial)) == ("PartialObjectMetadata", ["apiVersion", "kind", "metadata"])
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    _, found = client.call("GET", _MAPS, accept=table)
    assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert found["rows"][0]["cells"][:2] == ["m", 1]
    assert found["rows"][0]["object"]["metadata"]["name"] == "m"
    event = next(client.watch(_MAPS, accept=table))
    assert event["object"]["kind"] == "Table"


def test_what_the_server_says_of_itself(client: Client) -> None:
    assert client.call("GET", "/healthz") == (200, b"ok")
    assert client.call("GET", "/version")[1]["gitVersion"] == "v1.36.2"
    assert client.call("GET", "/api")[1]["versions"] == ["v1"]
    groups = {group["name"] for group in client.call("GET", "/apis")[1]["groups"]}
    assert {"coordination.k8s.io", "certificates.k8s.io", "storage.k8s.io", "node.k8s.io"} <= groups
    for path in ("/api/v1", "/apis/coordination.k8s.io/v1", "/apis/storage.k8s.io/v1"):
        assert client.call("GET", path)[1]["kind"] == "APIResourceList"
    assert client.call("GET", "/apis/nothing/v1") == (404, b"404 page not found\n")


def test_the_store_is_what_clients_see(api: APIServer, client: Client) -> None:
    watch = api.store.watch("configmaps", "default")
    client.call("POST", _MAPS, {"metadata": {"name": "m"}})
    event = next(iter(watch))
    assert (event.type, event.object["metadata"]["name"]) == ("ADDED", "m")
    event.object["data"] = {"mine": "alone"}
    watch.stop()
    assert list(watch) == []
    assert "data" not in api.store.get("configmaps", "m", "default")


def test_what_a_watch_was_told_can_be_taken_without_waiting(api: APIServer) -> None:
    for name in ("before", "deleted"):
        api.store.create("configmaps", {"metadata": {"name": name, "namespace": "default"}})
    watch = api.store.watch("configmaps", "default", field_selector="metadata.name!=other")

    def taken() -> list[tuple[str, str]]:
        return [(event.type, event.object["metadata"]["name"]) for event in watch.pending()]

    assert taken() == [("ADDED", "before"), ("ADDED", "deleted")]
    assert taken() == []
    for name in ("other", "after"):
        api.store.create("configmaps", {"metadata": {"name": name, "namespace": "default"}})
    api.store.delete("configmaps", "deleted", "default")
    assert taken() == [("ADDED", "after"), ("DELETED", "deleted")]
    api.store.create("configmaps", {"metadata": {"name": "last", "namespace": "default"}})
    watch.stop()
    assert taken() == [("ADDED", "last")]
    assert taken() == []


def test_a_server_keeps_its_port_and_objects_over_a_stop(api: APIServer) -> None:
    api.store.create("configmaps", {"metadata": {"name": "m", "namespace": "default"}})
    url = api.url
    api.stop()
    with pytest.raises(ConnectionRefusedError), Client(api.port) as client:
        client.call("GET", "/healthz")
    api.start()
    assert api.url == url
    with Client(api.port) as client:
        assert client.call("GET", f"{_MAPS}/m")[0] == 200


def test_stopping_ends_watches_and_threads(api: APIServer) -> None:
    with Client(api.port) as client:
        events = client.watch(_MAPS, allowWatchBookmarks="true")
        next(events)
        before = [thread for thread in threading.enumerate() if thread.name.startswith("apiserver")]
        assert before
        api.stop()
        after = [thread for thread in threading.enumerate() if thread.name.startswith("apiserver")]
        assert after == []
        events.close()


def test_concurrent_writers_lose_nothing(api: APIServer) -> None:
    api.store.create("configmaps", {"metadata": {"name": "m", "namespace": "default"}})

    def write(worker: int) -> None:
        with Client(api.port) as client:
            for i in range(20):
                patch = {"data": {f"{worker}-{i}": "x"}}
                assert client.call("PATCH", f"{_MAPS}/m", patch, content_type=MERGE)[0] == 200

    threads = [golang.go(write, worker, name=f"writer-{worker}") for worker in range(4)]
    for thread in threads:
        thread.join()
    assert len(api.store.get("configmaps", "m", "default")["data"]) == 80


def test_faults_may_cut_a_connection(api: APIServer, client: Client) -> None:
    class CutOnce(NoFaults):
        done = False

        def before(self, request: Request) -> None:
            if not self.done:
                self.done = True
                raise Cut

    api.faults = CutOnce()
    with pytest.raises(ConnectionError):
        client.call("GET", _MAPS)
    assert client.call("GET", _MAPS)[0] == 200


def test_audit_sees_every_request(client: Client, api: APIServer) -> None:
    seen: list[tuple[str, str, int]] = []
    api.audit = lambda request, code: seen.append((request.verb, request.resource, code))
    client.call("POST", _PODS, _pod())
    client.call("PATCH", f"{_PODS}/p/status", {}, content_type=MERGE)
    client.call("GET", f"{_PODS}/q")
    client.call("GET", _PODS)
    assert seen[:3] == [("create", "pods", 201), ("patch", "pods", 200), ("get", "pods", 404)]


def test_a_client_that_goes_ends_its_watch(api: APIServer, client: Client) -> None:
    events = client.watch(_MAPS, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", resourceVersion="")
    ended = threading.Event()
    api.audit = lambda request, code: ended.set() if request.verb == "watch" else None
    client.call("POST", _MAPS, {"metadata": {"name": "m"}})
    assert next(events)["type"] == "ADDED"
    assert not ended.is_set()
    events.close()
    assert ended.wait(30), "the watch did not end when its client closed the connection"


def test_https_shows_who_the_client_is(tmp_path: Path) -> None:
    authority = CertificateAuthority.create()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    pair = authority.server_pair(["127.0.0.1"]).write(tmp_path, "server")
    seen: list[bytes | None] = []
    context = server_context(*pair, tmp_path / "ca.crt")
    with APIServer(ssl_context=context, audit=lambda request, _: seen.append(request.peer_certificate)) as api:
        assert api.url == f"https://127.0.0.1:{api.port}"
        trust = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        with pytest.raises(ssl.SSLError):  # A client that rejects every certificate does not disturb the others.
            http.client.HTTPSConnection("127.0.0.1", api.port, context=ssl.create_default_context()).connect()
        for name in (None, "somebody"):
            if name is not None:
                trust.load_cert_chain(*authority.client_pair(name).write(tmp_path, name))
            connection = http.client.HTTPSConnection("127.0.0.1", api.port, context=trust, timeout=10)
            for _ in range(2):
                connection.request("GET", "/healthz")
                assert connection.getresponse().read() == b"ok"
            connection.close()
    assert seen[:2] == [None, None]
    assert seen[2] is not None and seen[2] == seen[3]


def test_nothing_is_missed_over_watches_that_are_cut(api: APIServer) -> None:
    """A client that continues from its last version sees every change once and in order, even after many cuts."""
    names = [f"m{i}" for i in range(10)]
    for name in names:
        api.store.create("configmaps", {"metadata": {"name": name, "namespace": "default"}})
    start = int(api.store.resource_version)
    written = 300

    def write() -> None:
        for i in range(written):
            api.store.patch("configmaps", names[i % 10], {"data": {"n": str(i)}}, "default")

    writer = golang.go(write, name="writer")
    seen: list[int] = []
    cuts = 0
    with Client(api.port) as client:
        while len(seen) < written:
            since = str(seen[-1] if seen else start)
            try:
                for event in client.watch(_MAPS, resourceVersion=since):
                    seen.append(int(event["object"]["metadata"]["resourceVersion"]))
                    if len(seen) % 25 == 0 and len(seen) < written:
                        api.cut_connections()
                        cuts += 1
                    if len(seen) == written:
                        break
            except (OSError, http.client.HTTPException, ValueError):
                continue  # The watch was cut in the middle of a line or of the response's beginning.
    writer.join()
    assert cuts >= 10
    assert seen == list(range(start + 1, start + written + 1))


def test_who_is_nobody_hears_nothing(api: APIServer, client: Client) -> None:
    class Nobody(AllowAll):
        def authenticate(self, request: Request) -> UserInfo | None:
            return None

        def authorize(self, request: Request) -> tuple[bool, str]:
            return False, "because"

    api.authenticator = api.authorizer = Nobody()
    for path in ("/api/v1/foos", f"{_PODS}/p", "/version"):
        code, status = client.call("GET", path)
        assert (code, status["reason"]) == (403, "Forbidden")
    assert client.call("GET", f"{_PODS}/p")[1]["message"] == (
        'pods "p" is forbidden: User "system:anonymous" cannot get resource "pods" in API group "" in the namespace '
        '"default": because'
    )
    api.anonymous = False
    assert client.call("GET", "/api/v1/foos")[0] == 401


def test_the_store_answers_as_the_server_does(api: APIServer) -> None:
    api.store.create("configmaps", {"metadata": {"name": "m", "namespace": "default"}})
    version = api.store.resource_version
    api.store.patch("configmaps", "m", {"data": {"a": "b"}}, "default")
    stale = {"metadata": {"name": "m", "namespace": "default", "resourceVersion": version}}
    for call, code in (
        (lambda: api.store.get("configmaps", "x", "default"), 404),
        (lambda: api.store.create("configmaps", stale), 500),
        (lambda: api.store.update("configmaps", stale), 409),
        (lambda: api.store.delete("configmaps", "m", "default", uid="other"), 409),
        (lambda: api.store.list("configmaps", field_selector="a=b"), 400),
    ):
        with pytest.raises(ApiError) as info:
            call()
        assert info.value.code == code
    api.compact()
    with pytest.raises(ApiError, match="too old resource version"):
        api.store.watch("configmaps", resource_version=version)


def test_admission_changes_nothing_but_the_new_object(api: APIServer) -> None:
    class Meddler(AllowAll):
        def admit(self, request: Request, operation: str, new: Object | None, old: Object | None) -> Object | None:
            if request.subresource == "status" and new is not None:
                new["spec"]["containers"][0]["image"] = "changed"
            return new

    api.store.create("pods", {**_pod(), "metadata": {"name": "p", "namespace": "default"}})
    before = api.store.resource_version
    watch = api.store.watch("pods", resource_version=str(int(before) - 1))
    api.admission = Meddler()
    api.store.patch("pods", "p", {"status": {"phase": "Running"}}, "default", subresource="status")
    images = [event.object["spec"]["containers"][0]["image"] for _, event in zip(range(2), watch, strict=False)]
    watch.stop()
    assert images == ["busybox", "changed"]


_BUNDLES = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles"
_NO_SIGNER = 'ClusterTrustBundle without signer name must not have ":" in its name'
_OTHER_SIGNER = "ClusterTrustBundle for signerName example.com/own must be named with prefix example.com:own:"


@pytest.mark.parametrize(
    ("name", "signer", "times", "why"),
    [
        ("mine", "", 1, ""),
        ("example.com:own:mine", "example.com/own", 1, ""),
        ("example.com:own:mine", "", 1, _NO_SIGNER),
        ("mine", "example.com/own", 1, _OTHER_SIGNER),
        ("mine", "example", 1, "must be a fully qualified domain and path"),
        ("mine", "", 0, "does not parse as X.509"),
        ("mine", "", 2, "duplicate trust anchor"),
    ],
)
def test_trust_bundles(client: Client, name: str, signer: str, times: int, why: str) -> None:
    spec = {"signerName": signer, "trustBundle": times * CertificateAuthority.create().pem.decode()}
    code, answer = client.call("POST", _BUNDLES, {"metadata": {"name": name}, "spec": spec})
    if why:
        assert code == 422 and why in answer["message"]
        return
    assert code == 201
    found = client.call("GET", f"{_BUNDLES}?fieldSelector=spec.signerName%3D{signer.replace('/', '%2F')}")[1]
    assert [each["metadata"]["name"] for each in found["items"]] == [name]


@pytest.mark.parametrize(("size", "code"), [(1 << 20, 201), ((1 << 20) + 1, 422)])
@pytest.mark.parametrize("kind", ["configmaps", "secrets"])
def test_large_objects(client: Client, kind: str, size: int, code: int) -> None:
    data = {"stringData" if kind == "secrets" else "data": {"a": "x" * (size - 1), "b": "x"}}
    got, answer = client.call("POST", f"/api/v1/namespaces/default/{kind}", {"metadata": {"name": "large"}, **data})
    assert got == code
    assert code == 201 or "may not be more than 1048576 bytes" in answer["message"]
