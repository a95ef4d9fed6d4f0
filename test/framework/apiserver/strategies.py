"""Add the rules of each kind to the generic handling: defaults, fields that clients may not set, and validation.

Go: k8s.io/kubernetes/pkg/registry/*/*/strategy.go, pkg/apis/core/v1/defaults.go
"""

from __future__ import annotations

import base64
import itertools
import re
import threading
from typing import Any

from cryptography import x509

from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.apis.core.validation import names

from . import errors
from .interfaces import Object, Request
from .resources import Resource

Errors = list[field.Error]

# A secret or a config map may hold this many bytes.
_MAX_DATA = 1 << 20


class Strategy:
    """Apply the generic rules. Methods may change the objects that they get, except for `old`, which is shared."""

    # `validates_metadata` says whether `validate` checks the metadata, too.
    validates_metadata = False

    def __init__(self, resource: Resource) -> None:
        self.resource = resource

    def default(self, obj: Object) -> None:
        """Set the defaults. Raise ApiError 400 for an object of the wrong shape."""

    def prepare_create(self, request: Request, obj: Object) -> None:
        """Clear or set the fields that clients may not set."""
        if "status" in self.resource.subresources:
            obj["status"] = {}

    def prepare_update(self, request: Request, new: Object, old: Object) -> None:
        """Undo the changes that this resource or subresource does not permit."""
        if request.subresource == "status":
            keep_all_but_status(new, old)
        elif "status" in self.resource.subresources:
            restore(new, old, "status")

    def validate(self, obj: Object) -> Errors:
        return []

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        return []

    def validate_name(self, name: str) -> list[str]:
        return validation.is_dns1123_subdomain(name)

    def grace_period(self, obj: Object, wanted: int | None) -> int | None:
        """Return the grace period of a deletion in seconds, or None for kinds whose objects are deleted at once."""
        return None

    def may_go(self, obj: Object) -> bool:
        """Report whether an object that is being deleted has no finalizers."""
        return not obj["metadata"].get("finalizers")

    def returns_deleted_object(self) -> bool:
        return False


def restore(new: Object, old: Object, *names: str) -> None:
    for name in names:
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)


def keep_all_but_status(new: Object, old: Object) -> None:
    """Undo all changes that the status subresource does not permit: all except status, labels, annotations."""
    for name in (new.keys() | old.keys()) - {"status", "metadata"}:
        restore(new, old, name)
    restore(new["metadata"], old["metadata"], "deletionTimestamp", "ownerReferences", "finalizers")


class PathSegmentNames(Strategy):
    """Allow names that may be any segment of a path."""

    def validate_name(self, name: str) -> list[str]:
        if name in (".", ".."):
            return [f"may not be '{name}'"]
        return [f"may not contain '{char}'" for char in "/%" if char in name]


# Upstream writes these fields even if they are empty.
_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


class NodeStrategy(Strategy):
    def prepare_create(self, request: Request, obj: Object) -> None:
        """Keep the status, with which a kubelet registers its node."""
        obj.setdefault("spec", {})

    def default(self, obj: Object) -> None:
        status = obj["status"] = obj.get("status") or {}
        status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {"Port": 0})
        status["nodeInfo"] = dict.fromkeys(_NODE_INFO, "") | (status.get("nodeInfo") or {})
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def validate(self, obj: Object) -> Errors:
        errs: Errors = []
        seen = set()
        for i, taint in enumerate((obj.get("spec") or {}).get("taints") or []):
            path = field.Path("spec").child("taints").index(i)
            effect = taint.get("effect", "")
            if effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
                effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
                errs.append(field.not_supported(path.child("effect"), effect, effects))
            if (taint.get("key"), effect) in seen:
                errs.append(field.duplicate(path, taint))
            seen.add((taint.get("key"), effect))
        addresses = [(item.get("type"), item.get("address")) for item in (obj.get("status") or {}).get("addresses", [])]
        for i, address in enumerate(addresses):
            if address in addresses[:i]:
                value = {"type": address[0], "address": address[1]}
                errs.append(field.duplicate(field.Path("status").child("addresses").index(i), value))
        return errs

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        errs: Errors = []
        before, after = old.get("spec") or {}, new.get("spec") or {}
        if before.get("providerID") and before["providerID"] != after.get("providerID", ""):
            detail = 'node updates may not change providerID except from "" to valid'
            errs.append(field.forbidden(field.Path("spec", "providerID"), detail))
        if before.get("podCIDRs") and before["podCIDRs"] != after.get("podCIDRs"):
            detail = 'node updates may not change podCIDR except from "" to valid'
            errs.append(field.forbidden(field.Path("spec", "podCIDRs"), detail))
        return errs + self.validate(new)


class EventStrategy(Strategy):
    def default(self, obj: Object) -> None:
        obj.setdefault("source", {})
        obj.setdefault("involvedObject", {})

    def validate(self, obj: Object) -> Errors:
        namespace = obj["metadata"].get("namespace", "")
        involved = obj["involvedObject"].get("namespace", "")
        path = field.Path("involvedObject", "namespace")
        if involved and involved != namespace:
            return [field.invalid(path, involved, "does not match event.namespace")]
        if not involved and namespace not in ("", "default", "kube-system"):
            return [field.invalid(path, involved, "does not match event.namespace")]
        return []


class ServiceStrategy(Strategy):
    """Assign addresses of 10.96.0.0/16. Each address is assigned only once."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        self._addresses = itertools.count(10)
        self._lock = threading.Lock()

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("type", "ClusterIP")
        for port in spec.get("ports") or []:
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] in ("NodePort", "LoadBalancer"):
            spec.setdefault("externalTrafficPolicy", "Cluster")

    def prepare_create(self, request: Request, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            return
        if not spec.get("clusterIP"):
            with self._lock:
                number = next(self._addresses)
            spec["clusterIP"] = f"10.96.{number // 250}.{number % 250 + 1}"
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def prepare_update(self, request: Request, new: Object, old: Object) -> None:
        super().prepare_update(request, new, old)
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not new["spec"].get(name) and name in old["spec"]:
                new["spec"][name] = old["spec"][name]

    def validate(self, obj: Object) -> Errors:
        spec = obj["spec"]
        if not spec.get("ports") and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
            return [field.required(field.Path("spec", "ports"))]
        return []

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        before, after = old["spec"].get("clusterIP"), new["spec"].get("clusterIP")
        if before and before != after and new["spec"]["type"] != "ExternalName":
            path = field.Path("spec", "clusterIPs").index(0)
            return [field.invalid(path, [after], "may not change once set")]
        return self.validate(new)

    def validate_name(self, name: str) -> list[str]:
        pattern = r"[a-z]([-a-z0-9]*[a-z0-9])?"
        if re.fullmatch(pattern, name) and len(name) <= 63:
            return []
        return [
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
            "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
            f"validation is '{pattern}')"
        ]


class SecretStrategy(Strategy):
    def default(self, obj: Object) -> None:
        obj["type"] = obj.get("type") or "Opaque"

    def prepare_create(self, request: Request, obj: Object) -> None:
        _fold_string_data(obj)

    def prepare_update(self, request: Request, new: Object, old: Object) -> None:
        _fold_string_data(new)

    def validate(self, obj: Object) -> Errors:
        sizes = (len(base64.b64decode(value)) for value in (obj.get("data") or {}).values())
        return _bad_keys(obj, "data") + _too_large(field.Path("data"), sum(sizes))

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        errs: Errors = []
        if new.get("type") != old.get("type"):
            errs.append(field.invalid(field.Path("type"), new.get("type"), "field is immutable"))
        return errs + _immutable_data(new, old, "data") + self.validate(new)


class ConfigMapStrategy(Strategy):
    def validate(self, obj: Object) -> Errors:
        size = sum(len(text.encode()) for text in (obj.get("data") or {}).values())
        size += sum(len(base64.b64decode(value)) for value in (obj.get("binaryData") or {}).values())
        errs = _bad_keys(obj, "data") + _bad_keys(obj, "binaryData")
        return errs + _too_large(field.Path(""), size)

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        return _immutable_data(new, old, "data", "binaryData") + self.validate(new)


def _too_large(path: field.Path, size: int) -> Errors:
    return [field.too_long(path, "", _MAX_DATA)] if size > _MAX_DATA else []


def _fold_string_data(obj: Object) -> None:
    for key, text in (obj.pop("stringData", None) or {}).items():
        obj.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


def _bad_keys(obj: Object, name: str) -> Errors:
    path = field.Path(name)
    return [
        field.invalid(path.key(key), key, message)
        for key in obj.get(name) or {}
        for message in validation.is_config_map_key(key)
    ]


def _immutable_data(new: Object, old: Object, *names: str) -> Errors:
    if not old.get("immutable"):
        return []
    errs: Errors = []
    if not new.get("immutable"):
        errs.append(field.forbidden(field.Path("immutable"), "field is immutable when `immutable` is set"))
    for name in names:
        if (new.get(name) or {}) != (old.get(name) or {}):
            errs.append(field.forbidden(field.Path(name), "field is immutable when `immutable` is set"))
    return errs


class LeaseStrategy(Strategy):
    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})

    def validate(self, obj: Object) -> Errors:
        errs: Errors = []
        path = field.Path("spec")
        seconds = obj["spec"].get("leaseDurationSeconds")
        if seconds is not None and seconds <= 0:
            errs.append(field.invalid(path.child("leaseDurationSeconds"), seconds, "must be greater than 0"))
        transitions = obj["spec"].get("leaseTransitions")
        if transitions is not None and transitions < 0:
            detail = "must be greater than or equal to 0"
            errs.append(field.invalid(path.child("leaseTransitions"), transitions, detail))
        return errs

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        return self.validate(new)


class NamespaceStrategy(Strategy):
    def default(self, obj: Object) -> None:
        name = obj["metadata"].get("name")
        if name:
            labels = obj["metadata"].setdefault("labels", {})
            labels["kubernetes.io/metadata.name"] = name

    def prepare_create(self, request: Request, obj: Object) -> None:
        obj["status"] = {"phase": "Active"}
        finalizers = (obj.get("spec") or {}).get("finalizers") or []
        obj["spec"] = {"finalizers": list(dict.fromkeys([*finalizers, "kubernetes"]))}

    def prepare_update(self, request: Request, new: Object, old: Object) -> None:
        if request.subresource == "finalize":
            restore(new, old, "status")
        elif request.subresource == "status":
            keep_all_but_status(new, old)
        else:
            restore(new, old, "spec", "status")

    def validate_name(self, name: str) -> list[str]:
        return validation.is_dns1123_label(name)

    def may_go(self, obj: Object) -> bool:
        return super().may_go(obj) and not (obj.get("spec") or {}).get("finalizers")


class CertificateSigningRequestStrategy(PathSegmentNames):
    """Set the requesting user to the authenticated one, and let only subresources change approval and status."""

    _FROM_THE_USER = ("username", "uid", "groups", "extra")

    def prepare_create(self, request: Request, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        user = request.user
        for name in self._FROM_THE_USER:
            spec.pop(name, None)
        spec["username"] = user.name
        if user.uid:
            spec["uid"] = user.uid
        if user.groups:
            spec["groups"] = list(user.groups)
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra.items()}
        obj["status"] = {}

    def prepare_update(self, request: Request, new: Object, old: Object) -> None:
        restore(new, old, "spec")
        before, after = old.get("status") or {}, new.get("status") or {}
        approvals = [c for c in after.get("conditions") or [] if c.get("type") in ("Approved", "Denied")]
        others = [c for c in after.get("conditions") or [] if c.get("type") not in ("Approved", "Denied")]
        old_approvals = [c for c in before.get("conditions") or [] if c.get("type") in ("Approved", "Denied")]
        match request.subresource:
            case "approval":
                keep_all_but_status(new, old)
                new["status"] = dict(before)
                self._set_conditions(new["status"], [*approvals, *others])
            case "status":
                keep_all_but_status(new, old)
                self._set_conditions(after, [*old_approvals, *others])
                new["status"] = after
            case _:
                restore(new, old, "status")
        now = new["metadata"].get("creationTimestamp")
        for condition in (new.get("status") or {}).get("conditions") or []:
            condition.setdefault("status", "True")
            condition.setdefault("lastTransitionTime", condition.get("lastUpdateTime") or now)

    def _set_conditions(self, status: Object, conditions: list[Any]) -> None:
        if conditions:
            status["conditions"] = [dict(condition) for condition in conditions]
        else:
            status.pop("conditions", None)

    def validate(self, obj: Object) -> Errors:
        errs: Errors = []
        path = field.Path("spec")
        if not obj["spec"].get("request"):
            detail = "PEM block type must be CERTIFICATE REQUEST"
            errs.append(field.invalid(path.child("request"), obj["spec"].get("request", ""), detail))
        if not obj["spec"].get("usages"):
            errs.append(field.required(path.child("usages")))
        if not obj["spec"].get("signerName"):
            errs.append(field.required(path.child("signerName")))
        elif "/" not in obj["spec"]["signerName"]:
            detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            errs.append(field.invalid(path.child("signerName"), obj["spec"]["signerName"], detail))
        return errs

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        types = {c.get("type") for c in (new.get("status") or {}).get("conditions") or []}
        if {"Approved", "Denied"} <= types:
            path = field.Path("status", "conditions")
            return [field.invalid(path, "Denied", "Approved and Denied conditions are mutually exclusive")]
        return []


class ClusterTrustBundleStrategy(Strategy):
    """Check that the bundle of a signer has the signer's name as its prefix: `a.com:b:` for the signer `a.com/b`."""

    def validate_name(self, name: str) -> list[str]:
        return names.validate_cluster_trust_bundle_name(name)

    def validate(self, obj: Object) -> Errors:
        path, spec = field.Path("spec"), obj.get("spec") or {}
        errs: Errors = []
        signer = spec.get("signerName") or ""
        if signer:
            errs += names.validate_signer_name(path.child("signerName"), signer)
        name = obj["metadata"]["name"]
        if why := _misnamed(name, signer):
            errs.append(field.invalid(field.Path("metadata", "name"), name, why))
        return errs + _bad_trust_anchors(path.child("trustBundle"), spec.get("trustBundle") or "")

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        before, after = (each["spec"].get("signerName", "") for each in (old, new))
        path = field.Path("spec", "signerName")
        return [*self.validate(new), *([field.invalid(path, after, "field is immutable")] if before != after else [])]


def _misnamed(name: str, signer: str) -> str:
    prefix = f"{signer.replace('/', ':')}:"
    if signer and not name.startswith(prefix):
        return f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
    if not signer and ":" in name:
        return 'ClusterTrustBundle without signer name must not have ":" in its name'
    return ""


def _bad_trust_anchors(path: field.Path, bundle: str) -> Errors:
    try:
        found = x509.load_pem_x509_certificates(bundle.encode())
    except ValueError as err:
        return [field.invalid(path, "<value omitted>", f"does not parse as X.509: {err}")]
    if len(found) != len(set(found)):
        return [field.invalid(path, "<value omitted>", "duplicate trust anchor")]
    return []


class RuntimeClassStrategy(Strategy):
    def validate(self, obj: Object) -> Errors:
        handler = obj.get("handler", "")
        path = field.Path("handler")
        if not handler:
            return [field.required(path)]
        return [field.invalid(path, handler, message) for message in validation.is_dns1123_label(handler)]


def wrong_shape(resource: Resource, err: Exception) -> errors.ApiError:
    """Return the error for a body that does not fit the kind that it claims."""
    text = re.sub(r" - at `\$\.?(.*)`", r" at \1", str(err))
    return errors.bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {text}'
    )
