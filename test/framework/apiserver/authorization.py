"""Authorize requests: administrators may do everything, nodes what concerns them, other users what they were granted.

Rules are granted in the process or by stored roles (rbac.py).

Go: plugin/pkg/auth/authorizer/node/node_authorizer.go, and of plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go
the roles that a node and a new cluster's users have.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from . import references
from .authentication import AUTHENTICATED, BOOTSTRAPPERS, MASTERS, UNAUTHENTICATED
from .errors import ApiError
from .interfaces import Authorizer, Object, Request, Store, UserInfo
from .rbac import RBACAuthorizer, Rule

NODES = "system:nodes"
_NODE_PREFIX = "system:node:"
_LEASE_NAMESPACE = "kube-node-lease"
_CERTIFICATES = "certificates.k8s.io"
_READ = ("get", "list", "watch")


PUBLIC_RULES = (Rule(("get",), paths=("/livez", "/readyz", "/healthz", "/version", "/version/")),)
AUTHENTICATED_RULES = (
    *PUBLIC_RULES,
    Rule(("get",), paths=("/openapi", "/openapi/*", "/api", "/api/*", "/apis", "/apis/*")),
    Rule(("create",), ("selfsubjectaccessreviews", "selfsubjectrulesreviews"), ("authorization.k8s.io",)),
    Rule(("create",), ("selfsubjectreviews",), ("authentication.k8s.io",)),
)
BOOTSTRAPPER_RULES = (
    Rule(("create", *_READ), ("certificatesigningrequests",), (_CERTIFICATES,)),
    Rule(("create",), ("certificatesigningrequests/nodeclient",), (_CERTIFICATES,)),
)
NODE_GROUP_RULES = (Rule(("create",), ("certificatesigningrequests/selfnodeclient",), (_CERTIFICATES,)),)
# Every node has these permissions. Others depend on the node and the object.
NODE_RULES = (
    Rule(("create",), ("tokenreviews",), ("authentication.k8s.io",)),
    Rule(("create",), ("subjectaccessreviews", "localsubjectaccessreviews"), ("authorization.k8s.io",)),
    Rule(_READ, ("services",)),
    Rule(("create", "update", "patch"), ("events",), ("", "events.k8s.io")),
    Rule(("get",), ("endpoints",)),
    Rule(("create", *_READ), ("certificatesigningrequests",), (_CERTIFICATES,)),
    Rule(_READ, ("clustertrustbundles",), (_CERTIFICATES,)),
    Rule(_READ, ("csidrivers",), ("storage.k8s.io",)),
    Rule(_READ, ("runtimeclasses",), ("node.k8s.io",)),
)
DEFAULT_GRANTS = {
    AUTHENTICATED: AUTHENTICATED_RULES,
    UNAUTHENTICATED: PUBLIC_RULES,
    BOOTSTRAPPERS: BOOTSTRAPPER_RULES,
    NODES: NODE_GROUP_RULES,
}


class ClusterAuthorizer:
    """Authorize administrators, then nodes, then granted rules, then stored roles. All methods are thread-safe."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._node = NodeAuthorizer(store)
        self._rbac = RBACAuthorizer(store)
        # The lock guards _grants.
        self._lock = threading.Lock()
        self._grants: dict[str, list[tuple[str, Rule]]] = defaultdict(list)
        for subject, rules in DEFAULT_GRANTS.items():
            self.grant(subject, *rules)

    def grant(self, subject: str, *rules: Rule, namespace: str = "") -> None:
        """Grant rules to the user or group `subject`, in one namespace if it is given."""
        with self._lock:
            self._grants[subject].extend((namespace, rule) for rule in rules)

    def authorize(self, request: Request) -> tuple[bool, str]:
        if MASTERS in request.user.groups:
            return True, ""
        allowed, reason = self._node.authorize(request)
        if allowed:
            return True, reason
        granted = self._granted(request) or self._rbac.allows(request)
        return (True, "granted") if granted else (False, reason)

    def _granted(self, request: Request) -> bool:
        with self._lock:
            rules = [each for name in (request.user.name, *request.user.groups) for each in self._grants.get(name, [])]
        return any(namespace in ("", request.namespace) and rule.allows(request) for namespace, rule in rules)


def node_name(user: UserInfo) -> str | None:
    """Return the node's name if the user is a node, "" if it is a node without a name, and None if it is not a node."""
    if NODES not in user.groups or not user.name.startswith(_NODE_PREFIX):
        return None
    return user.name.removeprefix(_NODE_PREFIX)


class NodeAuthorizer:
    """Authorize nodes by the pods that are bound to them in the store at this moment."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    def authorize(self, request: Request) -> tuple[bool, str]:
        """Report whether a node may make the request. Return False without a reason if the user is not a node."""
        node = node_name(request.user)
        if node is None:
            return False, ""
        if not node:
            return False, f'unknown node for user "{request.user.name}"'
        reason = self._refusal(node, request)
        return reason is None, reason or ""

    def _refusal(self, node: str, request: Request) -> str | None:
        """Return the reason for a refusal, or None if the node may make the request."""
        match request.group, request.resource:
            case "", "secrets":
                return self._read_namespaced(node, request, self._uses_secret)
            case "", "configmaps":
                return self._read_namespaced(node, request, self._uses_config_map)
            case "", "persistentvolumeclaims":
                return self._claim(node, request)
            case "", "persistentvolumes":
                return self._get(node, request, self._uses_volume)
            case "storage.k8s.io", "volumeattachments":
                return self._get(node, request, self._has_attachment)
            case "", "serviceaccounts":
                return self._service_account(node, request)
            case "coordination.k8s.io", "leases":
                return _lease(node, request)
            case "storage.k8s.io", "csinodes":
                return _csi_node(node, request)
            case "resource.k8s.io", "resourceslices":
                return self._slice(node, request)
            case "resource.k8s.io", "resourceclaims":
                return self._get(node, request, self._uses_resource_claim)
            case "", "nodes":
                return _node(node, request)
            case "", "pods":
                return self._pod(node, request)
        return None if any(rule.allows(request) for rule in NODE_RULES) else ""

    def _related(self, node: str, request: Request, uses: Callable[[str, str, str], bool]) -> str | None:
        name = request.object_name
        if not name:
            return "No Object name found"
        if uses(node, request.namespace, name):
            return None
        return f"no relationship found between node '{node}' and this object"

    def _read_namespaced(self, node: str, request: Request, uses: Callable[[str, str, str], bool]) -> str | None:
        if request.verb not in _READ:
            return "can only read resources of this type"
        if request.subresource:
            return "cannot read subresource"
        if not request.namespace:
            return "can only read namespaced object of this type"
        return self._related(node, request, uses)

    def _get(self, node: str, request: Request, uses: Callable[[str, str, str], bool]) -> str | None:
        if request.verb != "get":
            return "can only get individual resources of this type"
        if request.subresource:
            return "cannot get subresource"
        return self._related(node, request, uses)

    def _claim(self, node: str, request: Request) -> str | None:
        if request.subresource != "status":
            return self._get(node, request, self._uses_claim)
        if request.verb not in ("update", "patch"):
            return "can only get/update/patch this type"
        return self._related(node, request, self._uses_claim)

    def _service_account(self, node: str, request: Request) -> str | None:
        if request.verb == "get" and not request.subresource:
            return self._read_namespaced(node, request, self._uses_service_account)
        if request.verb != "create" or not request.name:
            return "can only create tokens for individual service accounts"
        if request.subresource != "token":
            return "can only create token subresource of serviceaccount"
        return self._related(node, request, self._uses_service_account)

    def _slice(self, node: str, request: Request) -> str | None:
        if request.subresource:
            return "cannot authorize ResourceSlice subresources"
        match request.verb:
            case "create":
                return None  # The NodeRestriction plugin checks the details.
            case "get" | "update" | "patch" | "delete":
                return self._related(node, request, self._has_slice)
            case "watch" | "list" | "deletecollection":
                if request.required_fields().get("spec.nodeName") == node:
                    return None
                return "can only list/watch/deletecollection resourceslices with nodeName field selector"
        verbs = "get, watch, list, create, update, patch, delete, deletecollection"
        return f"only the following verbs are allowed for a ResourceSlice: {verbs}"

    def _pod(self, node: str, request: Request) -> str | None:
        match request.subresource, request.verb:
            case "", "get":
                return self._get(node, request, self._runs_pod)
            case "", "list" | "watch":
                if request.required_fields().get("spec.nodeName") == node:
                    return None
                if request.object_name:
                    return self._related(node, request, self._runs_pod)
                return "can only list/watch pods with spec.nodeName field selector"
            case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
                return None  # The NodeRestriction plugin checks the details.
        return ""

    def _runs_pod(self, node: str, namespace: str, name: str) -> bool:
        pod = self._find("pods", name, namespace)
        return pod is not None and (pod.get("spec") or {}).get("nodeName") == node

    def _uses_secret(self, node: str, namespace: str, name: str) -> bool:
        if self._any_pod(node, namespace, lambda pod: name in references.secret_names(pod)):
            return True
        return any(
            (namespace, name) in references.volume_secrets(volume) and self._is_claimed(node, volume)
            for volume in self._store().list("persistentvolumes")
        )

    def _uses_config_map(self, node: str, namespace: str, name: str) -> bool:
        return self._any_pod(node, namespace, lambda pod: name in references.config_map_names(pod))

    def _uses_claim(self, node: str, namespace: str, name: str) -> bool:
        return self._any_pod(node, namespace, lambda pod: name in references.claim_names(pod))

    def _uses_resource_claim(self, node: str, namespace: str, name: str) -> bool:
        return self._any_pod(node, namespace, lambda pod: name in references.resource_claim_names(pod))

    def _uses_volume(self, node: str, namespace: str, name: str) -> bool:
        volume = self._find("persistentvolumes", name)
        return volume is not None and self._is_claimed(node, volume)

    def _uses_service_account(self, node: str, namespace: str, name: str) -> bool:
        return self._any_pod(node, namespace, lambda pod: pod["spec"].get("serviceAccountName") == name)

    def _has_attachment(self, node: str, namespace: str, name: str) -> bool:
        attachment = self._find("volumeattachments", name)
        return attachment is not None and attachment["spec"].get("nodeName") == node

    def _has_slice(self, node: str, namespace: str, name: str) -> bool:
        found = self._find("resourceslices", name)
        return found is not None and found["spec"].get("nodeName") == node

    def _is_claimed(self, node: str, volume: Object) -> bool:
        claim = (volume.get("spec") or {}).get("claimRef") or {}
        return bool(claim) and self._uses_claim(node, claim.get("namespace", ""), claim.get("name", ""))

    def _any_pod(self, node: str, namespace: str, uses: Callable[[Object], bool]) -> bool:
        """Report whether a pod of the node meets the condition.

        Mirror pods do not count because the node creates them itself.
        """
        pods = self._store().list("pods", namespace, field_selector=f"spec.nodeName={node}")
        return any(uses(pod) for pod in pods if not references.is_mirror(pod))

    def _find(self, resource: str, name: str, namespace: str = "") -> Object | None:
        try:
            return self._store().get(resource, name, namespace)
        except ApiError:
            return None


def _lease(node: str, request: Request) -> str | None:
    if request.verb not in ("get", "create", "update", "patch", "delete"):
        return "can only get, create, update, patch, or delete a node lease"
    if request.namespace != _LEASE_NAMESPACE:
        return f'can only access leases in the "{_LEASE_NAMESPACE}" system namespace'
    if request.verb != "create" and request.name != node:
        return "can only access node lease with the same name as the requesting node"
    return None


def _csi_node(node: str, request: Request) -> str | None:
    if request.verb not in ("get", "create", "update", "patch", "delete"):
        return "can only get, create, update, patch, or delete a CSINode"
    if request.subresource:
        return "cannot authorize CSINode subresources"
    if request.verb != "create" and request.name != node:
        return "can only access CSINode with the same name as the requesting node"
    return None


def _node(node: str, request: Request) -> str | None:
    match request.subresource, request.verb:
        case ("", "create" | "update" | "patch") | ("status", "update" | "patch"):
            return None  # The NodeRestriction plugin checks the details.
        case "", "get" | "list" | "watch":
            name = request.object_name
            if name == node:
                return None
            if not name:
                return f"node '{node}' cannot read all nodes, only its own Node object"
            return f"node '{node}' cannot read '{name}', only its own Node object"
    return ""


class AccessReviews:
    """Serve subjectaccessreviews, localsubjectaccessreviews and selfsubjectaccessreviews by asking the authorizer."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def __call__(self, request: Request, body: Object) -> Object:
        spec = body.get("spec") or {}
        own = request.resource == "selfsubjectaccessreviews"
        user = request.user if own else _user_of_review(spec)
        allowed, reason = self._authorizer.authorize(_reviewed(user, spec))
        body["status"] = {"allowed": allowed, **({"reason": reason} if reason else {})}
        return body


def _user_of_review(spec: Mapping[str, Any]) -> UserInfo:
    extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
    return UserInfo(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()), extra)


def _reviewed(user: UserInfo, spec: Mapping[str, Any]) -> Request:
    """Return the request that a review is about."""
    if (path := spec.get("nonResourceAttributes")) is not None:
        return Request("", path.get("path", ""), user=user, verb=path.get("verb", ""))
    attributes = spec.get("resourceAttributes") or {}
    request = Request(
        "",
        "",
        user=user,
        verb=attributes.get("verb", ""),
        group=attributes.get("group", ""),
        version=attributes.get("version", ""),
        resource=attributes.get("resource", ""),
        subresource=attributes.get("subresource", ""),
        namespace=attributes.get("namespace", ""),
        name=attributes.get("name", ""),
    )
    selector = attributes.get("fieldSelector") or {}
    if text := selector.get("rawSelector") or _selector_text(selector.get("requirements") or []):
        request = replace(request, query={"fieldSelector": [text]})
    return request


def _selector_text(requirements: Iterable[Mapping[str, Any]]) -> str:
    terms = [
        f"{each['key']}={each['values'][0]}"
        for each in requirements
        if each.get("operator") == "In" and len(each.get("values") or []) == 1
    ]
    return ",".join(terms)
