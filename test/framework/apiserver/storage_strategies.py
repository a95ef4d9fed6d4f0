"""Add the rules of volumes, claims, attachments and the drivers' objects to the generic handling of objects.

Go: pkg/registry/core/persistentvolume*, pkg/registry/storage, pkg/apis/core/validation, pkg/apis/storage/validation
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.apimachinery.api import resource as quantities
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.validation import field
from pkg.apis.core.validation import claims
from pkg.apis.core.validation.volumes import validate_csi_driver_name

from .interfaces import Object, Request
from .strategies import Errors, Strategy

ACCESS_MODES = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
_RECLAIM_POLICIES = ["Delete", "Recycle", "Retain"]
# These fields of a volume's spec are not volume sources.
_NO_SOURCES = {
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
}
_NODE_ID_LENGTH = 256


def _immutable(path: field.Path, new: object, old: object) -> Errors:
    return [] if new == old else [field.invalid(path, new, "field is immutable")]


def quantity(text: object) -> quantities.Quantity:
    """Parse a quantity of an object, with zero for None. Raise ValueError if it is invalid."""
    return quantities.parse_quantity(str(text or "0"))


class PersistentVolumeStrategy(Strategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("volumeMode", "Filesystem")
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        if spec.get("hostPath"):
            spec["hostPath"].setdefault("type", "")

    def prepare_create(self, request: Request, obj: Object) -> None:
        obj["status"] = {"phase": "Pending"}

    def validate(self, obj: Object) -> Errors:
        spec, path = obj["spec"], field.Path("spec")
        errs = _bad_access_modes(spec.get("accessModes") or [], path.child("accessModes"))
        if set(spec.get("capacity") or {}) != {"storage"}:
            errs.append(field.not_supported(path.child("capacity"), spec.get("capacity") or {}, ["storage"]))
        elif quantity(spec["capacity"]["storage"]).sign() <= 0:
            detail = "must be greater than zero"
            errs.append(field.invalid(path.child("capacity").key("storage"), spec["capacity"]["storage"], detail))
        policy = spec["persistentVolumeReclaimPolicy"]
        if policy not in _RECLAIM_POLICIES:
            errs.append(field.not_supported(path.child("persistentVolumeReclaimPolicy"), policy, _RECLAIM_POLICIES))
        if spec["volumeMode"] not in ("Block", "Filesystem"):
            modes = ["Block", "Filesystem"]
            errs.append(field.not_supported(path.child("volumeMode"), spec["volumeMode"], modes))
        return errs + _bad_source(spec, path)

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        errs = self.validate(new)
        if _source(new) != _source(old):
            detail = "spec.persistentvolumesource is immutable after creation"
            errs.append(field.forbidden(field.Path("spec", "persistentvolumesource"), detail))
        return errs + _immutable(field.Path("volumeMode"), new["spec"]["volumeMode"], old["spec"].get("volumeMode"))


def _source(volume: Object) -> Object:
    source = {name: value for name, value in volume["spec"].items() if name not in _NO_SOURCES}
    if "csi" in source:  # The field may be added later.
        source["csi"] = {name: each for name, each in source["csi"].items() if name != "controllerExpandSecretRef"}
    return source


def _bad_source(spec: Object, path: field.Path) -> Errors:
    sources = sorted(set(spec) - _NO_SOURCES)
    if not sources:
        return [field.required(path, "must specify a volume type")]
    more = "may not specify more than 1 volume type"
    errs: Errors = [field.forbidden(path.child(each), more) for each in sources[1:]]
    if csi := spec.get("csi"):
        errs += validate_csi_driver_name(csi.get("driver", ""), path.child("csi", "driver"))
        if not csi.get("volumeHandle"):
            errs.append(field.required(path.child("csi", "volumeHandle")))
    if "local" in spec and not (spec.get("nodeAffinity") or {}).get("required"):
        errs.append(field.required(path.child("nodeAffinity"), "Local volume requires node affinity"))
    return errs


def _bad_access_modes(modes: list[str], path: field.Path) -> Errors:
    errs: Errors = [] if modes else [field.required(path)]
    errs += [field.not_supported(path, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        errs.append(field.forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return errs


class PersistentVolumeClaimStrategy(Strategy):
    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def prepare_create(self, request: Request, obj: Object) -> None:
        obj["status"] = {"phase": "Pending"}

    def validate(self, obj: Object) -> Errors:
        spec = codec.convert(obj["spec"], v1.PersistentVolumeClaimSpec)
        return claims.validate_persistent_volume_claim_spec(spec, field.Path("spec"))

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        """Check that only the size of a bound claim changes, and not below the present capacity."""
        errs = self.validate(new)
        before, after = _fixed_part(old["spec"]), _fixed_part(new["spec"])
        if not old["spec"].get("volumeName"):
            before["volumeName"] = after.get("volumeName")
        size, old_size = _requested(new), _requested(old)
        bound = (new.get("status") or {}).get("phase") == "Bound"
        if before != after or (size != old_size and not bound):
            what = "resources.requests and volumeAttributesClassName"
            detail = f"spec is immutable after creation except {what} for bound claims"
            errs.append(field.forbidden(field.Path("spec"), detail))
        has = quantity(((old.get("status") or {}).get("capacity") or {}).get("storage"))
        if size.cmp(old_size) < 0 and size.cmp(has) <= 0:
            path = field.Path("spec", "resources", "requests", "storage")
            errs.append(field.forbidden(path, "field can not be less than status.capacity"))
        return errs


def _fixed_part(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if name not in ("resources", "volumeAttributesClassName")}


def _requested(claim: Object) -> quantities.Quantity:
    return quantity(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage"))


class VolumeAttachmentStrategy(Strategy):
    def prepare_create(self, request: Request, obj: Object) -> None:
        obj["status"] = {"attached": False}

    def validate(self, obj: Object) -> Errors:
        spec, path = obj.get("spec") or {}, field.Path("spec")
        errs = validate_csi_driver_name(spec.get("attacher", ""), path.child("attacher"))
        source = spec.get("source") or {}
        if not source.get("inlineVolumeSpec") and not source.get("persistentVolumeName"):
            detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
            errs.append(field.required(path.child("source"), detail))
        if not spec.get("nodeName"):
            errs.append(field.required(path.child("nodeName")))
        return errs

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        return self.validate(new) + _immutable(field.Path("spec"), new["spec"], old["spec"])


class CSIDriverStrategy(Strategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        for name, value in (
            ("attachRequired", True),
            ("podInfoOnMount", False),
            ("storageCapacity", False),
            ("fsGroupPolicy", "ReadWriteOnceWithFSType"),
            ("volumeLifecycleModes", ["Persistent"]),
            ("requiresRepublish", False),
            ("seLinuxMount", False),
        ):
            spec.setdefault(name, value)

    def validate(self, obj: Object) -> Errors:
        spec, path = obj["spec"], field.Path("spec")
        errs = validate_csi_driver_name(obj["metadata"].get("name", ""), field.Path("name"))
        policies = ["File", "None", "ReadWriteOnceWithFSType"]
        if spec["fsGroupPolicy"] not in policies:
            errs.append(field.not_supported(path.child("fsGroupPolicy"), spec["fsGroupPolicy"], policies))
        modes = ["Ephemeral", "Persistent"]
        for mode in spec["volumeLifecycleModes"]:
            if mode not in modes:
                errs.append(field.not_supported(path.child("volumeLifecycleModes"), mode, modes))
        audiences = [each.get("audience", "") for each in spec.get("tokenRequests") or []]
        for i, audience in enumerate(audiences):
            if audience in audiences[:i]:
                errs.append(field.duplicate(path.child("tokenRequests").index(i).child("audience"), audience))
        return errs

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        errs, path = self.validate(new), field.Path("spec")
        for name, shown in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")):
            errs += _immutable(path.child(shown), new["spec"].get(name), old["spec"].get(name))
        return errs


class CSINodeStrategy(Strategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec["drivers"] = spec.get("drivers") or []

    def validate(self, obj: Object) -> Errors:
        errs: Errors = []
        names: set[str] = set()
        for i, driver in enumerate(obj["spec"]["drivers"]):
            path = field.Path("spec", "drivers").index(i)
            errs += _bad_driver(driver, path)
            if driver.get("name") in names:
                errs.append(field.duplicate(path.child("name"), driver.get("name")))
            names.add(driver.get("name", ""))
        return errs

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        """Check that drivers' entries are only added or removed, and that only the number of volumes changes."""
        errs = self.validate(new)
        before = {each.get("name"): _without_count(each) for each in old["spec"].get("drivers") or []}
        for driver in new["spec"]["drivers"]:
            after = _without_count(driver)
            errs += _immutable(field.Path("spec", "drivers"), after, before.get(driver.get("name"), after))
        return errs


def _without_count(driver: Object) -> Object:
    return {name: value for name, value in driver.items() if name != "allocatable" and value}


def _bad_driver(driver: Object, path: field.Path) -> Errors:
    errs = validate_csi_driver_name(driver.get("name", ""), path.child("name"))
    node_id = driver.get("nodeID", "")
    if not node_id:
        errs.append(field.required(path.child("nodeID")))
    elif len(node_id) > _NODE_ID_LENGTH:
        errs.append(field.invalid(path.child("nodeID"), node_id, f"must be {_NODE_ID_LENGTH} characters or less"))
    keys = driver.get("topologyKeys") or []
    errs += [field.duplicate(path, key) for i, key in enumerate(keys) if key in keys[:i]]
    count = (driver.get("allocatable") or {}).get("count")
    if count is not None and count < 0:
        errs.append(field.invalid(path.child("allocatable", "count"), count, "must be greater than or equal to 0"))
    return errs


class StorageClassStrategy(Strategy):
    def default(self, obj: Object) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, obj: Object) -> Errors:
        return [] if obj.get("provisioner") else [field.required(field.Path("provisioner"))]

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        errs = self.validate(new)
        for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
            errs += _immutable(field.Path(name), new.get(name), old.get(name))
        return errs
