from __future__ import annotations

from dataclasses import replace

import pytest

from framework.apiserver.authorization import AccessReviews, ClusterAuthorizer, node_name
from framework.apiserver.interfaces import ANONYMOUS, Object, Request, UserInfo
from framework.apiserver.rbac import Rule
from framework.apiserver.testing import FakeStore

NODE = UserInfo("system:node:n1", groups=("system:nodes", "system:authenticated"))
ADMIN = UserInfo("admin", groups=("system:masters", "system:authenticated"))
BOOTSTRAPPER = UserInfo("system:bootstrap:abcdef", groups=("system:bootstrappers", "system:authenticated"))
ANN = UserInfo("ann", groups=("system:authenticated",))

NO_RELATION = "no relationship found between node 'n1' and this object"


def pod(name: str, node: str, **spec: object) -> Object:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"nodeName": node, **spec}}


@pytest.fixture
def store() -> FakeStore:
    """Return a store with pods, nodes, and the objects that the pods refer to.

    A pod on n1 refers to objects called n1-..., and one on n2 to objects called n2-... . There is a mirror pod on n1,
    too.
    """
    store = FakeStore()
    for node in ("n1", "n2"):
        store.add("nodes", {"metadata": {"name": node}})
        store.add("pods", {**pod(f"{node}-pod", node, **_references(node)), "status": _claim_statuses(node)})
        claim = {"namespace": "ns", "name": f"{node}-claim"}
        secret = {"name": f"{node}-of-volume", "namespace": "elsewhere"}
        csi = {"driver": "d", "nodeStageSecretRef": secret, "controllerPublishSecretRef": {"name": "controllers"}}
        volume: Object = {"metadata": {"name": f"{node}-volume"}, "spec": {"claimRef": claim, "csi": csi}}
        store.add("persistentvolumes", volume)
        store.add("resourceslices", {"metadata": {"name": f"{node}-slice"}, "spec": {"nodeName": node}})
        store.add("volumeattachments", {"metadata": {"name": f"{node}-attachment"}, "spec": {"nodeName": node}})
    store.add("persistentvolumes", {"metadata": {"name": "unclaimed"}, "spec": {}})
    mirror = pod("mirror", "n1", imagePullSecrets=[{"name": "by-mirror"}])
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    store.add("pods", mirror)
    return store


def _claim_statuses(node: str) -> Object:
    """Return the names of the resource claims that were created for the pod."""
    return {
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": f"{node}-made-devices"}, {"name": "none"}],
        "extendedResourceClaimStatus": {"resourceClaimName": f"{node}-extended-devices"},
    }


def _references(node: str) -> Object:
    """Return the spec of a pod that refers to secrets and config maps in every possible way."""

    def reference(kind: str) -> Object:
        return {"name": f"{node}-{kind}"}

    container = {
        "env": [
            {"name": "A", "valueFrom": {"secretKeyRef": reference("env-secret")}},
            {"name": "B", "valueFrom": {"configMapKeyRef": reference("env-map")}},
            {"name": "C", "value": "x"},
        ],
        "envFrom": [{"secretRef": reference("from-secret")}, {"configMapRef": reference("from-map")}],
    }
    projected = [
        {"secret": reference("projected-secret")},
        {"configMap": reference("projected-map")},
        {"downwardAPI": {}},
    ]
    return {
        "serviceAccountName": f"{node}-account",
        "imagePullSecrets": [reference("pull-secret")],
        "initContainers": [{"envFrom": [{"secretRef": reference("init-secret")}]}],
        "containers": [container],
        "ephemeralContainers": [{"envFrom": [{"configMapRef": reference("ephemeral-map")}]}],
        "resourceClaims": [
            {"name": "named", "resourceClaimName": f"{node}-devices"},
            {"name": "made", "resourceClaimTemplateName": "template"},
            {"name": "none", "resourceClaimTemplateName": "template"},
        ],
        "volumes": [
            {"name": "a", "secret": {"secretName": f"{node}-secret"}},
            {"name": "b", "configMap": reference("map")},
            {"name": "c", "projected": {"sources": projected}},
            {"name": "d", "persistentVolumeClaim": {"claimName": f"{node}-claim"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "f", "csi": {"driver": "d", "nodePublishSecretRef": reference("csi-secret")}},
            {"name": "g", "azureFile": {"secretName": f"{node}-azure-secret"}},
            {"name": "h", "emptyDir": {}},
        ],
    }


def ask(verb: str, what: str, name: str = "", namespace: str = "", selector: str = "") -> Request:
    """Return a request for `what`, which is GROUP/RESOURCE or RESOURCE, optionally with :SUBRESOURCE."""
    what, _, subresource = what.partition(":")
    group, _, resource = what.rpartition("/")
    query = {"fieldSelector": [selector]} if selector else {}
    return Request(
        "",
        "",
        query,
        user=NODE,
        verb=verb,
        group=group,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


ONLY_GET = "can only get individual resources of this type"
LEASES, CSI_NODES = "coordination.k8s.io/leases", "storage.k8s.io/csinodes"
SLICES, CLAIMS = "resource.k8s.io/resourceslices", "resource.k8s.io/resourceclaims"
CSRS = "certificates.k8s.io/certificatesigningrequests"
ATTACHMENTS = "storage.k8s.io/volumeattachments"
POD_SELECTOR = "can only list/watch pods with spec.nodeName field selector"

# Each row is a node's request, and the reason for its refusal or None.
NODE_CHECKS: list[tuple[Request, str | None]] = [
    # The following rows are about secrets.
    *[
        (ask("get", "secrets", f"n1-{name}", "ns"), None)
        for name in (
            *("secret", "env-secret", "from-secret", "init-secret", "pull-secret"),
            *("projected-secret", "csi-secret", "azure-secret"),
        )
    ],
    (ask("list", "secrets", "", "ns", "metadata.name=n1-secret"), None),
    (ask("watch", "secrets", "", "ns", "metadata.name=n1-secret"), None),
    (ask("watch", "secrets", "n1-secret", "ns"), None),
    (ask("get", "secrets", "n1-of-volume", "elsewhere"), None),
    (ask("get", "secrets", "n2-of-volume", "elsewhere"), NO_RELATION),
    (ask("get", "secrets", "controllers", "ns"), NO_RELATION),
    (ask("get", "secrets", "n2-secret", "ns"), NO_RELATION),
    (ask("get", "secrets", "n1-secret", "other"), NO_RELATION),
    (ask("get", "secrets", "by-mirror", "ns"), NO_RELATION),
    (ask("get", "secrets", "n1-map", "ns"), NO_RELATION),
    (ask("list", "secrets", "", "ns"), "No Object name found"),
    (ask("list", "secrets"), "can only read namespaced object of this type"),
    (ask("update", "secrets", "n1-secret", "ns"), "can only read resources of this type"),
    (ask("get", "secrets:foo", "n1-secret", "ns"), "cannot read subresource"),
    # The following rows are about config maps.
    *[
        (ask("get", "configmaps", f"n1-{name}", "ns"), None)
        for name in ("map", "env-map", "from-map", "ephemeral-map", "projected-map")
    ],
    (ask("get", "configmaps", "n2-map", "ns"), NO_RELATION),
    (ask("create", "configmaps", "", "ns"), "can only read resources of this type"),
    # The following rows are about claims and volumes.
    (ask("get", "persistentvolumeclaims", "n1-claim", "ns"), None),
    (ask("get", "persistentvolumeclaims", "n1-pod-e", "ns"), None),
    (ask("get", "persistentvolumeclaims", "n2-claim", "ns"), NO_RELATION),
    (ask("list", "persistentvolumeclaims", "", "ns"), ONLY_GET),
    (ask("patch", "persistentvolumeclaims:status", "n1-claim", "ns"), None),
    (ask("update", "persistentvolumeclaims:status", "n2-claim", "ns"), NO_RELATION),
    (ask("get", "persistentvolumeclaims:status", "n1-claim", "ns"), "can only get/update/patch this type"),
    (ask("get", "persistentvolumes", "n1-volume"), None),
    (ask("get", "persistentvolumes", "n2-volume"), NO_RELATION),
    (ask("get", "persistentvolumes", "unclaimed"), NO_RELATION),
    (ask("get", "persistentvolumes", "missing"), NO_RELATION),
    (ask("watch", "persistentvolumes", "n1-volume"), ONLY_GET),
    (ask("get", "persistentvolumes:status", "n1-volume"), "cannot get subresource"),
    (ask("get", ATTACHMENTS, "n1-attachment"), None),
    (ask("get", ATTACHMENTS, "n2-attachment"), NO_RELATION),
    (ask("list", ATTACHMENTS), ONLY_GET),
    # The following rows are about resource claims.
    *[(ask("get", CLAIMS, f"n1-{name}", "ns"), None) for name in ("devices", "made-devices", "extended-devices")],
    (ask("get", CLAIMS, "n2-devices", "ns"), NO_RELATION),
    (ask("list", CLAIMS, "", "ns"), ONLY_GET),
    (ask("get", f"{CLAIMS}:status", "n1-devices", "ns"), "cannot get subresource"),
    # The following rows are about resource slices.
    (ask("create", SLICES), None),
    (ask("get", SLICES, "n1-slice"), None),
    (ask("delete", SLICES, "n2-slice"), NO_RELATION),
    (ask("deletecollection", SLICES, selector="spec.nodeName=n1"), None),
    (ask("list", SLICES), "can only list/watch/deletecollection resourceslices with nodeName field selector"),
    (ask("get", f"{SLICES}:status", "n1-slice"), "cannot authorize ResourceSlice subresources"),
    # The following rows are about service accounts.
    (ask("get", "serviceaccounts", "n1-account", "ns"), None),
    (ask("get", "serviceaccounts", "n2-account", "ns"), NO_RELATION),
    (ask("create", "serviceaccounts:token", "n1-account", "ns"), None),
    (ask("create", "serviceaccounts:token", "n2-account", "ns"), NO_RELATION),
    (ask("create", "serviceaccounts:token", "n1-account", "other"), NO_RELATION),
    (ask("create", "serviceaccounts", "", "ns"), "can only create tokens for individual service accounts"),
    (ask("list", "serviceaccounts", "", "ns"), "can only create tokens for individual service accounts"),
    (
        ask("create", "serviceaccounts:other", "n1-account", "ns"),
        "can only create token subresource of serviceaccount",
    ),
    # The following rows are about leases.
    *[(ask(verb, LEASES, "n1", "kube-node-lease"), None) for verb in ("get", "update", "patch", "delete")],
    (ask("create", LEASES, "", "kube-node-lease"), None),
    (ask("list", LEASES, "", "kube-node-lease"), "can only get, create, update, patch, or delete a node lease"),
    (ask("get", LEASES, "n1", "ns"), 'can only access leases in the "kube-node-lease" system namespace'),
    (
        ask("update", LEASES, "n2", "kube-node-lease"),
        "can only access node lease with the same name as the requesting node",
    ),
    # The following rows are about CSI nodes.
    *[(ask(verb, CSI_NODES, "n1"), None) for verb in ("get", "update", "patch", "delete")],
    (ask("create", CSI_NODES), None),
    (ask("watch", CSI_NODES), "can only get, create, update, patch, or delete a CSINode"),
    (ask("get", CSI_NODES, "n2"), "can only access CSINode with the same name as the requesting node"),
    (ask("get", f"{CSI_NODES}:status", "n1"), "cannot authorize CSINode subresources"),
    # The following rows are about nodes.
    (ask("create", "nodes"), None),
    (ask("update", "nodes", "n2"), None),  # NodeRestriction checks this later.
    (ask("patch", "nodes:status", "n1"), None),
    (ask("get", "nodes", "n1"), None),
    (ask("list", "nodes", selector="metadata.name=n1"), None),
    (ask("watch", "nodes", selector="metadata.name=n1"), None),
    (ask("watch", "nodes", selector="metadata.name!=n1"), "node 'n1' cannot read all nodes, only its own Node object"),
    (ask("list", "nodes"), "node 'n1' cannot read all nodes, only its own Node object"),
    (ask("get", "nodes", "n2"), "node 'n1' cannot read 'n2', only its own Node object"),
    (ask("delete", "nodes", "n1"), ""),
    (ask("get", "nodes:status", "n1"), ""),
    (ask("get", "nodes:proxy", "n1"), ""),
    # The following rows are about pods.
    (ask("get", "pods", "n1-pod", "ns"), None),
    (ask("get", "pods", "mirror", "ns"), None),
    (ask("get", "pods", "n2-pod", "ns"), NO_RELATION),
    (ask("get", "pods", "missing", "ns"), NO_RELATION),
    (ask("list", "pods", selector="spec.nodeName=n1"), None),
    (ask("watch", "pods", selector="status.phase=Running,spec.nodeName=n1"), None),
    (ask("list", "pods"), POD_SELECTOR),
    (ask("list", "pods", selector="spec.nodeName=n2"), POD_SELECTOR),
    (ask("list", "pods", selector="spec.nodeName!=n1"), POD_SELECTOR),
    (ask("watch", "pods", "", "ns", "metadata.name=n1-pod"), None),
    (ask("watch", "pods", "", "ns", "metadata.name=n2-pod"), NO_RELATION),
    (ask("create", "pods", "", "ns"), None),
    (ask("delete", "pods", "n2-pod", "ns"), None),  # NodeRestriction checks this later.
    (ask("patch", "pods:status", "n1-pod", "ns"), None),
    (ask("create", "pods:eviction", "n1-pod", "ns"), None),
    (ask("update", "pods", "n1-pod", "ns"), ""),
    (ask("get", "pods:status", "n1-pod", "ns"), ""),
    (ask("get", "pods:log", "n1-pod", "ns"), ""),
    (ask("deletecollection", "pods", "", "ns"), ""),
    # The following rows are about the rules that are the same for all nodes.
    (ask("watch", "services"), None),
    (ask("create", "services", "", "ns"), ""),
    (ask("create", "events", "", "ns"), None),
    (ask("patch", "events.k8s.io/events", "e", "ns"), None),
    (ask("get", "events", "e", "ns"), ""),
    (ask("create", CSRS), None),
    (ask("watch", CSRS), None),
    (ask("update", f"{CSRS}:approval", "c"), ""),
    (ask("create", f"{CSRS}:nodeclient"), ""),
    (ask("create", f"{CSRS}:selfnodeclient"), None),
    (ask("list", "node.k8s.io/runtimeclasses"), None),
    (ask("list", "storage.k8s.io/csidrivers"), None),
    (ask("watch", "certificates.k8s.io/clustertrustbundles"), None),
    (ask("update", "certificates.k8s.io/clustertrustbundles"), ""),
    (ask("create", "authentication.k8s.io/tokenreviews"), None),
    (ask("create", "authorization.k8s.io/subjectaccessreviews"), None),
    (ask("create", "authorization.k8s.io/selfsubjectaccessreviews"), None),  # Everybody may do this.
    (ask("list", "namespaces"), ""),
    (ask("create", "namespaces"), ""),
]


def _title(request: Request) -> str:
    words = (request.verb, request.group, request.resource, request.subresource, request.namespace, request.name)
    return " ".join((*filter(None, words), request.parameter("fieldSelector")))


@pytest.mark.parametrize(("request_", "refusal"), NODE_CHECKS, ids=[_title(row[0]) for row in NODE_CHECKS])
def test_what_a_node_may(store: FakeStore, request_: Request, refusal: str | None) -> None:
    allowed, reason = ClusterAuthorizer(lambda: store).authorize(request_)
    assert allowed == (refusal is None)
    if refusal is not None:
        assert reason == refusal


def test_a_node_loses_what_its_pod_had(store: FakeStore) -> None:
    authorizer = ClusterAuthorizer(lambda: store)
    wanted = ask("get", "secrets", "n1-secret", "ns")
    assert authorizer.authorize(wanted)[0]
    store.remove("pods", "n1-pod", "ns")
    assert not authorizer.authorize(wanted)[0]


USERS: list[tuple[UserInfo, Request, bool]] = [
    (ADMIN, ask("delete", "nodes", "n1"), True),
    (ADMIN, Request("GET", "/metrics", verb="get"), True),
    (BOOTSTRAPPER, ask("create", CSRS), True),
    (BOOTSTRAPPER, ask("watch", CSRS), True),
    (BOOTSTRAPPER, ask("create", f"{CSRS}:nodeclient"), True),
    (BOOTSTRAPPER, ask("get", "nodes", "n1"), False),
    (BOOTSTRAPPER, ask("delete", CSRS, "c"), False),
    (ANN, ask("get", "pods", "n1-pod", "ns"), False),
    (ANN, ask("create", "authorization.k8s.io/selfsubjectaccessreviews"), True),
    (ANN, Request("GET", "/apis/apps/v1", verb="get"), True),
    (ANN, Request("GET", "/metrics", verb="get"), False),
    (ANONYMOUS, Request("GET", "/healthz", verb="get"), True),
    (ANONYMOUS, Request("GET", "/api", verb="get"), False),
    (ANONYMOUS, ask("list", "pods"), False),
    (UserInfo("system:node:n1", groups=("system:authenticated",)), ask("get", "nodes", "n1"), False),
    (UserInfo("n1", groups=("system:nodes",)), ask("get", "nodes", "n1"), False),
]


@pytest.mark.parametrize(("user", "request_", "allowed"), USERS)
def test_what_others_may(store: FakeStore, user: UserInfo, request_: Request, allowed: bool) -> None:
    assert ClusterAuthorizer(lambda: store).authorize(replace(request_, user=user))[0] == allowed


def test_a_node_without_a_name(store: FakeStore) -> None:
    nobody = UserInfo("system:node:", groups=("system:nodes",))
    refused = ClusterAuthorizer(lambda: store).authorize(replace(ask("get", "nodes", "n1"), user=nobody))
    assert refused == (False, 'unknown node for user "system:node:"')
    assert node_name(ANN) is None


def test_grants(store: FakeStore) -> None:
    authorizer = ClusterAuthorizer(lambda: store)
    authorizer.grant("ann", Rule(("get", "list"), ("pods", "pods/log")), namespace="ns")
    authorizer.grant("staff", Rule(("*",), ("*",), ("*",)))

    def may(user: UserInfo, request: Request) -> bool:
        return authorizer.authorize(replace(request, user=user))[0]

    assert may(ANN, ask("get", "pods:log", "n1-pod", "ns"))
    assert not may(ANN, ask("get", "pods", "p", "other"))
    assert not may(ANN, ask("delete", "pods", "n1-pod", "ns"))
    assert may(UserInfo("bob", groups=("staff",)), ask("delete", CSRS, "c"))


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a==b,c=d", {"a": "b", "c": "d"}),
        ("a!=b", {}),
    ],
)
def test_required_fields(selector: str, found: dict[str, str]) -> None:
    assert ask("list", "pods", selector=selector).required_fields() == found


REVIEWS: list[tuple[str, Object, Object]] = [
    (
        "subjectaccessreviews",
        {"user": "root", "groups": ["system:masters"], "resourceAttributes": {"verb": "get", "resource": "pods"}},
        {"allowed": True},
    ),
    (
        "subjectaccessreviews",
        {"user": "ann", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}},
        {"allowed": False},
    ),
    (
        "selfsubjectaccessreviews",
        {"resourceAttributes": {"verb": "get", "resource": "nodes", "name": "n1"}},
        {"allowed": True},
    ),
    (
        "selfsubjectaccessreviews",
        {"resourceAttributes": {"verb": "get", "resource": "nodes", "name": "n2"}},
        {"allowed": False, "reason": "node 'n1' cannot read 'n2', only its own Node object"},
    ),
    (
        "selfsubjectaccessreviews",
        {
            "resourceAttributes": {
                "verb": "list",
                "resource": "pods",
                "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]},
            }
        },
        {"allowed": True},
    ),
]


@pytest.mark.parametrize(("resource", "spec", "status"), REVIEWS)
def test_access_reviews(store: FakeStore, resource: str, spec: Object, status: Object) -> None:
    review = AccessReviews(ClusterAuthorizer(lambda: store))
    answer = review(ask("create", f"authorization.k8s.io/{resource}"), {"spec": spec})
    assert answer["status"] == status
