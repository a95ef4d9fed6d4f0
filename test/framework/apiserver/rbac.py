"""Authorize requests by the stored roles and their bindings.

Go: plugin/pkg/auth/authorizer/rbac/rbac.go, pkg/registry/rbac/validation/rule.go, and of
plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go the roles that exist from the start
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ApiError
from .interfaces import Object, Request, Store, UserInfo


@dataclass(frozen=True)
class Rule:
    """Allow verbs on resources ("pods" or "pods/status") of API groups, or on paths.

    "*" stands for all, and a path may end in it. If there are names, the rule applies only to objects with these names.
    """

    verbs: tuple[str, ...]
    resources: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("",)
    paths: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def allows(self, request: Request) -> bool:
        if not _covers(self.verbs, request.verb):
            return False
        if not request.resource:
            return any(_matches_path(path, request.path) for path in self.paths)
        name = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        resources = _covers(self.resources, name) or f"*/{request.subresource}" in self.resources
        return _covers(self.groups, request.group) and resources and (not self.names or request.name in self.names)


def _covers(names: tuple[str, ...], name: str) -> bool:
    return "*" in names or name in names


def _matches_path(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


BOOTSTRAP_ROLES = {
    "cluster-admin": (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",))),
    "system:kubelet-api-admin": (
        Rule(("get", "list", "watch"), ("nodes",)),
        Rule(("proxy",), ("nodes",)),
        Rule(("*",), tuple(f"nodes/{each}" for each in ("proxy", "metrics", "stats", "log"))),
        Rule(("*",), tuple(f"nodes/{each}" for each in ("pods", "healthz", "configz"))),
    ),
}


class RBACAuthorizer:
    """Authorize requests by the objects that are stored at that moment. All methods are thread-safe."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    def allows(self, request: Request) -> bool:
        return any(rule.allows(request) for rule in self._rules_for(request.user, request.namespace))

    def _rules_for(self, user: UserInfo, namespace: str) -> Iterator[Rule]:
        for binding in self._store().list("clusterrolebindings"):
            if _is_bound(user, binding, ""):
                yield from self._rules_of(binding, "")
        for binding in self._store().list("rolebindings", namespace) if namespace else ():
            if _is_bound(user, binding, namespace):
                yield from self._rules_of(binding, namespace)

    def _rules_of(self, binding: Object, namespace: str) -> Iterator[Rule]:
        ref = binding["roleRef"]
        plural = "clusterroles" if ref["kind"] == "ClusterRole" else "roles"
        try:
            role = self._store().get(plural, ref["name"], namespace if plural == "roles" else "")
        except ApiError:
            yield from BOOTSTRAP_ROLES.get(ref["name"], ())
            return
        yield from map(_rule, role.get("rules") or [])


def _rule(rule: Mapping[str, Any]) -> Rule:
    keys = ("verbs", "resources", "apiGroups", "nonResourceURLs", "resourceNames")
    return Rule(*(tuple(rule.get(key) or ()) for key in keys))


def _is_bound(user: UserInfo, binding: Object, namespace: str) -> bool:
    return any(_is_subject(user, subject, namespace) for subject in binding.get("subjects") or [])


def _is_subject(user: UserInfo, subject: Mapping[str, Any], namespace: str) -> bool:
    match subject["kind"]:
        case "User":
            return bool(user.name == subject["name"])
        case "Group":
            return subject["name"] in user.groups
        case "ServiceAccount":
            where = subject.get("namespace") or namespace
            return user.name == f"system:serviceaccount:{where}:{subject['name']}"
    return False
