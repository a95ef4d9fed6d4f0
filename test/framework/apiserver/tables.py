"""Encode objects in the requested form: whole, only the metadata, or as a row of a table that kubectl prints.

Go: k8s.io/kubernetes/pkg/printers/internalversion/printers.go, k8s.io/apiserver/pkg/endpoints/handlers/response.go
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from . import events
from .interfaces import Object
from .resources import Resource, lookup
from .storage import Entry

_encode = msgspec.json.encode
_NONE = "<none>"


class Form:
    """Encode whole objects, as they are stored."""

    key: object = "whole"

    def __init__(self, resource: Resource) -> None:
        self.resource = resource

    def encode(self, entry: Entry) -> bytes:
        """Return one encoded object."""
        return entry.json()

    def encode_list(self, entries: Sequence[Entry], meta: Object) -> bytes:
        head = b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[' % (
            self.resource.kind.encode(),
            self.resource.group_version.encode(),
            _encode(meta),
        )
        return head + b",".join([entry.item_json() for entry in entries]) + b"]}"

    def bookmark(self, obj: Object) -> Object:
        return obj


class EventsV1(Form):
    """Encode events with the field names of the newer group."""

    key: object = "events.k8s.io"

    def encode(self, entry: Entry) -> bytes:
        return _encode(events.to_events_v1(entry.object))

    def encode_list(self, entries: Sequence[Entry], meta: Object) -> bytes:
        items = [events.to_events_v1(entry.object) for entry in entries]
        kind = {"kind": "EventList", "apiVersion": self.resource.group_version}
        return _encode({**kind, "metadata": meta, "items": items})


class PartialMetadata(Form):
    """Encode only the metadata."""

    key: object = "metadata"

    def encode(self, entry: Entry) -> bytes:
        return _encode(_partial(entry.object))

    def encode_list(self, entries: Sequence[Entry], meta: Object) -> bytes:
        items = [_partial(entry.object) for entry in entries]
        kind = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        return _encode({**kind, "metadata": meta, "items": items})

    def bookmark(self, obj: Object) -> Object:
        return _partial(obj)


def _partial(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


class Table(Form):
    """Encode rows with upstream's columns. `include` names what accompanies each row: Metadata, Object or None."""

    def __init__(self, resource: Resource, include: str) -> None:
        super().__init__(resource)
        self.include = include or "Metadata"
        self.key = ("table", self.include)
        columns, self._cells = _TABLES.get(resource.plural, _DEFAULT_TABLE)
        self._columns = [_column(*column) for column in columns]

    def encode(self, entry: Entry) -> bytes:
        meta = {"resourceVersion": entry.object["metadata"].get("resourceVersion", "")}
        return _encode(self._table([entry], meta))

    def encode_list(self, entries: Sequence[Entry], meta: Object) -> bytes:
        return _encode(self._table(entries, meta))

    def bookmark(self, obj: Object) -> Object:
        row: Object = {"cells": [""] * len(self._columns), "object": _partial(obj)}
        return {**self._table([], {"resourceVersion": obj["metadata"]["resourceVersion"]}), "rows": [row]}

    def _table(self, entries: Sequence[Entry], meta: Object) -> Object:
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta,
            "columnDefinitions": self._columns,
            "rows": [self._row(entry.object) for entry in entries],
        }

    def _row(self, obj: Object) -> Object:
        row: Object = {"cells": self._cells(obj)}
        phase = lookup(obj, "status.phase") if self.resource.plural == "pods" else None
        if phase in ("Succeeded", "Failed"):
            texts = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}
            row["conditions"] = [{"type": "Completed", "status": "True", "reason": phase, "message": texts[phase]}]
        if self.include == "Object":
            row["object"] = obj
        elif self.include == "Metadata":
            row["object"] = _partial(obj)
        return row


def _column(name: str, type: str = "string", priority: int = 0, format: str = "") -> Object:
    format = format or ("name" if name == "Name" else "")
    return {"name": name, "type": type, "format": format, "description": name, "priority": priority}


def human_duration(seconds: float) -> str:
    """Return a duration as kubectl prints it, with two units if it is short.

    Go: k8s.io/apimachinery/pkg/util/duration/duration.go
    """
    whole = int(seconds)
    if whole < 0:
        return "<invalid>" if whole < -1 else "0s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if years < 8 and rest else f"{years}y"


def _since(text: str | None) -> str:
    if not text:
        return "<unknown>"
    moment = datetime.datetime.fromisoformat(text)
    return human_duration((datetime.datetime.now(datetime.UTC) - moment).total_seconds())


def _age(obj: Object) -> str:
    return _since(obj["metadata"].get("creationTimestamp"))


def _budget(budget: Object) -> list[Any]:
    amounts = [str(budget["spec"].get(name, "N/A")) for name in ("minAvailable", "maxUnavailable")]
    return [budget["metadata"]["name"], *amounts, budget["status"]["disruptionsAllowed"], _age(budget)]


def _pod(pod: Object) -> list[Any]:
    spec, status = pod["spec"], pod.get("status") or {}
    ready, total, reason, restarts, last = _pod_summary(pod)
    text = str(restarts)
    if restarts and last:
        text = f"{restarts} ({_since(last)} ago)"
    gates = spec.get("readinessGates") or []
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or []}
    passed = sum(conditions.get(gate.get("conditionType")) == "True" for gate in gates)
    ips = status.get("podIPs") or []
    return [
        pod["metadata"]["name"],
        f"{ready}/{total}",
        reason,
        text,
        _age(pod),
        (ips[0].get("ip") if ips else "") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        f"{passed}/{len(gates)}" if gates else _NONE,
    ]


def _pod_summary(pod: Object) -> tuple[int, int, str, int, str]:
    """Return the ready and all containers, the state in one word, the restarts, and the time of the last one."""
    spec, status = pod["spec"], pod.get("status") or {}
    sidecars = {c["name"] for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or []) + len(sidecars)
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    reason = status.get("reason") or status.get("phase", "")
    if conditions.get("PodScheduled", {}).get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    ready, restarts, last, stuck = _init_summary(pod, sidecars)
    if stuck:
        reason = stuck
    if not stuck or conditions.get("Initialized", {}).get("status") == "True":
        inits = [c for c in status.get("initContainerStatuses") or [] if c.get("name") in sidecars]
        containers = status.get("containerStatuses") or []
        restarts = sum(c.get("restartCount", 0) for c in [*inits, *containers])
        last = max([_last_end(c) for c in [*inits, *containers]], default="")
        is_ready = conditions.get("Ready", {}).get("status") == "True"
        count, reason = _container_summary(containers, reason, is_ready)
        ready += count
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Failed", "Succeeded"):
            reason = "Terminating"
    return ready, total, reason, restarts, last


def _last_end(container: Object) -> str:
    return lookup(container, "lastState.terminated.finishedAt") or ""


def _init_summary(pod: Object, sidecars: set[str]) -> tuple[int, int, str, str]:
    """Return the ready sidecars, the restarts, the time of the last one, and what prevents the initialization."""
    ready, restarts, last = 0, 0, ""
    for i, container in enumerate((pod.get("status") or {}).get("initContainerStatuses") or []):
        restarts += container.get("restartCount", 0)
        last = max(last, _last_end(container))
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if container.get("name") in sidecars and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if ended is not None:
            return ready, restarts, last, "Init:" + _end_reason(ended)
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return ready, restarts, last, "Init:" + waiting["reason"]
        return ready, restarts, last, f"Init:{i}/{len(pod['spec'].get('initContainers') or [])}"
    return ready, restarts, last, ""


def _end_reason(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _container_summary(containers: Sequence[Object], reason: str, pod_ready: bool) -> tuple[int, str]:
    ready, running, error = 0, False, ""
    for container in reversed(containers):
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            reason = _end_reason(state["terminated"])
            if state["terminated"].get("exitCode"):
                error = reason
        elif container.get("ready") and state.get("running") is not None:
            running = True
            ready += 1
    if reason == "Completed":
        if running and pod_ready:
            reason = "Running"
        elif error:
            reason = error
        elif running:
            reason = "NotReady"
    return ready, reason


_ROLE_PREFIX = "node-role.kubernetes.io/"


def _node(node: Object) -> list[Any]:
    status = node.get("status") or {}
    ready = next((c.get("status") for c in status.get("conditions") or [] if c.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)} - {""}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    addresses = {a.get("type"): a.get("address") for a in reversed(status.get("addresses") or [])}
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        node["metadata"]["name"],
        ",".join(words),
        ",".join(sorted(roles)) or _NONE,
        _age(node),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or "<unknown>",
        kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(event: Object) -> list[Any]:
    first = _since(event.get("firstTimestamp") or event.get("eventTime"))
    last = _since(event["lastTimestamp"]) if event.get("lastTimestamp") else first
    count = event.get("count") or 1
    if series := event.get("series"):
        last, count = _since(series.get("lastObservedTime")), series.get("count", 0)
    involved, source = event.get("involvedObject") or {}, event.get("source") or {}
    target = involved.get("kind", "").lower()
    if involved.get("name"):
        target += f"/{involved['name']}"
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host") or event.get("reportingInstance", "")
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        target,
        involved.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        event.get("message", "").strip(),
        first,
        count,
        event["metadata"]["name"],
    ]


def _service(service: Object) -> list[Any]:
    spec = service.get("spec") or {}
    ports = [
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol')}"
        for port in spec.get("ports") or []
    ]
    external = ",".join(spec.get("externalIPs") or [])
    if spec.get("type") == "ExternalName":
        external = spec.get("externalName", "")
    elif spec.get("type") == "LoadBalancer":
        balancers = lookup(service, "status.loadBalancer.ingress") or []
        external = ",".join([b.get("ip") or b.get("hostname", "") for b in balancers]) or external or "<pending>"
    selector = ",".join(f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items()))
    return [
        service["metadata"]["name"],
        spec.get("type", ""),
        (spec.get("clusterIPs") or [_NONE])[0],
        external or _NONE,
        ",".join(ports) or _NONE,
        _age(service),
        selector or _NONE,
    ]


def _signing_request(request: Object) -> list[Any]:
    spec, status = request.get("spec") or {}, request.get("status") or {}
    types = {c.get("type") for c in status.get("conditions") or []}
    condition = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    if "Failed" in types:
        condition += ",Failed"
    if status.get("certificate"):
        condition += ",Issued"
    seconds = spec.get("expirationSeconds")
    duration = _NONE if seconds is None else human_duration(seconds)
    name = request["metadata"]["name"]
    return [name, _age(request), spec.get("signerName") or _NONE, spec.get("username", ""), duration, condition]


_ACCESS_MODES = {
    "ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"
}  # fmt: skip


def _modes(modes: Sequence[str] | None) -> str:
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in (modes or []))


def _phase(obj: Object) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else (lookup(obj, "status.phase") or "")


def _volume(volume: Object) -> list[Any]:
    spec = volume.get("spec") or {}
    claim = spec.get("claimRef") or {}
    return [
        volume["metadata"]["name"],
        lookup(volume, "spec.capacity.storage") or "0",
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(volume),
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", "<unset>"),
        lookup(volume, "status.reason") or "",
        _age(volume),
        spec.get("volumeMode", "<unset>"),
    ]


def _claim(claim: Object) -> list[Any]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        claim["metadata"]["name"],
        _phase(claim),
        spec.get("volumeName", ""),
        (lookup(status, "capacity.storage") or "0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", "<unset>"),
        _age(claim),
        spec.get("volumeMode", "<unset>"),
    ]


def _csi_driver(driver: Object) -> list[Any]:
    spec = driver.get("spec") or {}
    tokens = [request.get("audience", "") for request in spec.get("tokenRequests") or []]
    return [
        driver["metadata"]["name"],
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        ",".join(tokens) or "<unset>",
        spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes") or []) or "<none>",
        _age(driver),
    ]


def _endpoints(endpoints: Object) -> list[Any]:
    found = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in endpoints.get("subsets") or []
        for port in subset.get("ports") or [{"port": ""}]
        for address in subset.get("addresses") or []
    ]
    text = ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "")
    return [endpoints["metadata"]["name"], text or _NONE, _age(endpoints)]


def _paths(*paths: str) -> Callable[[Object], list[Any]]:
    """Return a function for cells that are plain fields, `age`, or `#path` for the number of entries."""

    def cells(obj: Object) -> list[Any]:
        return [_cell(obj, path) for path in paths]

    return cells


def _cell(obj: Object, path: str) -> Any:
    if path == "age":
        return _age(obj)
    if path.startswith("#"):
        return sum(len(lookup(obj, part) or ()) for part in path[1:].split("+"))
    value = lookup(obj, path)
    return "" if value is None else value


_Columns = tuple[tuple[Any, ...], ...]
_DEFAULT_TABLE: tuple[_Columns, Callable[[Object], list[Any]]] = (
    (("Name",), ("Age",)),
    _paths("metadata.name", "age"),
)
_TABLES: dict[str, tuple[_Columns, Callable[[Object], list[Any]]]] = {
    "pods": (
        (
            ("Name",), ("Ready",), ("Status",), ("Restarts",), ("Age",), ("IP", "string", 1), ("Node", "string", 1),
            ("Nominated Node", "string", 1), ("Readiness Gates", "string", 1),
        ),
        _pod,
    ),
    "nodes": (
        (
            ("Name",), ("Status",), ("Roles",), ("Age",), ("Version",), ("Internal-IP", "string", 1),
            ("External-IP", "string", 1), ("OS-Image", "string", 1), ("Kernel-Version", "string", 1),
            ("Container-Runtime", "string", 1),
        ),
        _node,
    ),
    "events": (
        (
            ("Last Seen",), ("Type",), ("Reason",), ("Object",), ("Subobject", "string", 1), ("Source", "string", 1),
            ("Message",), ("First Seen", "string", 1), ("Count", "string", 1), ("Name", "string", 1),
        ),
        _event,
    ),
    "services": (
        (
            ("Name",), ("Type",), ("Cluster-IP",), ("External-IP",), ("Port(s)",), ("Age",), ("Selector", "string", 1),
        ),
        _service,
    ),
    "certificatesigningrequests": (
        (("Name",), ("Age",), ("SignerName",), ("Requestor",), ("RequestedDuration",), ("Condition",)),
        _signing_request,
    ),
    "poddisruptionbudgets": (
        (("Name",), ("Min Available",), ("Max Unavailable",), ("Allowed Disruptions", "integer"), ("Age",)),
        _budget,
    ),
    "persistentvolumes": (
        (
            ("Name",), ("Capacity",), ("Access Modes",), ("Reclaim Policy",), ("Status",), ("Claim",),
            ("StorageClass",), ("VolumeAttributesClass",), ("Reason",), ("Age",), ("VolumeMode", "string", 1),
        ),
        _volume,
    ),
    "persistentvolumeclaims": (
        (
            ("Name",), ("Status",), ("Volume",), ("Capacity",), ("Access Modes",), ("StorageClass",),
            ("VolumeAttributesClass",), ("Age",), ("VolumeMode", "string", 1),
        ),
        _claim,
    ),
    "endpoints": ((("Name",), ("Endpoints",), ("Age",)), _endpoints),
    "namespaces": ((("Name",), ("Status",), ("Age",)), _paths("metadata.name", "status.phase", "age")),
    "secrets": (
        (("Name",), ("Type",), ("Data",), ("Age",)), _paths("metadata.name", "type", "#data", "age"),
    ),
    "configmaps": ((("Name",), ("Data",), ("Age",)), _paths("metadata.name", "#data+binaryData", "age")),
    "leases": ((("Name",), ("Holder",), ("Age",)), _paths("metadata.name", "spec.holderIdentity", "age")),
    "runtimeclasses": ((("Name",), ("Handler",), ("Age",)), _paths("metadata.name", "handler", "age")),
    "csidrivers": (
        (
            ("Name",), ("AttachRequired", "boolean"), ("PodInfoOnMount", "boolean"), ("StorageCapacity", "boolean"),
            ("TokenRequests",), ("RequiresRepublish", "boolean"), ("Modes",), ("Age",),
        ),
        _csi_driver,
    ),
    "csinodes": (
        (("Name",), ("Drivers", "integer"), ("Age",)), _paths("metadata.name", "#spec.drivers", "age"),
    ),
    "storageclasses": (
        (("Name",), ("Provisioner",), ("ReclaimPolicy",), ("VolumeBindingMode",), ("AllowVolumeExpansion",), ("Age",)),
        _paths(
            "metadata.name", "provisioner", "reclaimPolicy", "volumeBindingMode", "allowVolumeExpansion", "age",
        ),
    ),
    "volumeattachments": (
        (("Name",), ("Attacher",), ("PV",), ("Node",), ("Attached", "boolean"), ("Age",)),
        _paths(
            "metadata.name", "spec.attacher", "spec.source.persistentVolumeName", "spec.nodeName", "status.attached",
            "age",
        ),
    ),
}  # fmt: skip
