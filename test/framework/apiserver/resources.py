"""Define the resources that the server serves: their names, paths, and selectable fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from pkg import api

from .interfaces import Object

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(slots=True, frozen=True)
class Subresource:
    """Describe a subresource. `kind` is the kind of requests and responses if it is not that of the parent."""

    verbs: tuple[str, ...]
    kind: str = ""
    group: str = ""
    version: str = ""


_STATUS = {"status": Subresource(("get", "patch", "update"))}
_POD_SUBRESOURCES = {
    "attach": Subresource(("create", "get"), "PodAttachOptions"),
    "binding": Subresource(("create",), "Binding"),
    "ephemeralcontainers": Subresource(("get", "patch", "update")),
    "eviction": Subresource(("create",), "Eviction", "policy", "v1"),
    "exec": Subresource(("create", "get"), "PodExecOptions"),
    "log": Subresource(("get",)),
    "portforward": Subresource(("create", "get"), "PodPortForwardOptions"),
    "proxy": Subresource(("create", "delete", "get", "patch", "update"), "PodProxyOptions"),
    "resize": Subresource(("get", "patch", "update")),
    **_STATUS,
}
_NODE_SUBRESOURCES = {
    "proxy": Subresource(("create", "delete", "get", "patch", "update"), "NodeProxyOptions"),
    **_STATUS,
}
_TOKEN = {"token": Subresource(("create",), "TokenRequest", "authentication.k8s.io", "v1")}


@dataclass(slots=True, frozen=True, kw_only=True, eq=False)
class Resource:
    """Describe one resource of one API group."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    # `fields` maps the selectable fields, except the name and the namespace, to their paths.
    fields: Mapping[str, str] = field(default_factory=dict)
    generation: bool = False  # The server increases the generation when anything except metadata and status changes.
    create_on_update: bool = False
    unconditional_update: bool = True  # An update may lack a resourceVersion.
    # `propagation` is the default deletion policy for dependents. If it is empty, nothing is collected.
    propagation: str = "Background"

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        return f"/apis/{self.group_version}" if self.group else f"/api/{self.version}"

    def selectable(self, obj: Object) -> dict[str, str]:
        """Return the fields that selectors use."""
        meta = obj["metadata"]
        found = {"metadata.name": meta.get("name", ""), "metadata.namespace": meta.get("namespace", "")}
        for name, path in self.fields.items():
            found[name] = _text(lookup(obj, path))
        return found

    def unknown_fields(self, names: Sequence[str]) -> str:
        """Return the reason why a selector with these fields is refused, or "" if it is not."""
        for name in names:
            if name in ("metadata.name", "metadata.namespace") or name in self.fields:
                continue
            if self.fields:
                return f"field label not supported: {name}"
            return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        return ""


def lookup(obj: Any, path: str) -> Any:
    """Return the value at a dotted path, or None if there is none."""
    for part in path.split("."):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(part)
    return obj


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list():
            return ",".join(item.get("ip", "") for item in value if isinstance(item, dict))
        case _:
            return str(value)


def _same(*paths: str) -> dict[str, str]:
    return {path: path for path in paths}


_EVENT_FIELDS = {
    f"involvedObject.{name}": f"involvedObject.{name}"
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
} | {"reason": "reason", "type": "type", "reportingComponent": "reportingComponent", "source": "source.component"}
_EVENTS_V1_FIELDS = {
    f"regarding.{name}": f"involvedObject.{name}"
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
} | {"reason": "reason", "type": "type", "reportingController": "reportingComponent"}

RESOURCES: tuple[Resource, ...] = (
    Resource(
        plural="nodes",
        kind="Node",
        namespaced=False,
        short_names=("no",),
        subresources=_NODE_SUBRESOURCES,
        fields=_same("spec.unschedulable"),
    ),
    Resource(
        plural="pods",
        kind="Pod",
        short_names=("po",),
        categories=("all",),
        subresources=_POD_SUBRESOURCES,
        fields=_same(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ),
        generation=True,
    ),
    Resource(
        plural="events",
        kind="Event",
        short_names=("ev",),
        fields=_EVENT_FIELDS,
        create_on_update=True,
        propagation="",
    ),
    Resource(
        plural="events",
        kind="Event",
        group="events.k8s.io",
        short_names=("ev",),
        fields=_EVENTS_V1_FIELDS,
        create_on_update=True,
        propagation="",
    ),
    Resource(
        plural="services",
        kind="Service",
        short_names=("svc",),
        categories=("all",),
        subresources=_STATUS,
        fields=_same("spec.clusterIP", "spec.type"),
        create_on_update=True,
    ),
    Resource(plural="configmaps", kind="ConfigMap", short_names=("cm",)),
    Resource(plural="secrets", kind="Secret", fields=_same("type")),
    Resource(plural="serviceaccounts", kind="ServiceAccount", short_names=("sa",), subresources=_TOKEN),
    Resource(
        plural="persistentvolumes",
        kind="PersistentVolume",
        namespaced=False,
        short_names=("pv",),
        subresources=_STATUS,
        fields={"name": "metadata.name"},
    ),
    Resource(
        plural="persistentvolumeclaims",
        kind="PersistentVolumeClaim",
        short_names=("pvc",),
        subresources=_STATUS,
        fields={"name": "metadata.name"},
    ),
    Resource(
        plural="namespaces",
        kind="Namespace",
        namespaced=False,
        short_names=("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources={"finalize": Subresource(("update",)), **_STATUS},
        fields=_same("status.phase"),
    ),
    Resource(plural="endpoints", kind="Endpoints", short_names=("ep",), create_on_update=True),
    Resource(plural="limitranges", kind="LimitRange", short_names=("limits",)),
    Resource(plural="resourcequotas", kind="ResourceQuota", short_names=("quota",), subresources=_STATUS),
    Resource(
        plural="replicationcontrollers",
        kind="ReplicationController",
        short_names=("rc",),
        categories=("all",),
        subresources=_STATUS,
        generation=True,
        propagation="Orphan",
    ),
    Resource(plural="podtemplates", kind="PodTemplate", generation=True),
    Resource(
        plural="leases", kind="Lease", group="coordination.k8s.io", create_on_update=True, unconditional_update=False
    ),
    Resource(
        plural="certificatesigningrequests",
        kind="CertificateSigningRequest",
        group="certificates.k8s.io",
        namespaced=False,
        short_names=("csr",),
        fields=_same("spec.signerName"),
        subresources={"approval": Subresource(("get", "patch", "update")), **_STATUS},
    ),
    Resource(
        plural="clustertrustbundles",
        kind="ClusterTrustBundle",
        group="certificates.k8s.io",
        version="v1beta1",
        namespaced=False,
        fields=_same("spec.signerName"),
        unconditional_update=False,
    ),
    Resource(
        plural="runtimeclasses",
        kind="RuntimeClass",
        group="node.k8s.io",
        namespaced=False,
        unconditional_update=False,
    ),
    Resource(
        plural="csidrivers", kind="CSIDriver", group="storage.k8s.io", namespaced=False, unconditional_update=False
    ),
    Resource(plural="csinodes", kind="CSINode", group="storage.k8s.io", namespaced=False, unconditional_update=False),
    Resource(
        plural="storageclasses", kind="StorageClass", group="storage.k8s.io", namespaced=False, short_names=("sc",)
    ),
    Resource(
        plural="volumeattachments",
        kind="VolumeAttachment",
        group="storage.k8s.io",
        namespaced=False,
        subresources=_STATUS,
        unconditional_update=False,
    ),
    Resource(
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        group="policy",
        short_names=("pdb",),
        subresources=_STATUS,
        generation=True,
        unconditional_update=False,
    ),
    Resource(plural="endpointslices", kind="EndpointSlice", group="discovery.k8s.io", generation=True),
    Resource(
        plural="resourceslices",
        kind="ResourceSlice",
        group="resource.k8s.io",
        namespaced=False,
        fields=_same("spec.nodeName", "spec.driver"),
        generation=True,
    ),
    Resource(
        plural="resourceclaims",
        kind="ResourceClaim",
        group="resource.k8s.io",
        subresources=_STATUS,
    ),
    Resource(
        plural="priorityclasses",
        kind="PriorityClass",
        group="scheduling.k8s.io",
        namespaced=False,
        short_names=("pc",),
    ),
    *(
        Resource(
            plural=plural,
            kind=kind,
            group="apps",
            short_names=(short,) if short else (),
            categories=("all",),
            subresources=_STATUS,
            generation=True,
        )
        for plural, kind, short in (
            ("daemonsets", "DaemonSet", "ds"),
            ("deployments", "Deployment", "deploy"),
            ("replicasets", "ReplicaSet", "rs"),
            ("statefulsets", "StatefulSet", "sts"),
        )
    ),
    Resource(plural="controllerrevisions", kind="ControllerRevision", group="apps"),
    Resource(
        plural="jobs",
        kind="Job",
        group="batch",
        categories=("all",),
        subresources=_STATUS,
        generation=True,
        propagation="Orphan",
    ),
    *(
        Resource(
            plural=kind.lower() + "s",
            kind=kind,
            group="rbac.authorization.k8s.io",
            namespaced=not kind.startswith("Cluster"),
            create_on_update=True,
        )
        for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    ),
    *(
        Resource(plural=plural, kind=kind, group=group, namespaced=namespaced, verbs=("create",))
        for plural, kind, group, namespaced in (
            ("tokenreviews", "TokenReview", "authentication.k8s.io", False),
            ("selfsubjectreviews", "SelfSubjectReview", "authentication.k8s.io", False),
            ("subjectaccessreviews", "SubjectAccessReview", "authorization.k8s.io", False),
            ("selfsubjectaccessreviews", "SelfSubjectAccessReview", "authorization.k8s.io", False),
            ("localsubjectaccessreviews", "LocalSubjectAccessReview", "authorization.k8s.io", True),
            ("bindings", "Binding", "", True),
        )
    ),
    *(
        Resource(
            plural=plural,
            kind=kind,
            group="metrics.k8s.io",
            version="v1beta1",
            namespaced=namespaced,
            verbs=("get", "list"),
        )
        for plural, kind, namespaced in (("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True))
    ),
)

# Other servers serve these groups.
AGGREGATED = ("metrics.k8s.io",)
BY_PATH = {(resource.group, resource.version, resource.plural): resource for resource in RESOURCES}
# Each plural maps to the resource of the stored form. For events that is the core group's resource.
BY_PLURAL = {resource.plural: resource for resource in reversed(RESOURCES)}
# The server stores objects of these resources.
STORED = tuple(each for each in BY_PLURAL.values() if "delete" in each.verbs)
# Objects of these resources may own others and have owners.
COLLECTED = tuple(each.plural for each in STORED if each.propagation)
BY_KIND = {(resource.group_version, resource.kind): resource for resource in RESOURCES}

_TYPE_MODULES = {
    "": "core", "coordination.k8s.io": "coordination", "certificates.k8s.io": "certificates",
    "storage.k8s.io": "storage", "node.k8s.io": "node", "policy": "policy",
    "authentication.k8s.io": "authentication", "authorization.k8s.io": "authorization",
}  # fmt: skip


@cache
def type_of(resource: Resource) -> type | None:
    """Return the type that describes how the lists of a kind merge, or None if there is no type."""
    module = _TYPE_MODULES.get(resource.group)
    if module is None:
        return None
    return getattr(import_module(f"{api.__name__}.{module}.v1"), resource.kind, None)
