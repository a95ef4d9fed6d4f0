"""Test what stored roles allow."""

from __future__ import annotations

from typing import Any

import pytest

from framework.apiserver.authorization import ClusterAuthorizer
from framework.apiserver.errors import ApiError
from framework.apiserver.interfaces import Request, UserInfo

JOE = UserInfo("joe", "", ("cooks",), {})
APP = UserInfo("system:serviceaccount:shop:app", "", (), {})


Subjects = list[dict[str, str]]


class Objects:
    """Implement the part of a store that roles need."""

    def __init__(self) -> None:
        self.objects: list[tuple[str, dict[str, Any]]] = []

    def add(self, plural: str, name: str, namespace: str = "", **fields: Any) -> None:
        self.objects.append((plural, {"metadata": {"name": name, "namespace": namespace}, **fields}))

    def list(self, plural: str, namespace: str = "", **selectors: str) -> list[dict[str, Any]]:
        return [o for p, o in self.objects if p == plural and namespace in ("", o["metadata"]["namespace"])]

    def get(self, plural: str, name: str, namespace: str = "") -> dict[str, Any]:
        for o in self.list(plural, namespace):
            if o["metadata"]["name"] == name:
                return o
        raise ApiError(404, "NotFound", name)

    def bind(self, role: str, subjects: Subjects, namespace: str = "", kind: str = "ClusterRole") -> None:
        plural = "rolebindings" if namespace else "clusterrolebindings"
        self.add(plural, "b", namespace, roleRef={"kind": kind, "name": role}, subjects=subjects)


def ask(user: UserInfo, verb: str, what: str, namespace: str = "", name: str = "") -> Request:
    if what.startswith("/"):
        return Request("", what, user=user, verb=verb)
    resource, _, subresource = what.partition("/")
    return Request(
        "", "", user=user, verb=verb, group="", version="v1", resource=resource, subresource=subresource,
        namespace=namespace, name=name,
    )  # fmt: skip


def allowed(objects: Objects, request: Request) -> bool:
    return ClusterAuthorizer(lambda: objects).authorize(request)[0]  # type: ignore[arg-type, return-value]


JOE_SUBJECT = {"kind": "User", "name": "joe"}
METRICS = [{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes/metrics"]}]


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        (JOE, {"kind": "User", "name": "joe"}),
        (JOE, {"kind": "Group", "name": "cooks"}),
        (APP, {"kind": "ServiceAccount", "name": "app", "namespace": "shop"}),
    ],
)
def test_subjects(user: UserInfo, subject: dict[str, str]) -> None:
    objects = Objects()
    objects.add("clusterroles", "metrics", rules=METRICS)
    objects.bind("metrics", subjects=[subject])
    assert allowed(objects, ask(user, "get", "nodes/metrics", name="n"))
    for other in (JOE, APP, UserInfo("ann", "", (), {})):
        assert allowed(objects, ask(other, "get", "nodes/metrics", name="n")) == (other is user)
    for verb, what in (("create", "nodes/metrics"), ("get", "nodes/proxy"), ("get", "nodes"), ("get", "/metrics")):
        assert not allowed(objects, ask(user, verb, what, name="n"))


@pytest.mark.parametrize(
    ("rule", "request_", "expected"),
    [
        ({"resources": ["*"]}, ask(JOE, "get", "nodes/proxy"), True),
        ({"resources": ["nodes/*"]}, ask(JOE, "get", "nodes/proxy"), False),
        ({"resources": ["*/proxy"]}, ask(JOE, "get", "nodes/proxy"), True),
        ({"resources": ["nodes/proxy"], "resourceNames": ["a"]}, ask(JOE, "get", "nodes/proxy", name="a"), True),
        ({"resources": ["nodes/proxy"], "resourceNames": ["a"]}, ask(JOE, "get", "nodes/proxy", name="b"), False),
        ({"resources": ["pods"], "apiGroups": ["apps"]}, ask(JOE, "get", "pods"), False),
        ({"nonResourceURLs": ["/metrics"]}, ask(JOE, "get", "/metrics"), True),
        ({"nonResourceURLs": ["/debug/*"]}, ask(JOE, "get", "/debug/pprof"), True),
        ({"nonResourceURLs": ["/debug/*"]}, ask(JOE, "get", "/metrics"), False),
    ],
)
def test_rules(rule: dict[str, Any], request_: Request, expected: bool) -> None:
    objects = Objects()
    objects.add("clusterroles", "r", rules=[{"verbs": ["get"], "apiGroups": [""], **rule}])
    objects.bind("r", subjects=[JOE_SUBJECT])
    assert allowed(objects, request_) == expected


def test_role_in_a_namespace() -> None:
    objects = Objects()
    objects.add("roles", "reader", "shop", rules=[{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])
    objects.bind("reader", [{"kind": "ServiceAccount", "name": "app"}], "shop", "Role")
    assert allowed(objects, ask(APP, "get", "pods", "shop"))
    assert not allowed(objects, ask(APP, "get", "pods", "bank"))
    assert not allowed(objects, ask(APP, "get", "pods"))


def test_roles_that_every_cluster_has() -> None:
    objects = Objects()
    objects.bind("system:kubelet-api-admin", [JOE_SUBJECT])
    for what in ("proxy", "metrics", "stats", "log", "pods", "healthz", "configz"):
        assert allowed(objects, ask(JOE, "create", f"nodes/{what}"))
    assert not allowed(objects, ask(JOE, "create", "nodes/statusz"))
    assert not allowed(objects, ask(JOE, "get", "pods"))
    objects.bind("unheard-of", [JOE_SUBJECT])
    assert not allowed(objects, ask(JOE, "get", "pods"))
