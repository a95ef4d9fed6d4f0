"""Describe the server: its groups and resources, its version, and the parts of a schema that kubectl needs.

Go: k8s.io/apiserver/pkg/endpoints/discovery
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from .interfaces import Object
from .resources import RESOURCES, Resource

VERSION: Object = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "python",
    "platform": "linux/amd64",
}
_JSON = "application/json"
# The type that old clients request contains an "@", which a response must not contain.
_OPENAPI_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TITLE, _VERSION_TEXT = "Kubernetes", "v1.36.2"


def document(path: str, accept: str, address: str) -> tuple[str, bytes] | None:
    """Return the content type and body of a path that describes the server, or None for another path."""
    if path == "/openapi/v2" and "proto-openapi.spec.v2" in accept:
        return _OPENAPI_V2_PROTOBUF, _openapi_v2_protobuf()
    found = _described(path.rstrip("/") or "/", address)
    return None if found is None else (_JSON, msgspec.json.encode(found))


def _described(path: str, address: str) -> Object | None:
    match path.split("/")[1:]:
        case ["version"]:
            return VERSION
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        case ["api", version]:
            return _resource_list("", version)
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in _groups()]}
        case ["apis", group]:
            kind = {"kind": "APIGroup", "apiVersion": "v1"}
            return {**kind, **_group(group)} if group in _groups() else None
        case ["apis", group, version]:
            return _resource_list(group, version)
        case ["openapi", "v2"]:
            return {"swagger": "2.0", "info": {"title": _TITLE, "version": _VERSION_TEXT}, "paths": {}}
        case ["openapi", "v3"]:
            roots = sorted({resource.path[1:] for resource in RESOURCES})
            return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots}}
        case ["openapi", "v3", *root]:
            return _openapi_v3("/" + "/".join(root))
        case [""]:
            return {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/readyz", "/version"]}
    return None


def _groups() -> list[str]:
    return list(dict.fromkeys(resource.group for resource in RESOURCES if resource.group))


def _group(name: str) -> Object:
    versions = dict.fromkeys(resource.version for resource in RESOURCES if resource.group == name)
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(group: str, version: str) -> Object | None:
    found = [resource for resource in RESOURCES if (resource.group, resource.version) == (group, version)]
    if not found:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].group_version,
        "resources": [entry for resource in found for entry in _entries(resource)],
    }


def _entries(resource: Resource) -> Iterable[Object]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    for name, subresource in sorted(resource.subresources.items()):
        part: dict[str, Any] = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": subresource.kind or resource.kind,
            "verbs": list(subresource.verbs),
        }
        if subresource.version:
            part |= {"group": subresource.group, "version": subresource.version}
        yield part


def _openapi_v3(root: str) -> Object | None:
    """Describe no schemas, only that writes have the parameters that make kubectl leave validation to the server."""
    found = [resource for resource in RESOURCES if resource.path == root]
    if not found:
        return None
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldValidation")]
    paths = {}
    for resource in found:
        kind = {"group": resource.group, "kind": resource.kind, "version": resource.version}
        operation = {"parameters": parameters, "responses": {}, "x-kubernetes-group-version-kind": kind}
        within = "/namespaces/{namespace}" if resource.namespaced else ""
        paths[f"{root}{within}/{resource.plural}/{{name}}"] = {"patch": operation}
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": _VERSION_TEXT},
        "paths": paths,
        "components": {"schemas": {}},
    }


def _openapi_v2_protobuf() -> bytes:
    """Return an empty Document of gnostic's openapi.v2: field 1 is swagger, 2 info, 8 paths."""

    def text(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    info = text(1, _TITLE.encode()) + text(2, _VERSION_TEXT.encode())
    return text(1, b"2.0") + text(2, info) + text(8, b"")
