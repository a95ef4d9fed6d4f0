from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from framework.apiserver import APIServer
from framework.apiserver.controllers import Disruption
from framework.apiserver.errors import ApiError
from framework.apiserver.interfaces import Object
from framework.apiserver.times import timestamp
from framework.waiting import wait_for

TIMEOUT = 10.0
WEB = {"app": "web"}
BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."


@pytest.fixture
def api() -> Iterator[APIServer]:
    """Run a server with the controller."""
    with APIServer(controllers=[Disruption()]) as api:
        yield api


def _pod(api: APIServer, name: str, ready: bool = True, owner: Object | None = None, **labels: str) -> Object:
    metadata: Object = {"name": name, "namespace": "default", "labels": labels or WEB}
    if owner is not None:
        reference = {key: owner["metadata"][key] for key in ("name", "uid")}
        reference |= {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [reference]
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    api.store.create("pods", {"metadata": metadata, "spec": spec})
    return _report(api, name, ready)


def _report(api: APIServer, name: str, ready: bool) -> Object:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"phase": "Running", "conditions": [condition]}
    return api.store.patch("pods", name, {"status": status}, "default", subresource="status")


def _budget(api: APIServer, name: str = "b", labels: Object | None = None, **spec: Any) -> None:
    selector = {"matchLabels": WEB if labels is None else labels}
    metadata = {"name": name, "namespace": "default"}
    api.store.create("poddisruptionbudgets", {"metadata": metadata, "spec": {"selector": selector, **spec}})


def _wait_for_status(api: APIServer, condition: Callable[[Object], object], name: str = "b") -> Object:
    def look() -> Object | None:
        found: Object = api.store.get("poddisruptionbudgets", name, "default")["status"]
        return found if found.get("observedGeneration") and condition(found) else None

    status = wait_for("the budget's status", look, TIMEOUT)
    assert status is not None
    return status


def _counts(status: Object) -> tuple[int, int, int, int]:
    names = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
    return tuple(status[name] for name in names)


def _evict(api: APIServer, name: str, **options: Any) -> None:
    eviction = {"metadata": {"name": name, "namespace": "default"}, "deleteOptions": options}
    api.store.create("pods", eviction, subresource="eviction")


def _is_ending(api: APIServer, name: str) -> bool:
    return "deletionTimestamp" in api.store.get("pods", name, "default")["metadata"]


COUNTS: list[tuple[str, Object, tuple[int, int, int, int]]] = [
    ("a minimum", {"minAvailable": 2}, (3, 2, 2, 0)),
    ("a smaller minimum", {"minAvailable": 1}, (3, 1, 2, 1)),
    ("a minimum percentage, rounded up", {"minAvailable": "50%"}, (4, 2, 2, 0)),
    ("a smaller percentage", {"minAvailable": "25%"}, (4, 1, 2, 1)),
    ("a maximum of unavailable pods", {"maxUnavailable": 3}, (4, 1, 2, 1)),
    ("a maximum percentage of unavailable pods", {"maxUnavailable": "30%"}, (4, 2, 2, 0)),
    ("all may be unavailable", {"maxUnavailable": "100%"}, (4, 0, 2, 2)),
    ("no limit", {}, (0, 0, 2, 0)),
]


@pytest.mark.parametrize(("spec", "counts"), [row[1:] for row in COUNTS], ids=[row[0] for row in COUNTS])
def test_how_many_pods_may_go(api: APIServer, spec: Object, counts: tuple[int, int, int, int]) -> None:
    """A budget counts the pods of a replica set that has three of its four pods, two of them ready."""
    metadata = {"name": "web", "namespace": "default"}
    replica_set = api.store.create("replicasets", {"metadata": metadata, "spec": {"replicas": 4}})
    for name, ready in (("a", True), ("b", True), ("c", False)):
        _pod(api, name, ready, replica_set)
    _pod(api, "other", app="other")
    _budget(api, **spec)
    status = _wait_for_status(api, lambda it: _counts(it) == counts)
    condition = status["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "DisruptionAllowed",
        "True" if counts[3] else "False",
        "SufficientPods" if counts[3] else "InsufficientPods",
        "",
    )


def test_the_status_follows_the_pods(api: APIServer) -> None:
    _budget(api, minAvailable=1)
    _wait_for_status(api, lambda it: _counts(it) == (0, 1, 0, 0))
    _pod(api, "a")
    _wait_for_status(api, lambda it: _counts(it) == (1, 1, 1, 0))
    _pod(api, "b")
    _wait_for_status(api, lambda it: _counts(it) == (2, 1, 2, 1))
    _report(api, "a", ready=False)
    _wait_for_status(api, lambda it: _counts(it) == (2, 1, 1, 0))
    api.store.patch("pods", "a", {"metadata": {"labels": {"app": "other"}}}, "default")
    _wait_for_status(api, lambda it: _counts(it) == (1, 1, 1, 0))
    api.store.delete("pods", "b", "default", grace_period_seconds=0)
    _wait_for_status(api, lambda it: _counts(it) == (0, 1, 0, 0))


def test_the_size_of_a_deployment_counts(api: APIServer) -> None:
    deployment = api.store.create(
        "deployments", {"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 5}}
    )
    metadata = deployment["metadata"]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": metadata["uid"], "controller": True}
    replica_set = {"name": "web-1", "namespace": "default", "ownerReferences": [owner]}
    _pod(api, "a", owner=api.store.create("replicasets", {"metadata": replica_set, "spec": {"replicas": 1}}))
    _budget(api, maxUnavailable=1)
    _wait_for_status(api, lambda it: _counts(it) == (5, 4, 1, 0))


def test_pods_whose_number_nobody_knows(api: APIServer) -> None:
    _pod(api, "a")
    _budget(api, maxUnavailable=1)
    _wait_for_status(api, lambda it: _counts(it) == (0, 0, 1, 0))
    with pytest.raises(ApiError) as refused:
        _evict(api, "a")
    assert refused.value.details == {
        "causes": [
            {"reason": "DisruptionBudget", "message": "The disruption budget b does not allow evicting pods currently"}
        ]
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "gone", "uid": "1"}}
    _pod(api, "b", owner=owner)
    _wait_for_status(api, lambda it: it["conditions"][0]["reason"] == "SyncFailed")
    with pytest.raises(ApiError) as refused:
        _evict(api, "b")
    assert refused.value.details is not None
    assert refused.value.details["causes"][0]["message"] == (
        "The disruption budget b does not allow evicting pods currently because it failed sync: "
        'found no controllers for pod "b"'
    )


def test_a_budget_holds_an_eviction_up(api: APIServer) -> None:
    _pod(api, "a")
    _pod(api, "b")
    _budget(api, minAvailable=2)
    _wait_for_status(api, lambda it: _counts(it) == (2, 2, 2, 0))
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)) as connection:
        body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}})
        path = "/api/v1/namespaces/default/pods/a/eviction"
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        status = json.loads(answer.read())
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget b needs 2 healthy pods and has 2 currently",
    }
    assert (answer.status, answer.getheader("Retry-After")) == (429, None)
    assert (status["reason"], status["message"], status["details"]) == ("TooManyRequests", BLOCKED, {"causes": [cause]})
    assert not _is_ending(api, "a")
    _pod(api, "c")
    _wait_for_status(api, lambda it: _counts(it) == (3, 2, 3, 1))
    _evict(api, "a")
    assert _is_ending(api, "a")
    # The eviction counts at once, whether or not the controller has seen it.
    with pytest.raises(ApiError, match=BLOCKED):
        _evict(api, "b")


def test_no_eviction_before_the_budget_has_been_looked_at() -> None:
    with APIServer() as api:
        _pod(api, "a")
        _budget(api, minAvailable=0)
        with pytest.raises(ApiError) as refused:
            _evict(api, "a")
    assert (refused.value.code, refused.value.headers) == (429, {"Retry-After": "10"})
    cause = {"reason": "DisruptionBudget", "message": "The disruption budget b is still being processed by the server."}
    assert refused.value.details == {"causes": [cause], "retryAfterSeconds": 10}


def test_two_budgets_are_too_many(api: APIServer) -> None:
    _pod(api, "a")
    _budget(api, minAvailable=0)
    _budget(api, "everybody", {}, minAvailable=0)
    with pytest.raises(ApiError) as refused:
        _evict(api, "a")
    assert (refused.value.code, refused.value.reason, str(refused.value)) == (
        500,
        "",
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    )


@pytest.mark.parametrize(
    ("policy", "healthy", "allowed"),
    [("IfHealthyBudget", True, True), ("IfHealthyBudget", False, False), ("AlwaysAllow", False, True)],
)
def test_pods_that_are_not_ready(api: APIServer, policy: str, healthy: bool, allowed: bool) -> None:
    _pod(api, "sick", ready=False)
    _pod(api, "other", ready=healthy)
    _budget(api, minAvailable=1, unhealthyPodEvictionPolicy=policy)
    _wait_for_status(api, lambda it: it["currentHealthy"] == healthy)
    with contextlib.nullcontext() if allowed else pytest.raises(ApiError, match=BLOCKED):
        _evict(api, "sick")
    assert _is_ending(api, "sick") == allowed
    assert "disruptedPods" not in api.store.get("poddisruptionbudgets", "b", "default")["status"]


def test_pods_that_have_ended_or_not_begun_need_no_budget(api: APIServer) -> None:
    _budget(api, minAvailable=5)
    for phase in ("Pending", "Succeeded", "Failed"):
        _pod(api, phase.lower())
        api.store.patch("pods", phase.lower(), {"status": {"phase": phase}}, "default", subresource="status")
        _evict(api, phase.lower(), gracePeriodSeconds=0)
    assert api.store.list("pods") == []


def test_a_dry_run_takes_nothing(api: APIServer) -> None:
    _pod(api, "a")
    _budget(api, minAvailable=0)
    _wait_for_status(api, lambda it: it["disruptionsAllowed"] == 1)
    _evict(api, "a", dryRun=["All"])
    assert not _is_ending(api, "a")
    assert _counts(api.store.get("poddisruptionbudgets", "b", "default")["status"]) == (1, 0, 1, 1)


def test_preconditions_of_an_eviction(api: APIServer) -> None:
    pod = _pod(api, "a")
    for preconditions in ({"uid": "other"}, {"resourceVersion": "1"}):
        with pytest.raises(ApiError) as refused:
            _evict(api, "a", preconditions=preconditions)
        assert refused.value.code == 409
    assert not _is_ending(api, "a")
    _evict(api, "a", preconditions={"resourceVersion": pod["metadata"]["resourceVersion"]})
    assert _is_ending(api, "a")


def test_a_pod_counts_again_that_is_not_deleted_after_all() -> None:
    with APIServer(controllers=[Disruption(deletion_timeout=2.0)]) as api:
        _pod(api, "a")
        _budget(api, minAvailable=0)
        _wait_for_status(api, lambda it: it["disruptionsAllowed"] == 1)
        pdb = api.store.get("poddisruptionbudgets", "b", "default")
        pdb["status"]["disruptedPods"] = {"a": timestamp()}
        api.store.update("poddisruptionbudgets", pdb, subresource="status")
        _wait_for_status(api, lambda it: it["disruptionsAllowed"] == 0)
        _wait_for_status(api, lambda it: it["disruptionsAllowed"] == 1 and "disruptedPods" not in it)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"minAvailable": 1, "maxUnavailable": 1}, "minAvailable and maxUnavailable cannot be both set"),
        ({"minAvailable": -1}, "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"),
        ({"maxUnavailable": "101%"}, 'spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%'),
        (
            {"maxUnavailable": "1"},
            'spec.maxUnavailable: Invalid value: "1": a valid percent string must be a numeric followed by an ending '
            "'%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        ),
        (
            {"unhealthyPodEvictionPolicy": "Never"},
            'spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: "AlwaysAllow", '
            '"IfHealthyBudget"',
        ),
    ],
)
def test_what_a_budget_may_be(api: APIServer, spec: Object, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        _budget(api, **spec)
    assert refused.value.code == 422
    assert message in str(refused.value)
