"""Create, update and delete stored objects.

Go: k8s.io/apiserver/pkg/registry/generic/registry/store.go, pkg/registry/rest/{create,update,delete,meta}.go
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field

from . import deletion, errors
from .interfaces import CREATE, DELETE, UPDATE, Admission, Object, Request
from .pods import PodStrategy, bind
from .policy_strategies import PodDisruptionBudgetStrategy
from .resources import BY_PLURAL, Resource, type_of
from .selectors import fields_used, parse_field_selector, parse_label_selector
from .storage import Entry, Storage
from .storage_strategies import (
    CSIDriverStrategy,
    CSINodeStrategy,
    PersistentVolumeClaimStrategy,
    PersistentVolumeStrategy,
    StorageClassStrategy,
    VolumeAttachmentStrategy,
)
from .strategies import (
    CertificateSigningRequestStrategy,
    ClusterTrustBundleStrategy,
    ConfigMapStrategy,
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PathSegmentNames,
    RuntimeClassStrategy,
    SecretStrategy,
    ServiceStrategy,
    Strategy,
    wrong_shape,
)
from .times import timestamp

_STRATEGIES: dict[str, type[Strategy]] = {
    "pods": PodStrategy,
    "nodes": NodeStrategy,
    "events": EventStrategy,
    "services": ServiceStrategy,
    "secrets": SecretStrategy,
    "configmaps": ConfigMapStrategy,
    "leases": LeaseStrategy,
    "namespaces": NamespaceStrategy,
    "certificatesigningrequests": CertificateSigningRequestStrategy,
    "clustertrustbundles": ClusterTrustBundleStrategy,
    "poddisruptionbudgets": PodDisruptionBudgetStrategy,
    "persistentvolumes": PersistentVolumeStrategy,
    "persistentvolumeclaims": PersistentVolumeClaimStrategy,
    "volumeattachments": VolumeAttachmentStrategy,
    "csidrivers": CSIDriverStrategy,
    "csinodes": CSINodeStrategy,
    "runtimeclasses": RuntimeClassStrategy,
    "storageclasses": StorageClassStrategy,
    "roles": PathSegmentNames,
    "rolebindings": PathSegmentNames,
    "clusterroles": PathSegmentNames,
    "clusterrolebindings": PathSegmentNames,
}
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED_BASE = 58
# The registry creates these namespaces itself, because no controller of this server does.
DEFAULT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

Filter = Callable[[Entry], bool]


def generate_name(base: str) -> str:
    """Return a name that is almost certainly unused."""
    return base[:_MAX_GENERATED_BASE] + "".join(random.choices(_SUFFIX_ALPHABET, k=5))


def without_nulls(value: Any) -> Any:
    """Remove nulls. A null in a body means that the field is not set."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


class Registry:
    """Apply writes to stored objects.

    All methods are thread-safe: a write that loses a race is repeated on the newer object.
    Each write calls `admission` to get the plugins, so that they may be set later.
    """

    def __init__(self, storage: Storage, admission: Callable[[], Admission]) -> None:
        self.storage = storage
        self._admission = admission
        self._strategies = {
            plural: _STRATEGIES.get(plural, Strategy)(resource) for plural, resource in BY_PLURAL.items()
        }
        for name in DEFAULT_NAMESPACES:
            namespace: Object = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
            strategy = self._strategies["namespaces"]
            strategy.default(namespace)
            self._fill_metadata(Request("POST", ""), BY_PLURAL["namespaces"], namespace)
            strategy.prepare_create(Request("POST", ""), namespace)
            storage.insert("namespaces", ("", name), namespace)

    def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        entry = self.storage.get(resource.plural, (namespace if resource.namespaced else "", name))
        if entry is None:
            raise errors.not_found(resource.plural, resource.group, name)
        return entry

    def selection(self, resource: Resource, label_selector: str, field_selector: str) -> Filter | None:
        """Return a filter for the request's selectors, or None if it selects everything.

        Raise ApiError 400 if a selector is invalid.
        """
        try:
            labels = parse_label_selector(label_selector)
            fields = parse_field_selector(field_selector)
        except ValueError as err:
            raise errors.bad_request(str(err)) from err
        if fault := resource.unknown_fields(fields_used(field_selector)):
            raise errors.bad_request(fault)
        if labels.empty() and fields.empty():
            return None

        def selected(entry: Entry) -> bool:
            obj = entry.object
            if not labels.empty() and not labels.matches(obj["metadata"].get("labels") or {}):
                return False
            return fields.empty() or fields.matches(resource.selectable(obj))

        return selected

    def create(self, request: Request, resource: Resource, obj: Object) -> Entry:
        """Store a new object. From then on the object belongs to the registry."""
        obj = without_nulls(obj)
        strategy = self._strategies[resource.plural]
        self._check_identity(request, resource, obj)
        _check_shape(resource, obj)
        strategy.default(obj)
        obj = _ordered(self._admit(request, CREATE, obj, None))
        if resource.namespaced:
            self._check_namespace(resource, request.namespace, obj)
        if obj["metadata"].get("resourceVersion"):
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        self._fill_metadata(request, resource, obj)
        strategy.prepare_create(request, obj)
        errs = [] if strategy.validates_metadata else self._validate_metadata(strategy, obj)
        errs += strategy.validate(obj)
        meta = obj["metadata"]
        if errs:
            raise errors.invalid(resource.kind, resource.group, meta.get("name", ""), errs)
        key = (meta.get("namespace", ""), meta["name"])
        if request.dry_run:
            if self.storage.get(resource.plural, key) is not None:
                raise errors.already_exists(resource.plural, resource.group, meta["name"])
            return Entry(key, obj, 0)
        entry = self.storage.insert(resource.plural, key, obj)
        if entry is None:
            raise errors.already_exists(resource.plural, resource.group, meta["name"])
        return entry

    def _check_identity(self, request: Request, resource: Resource, obj: Object) -> None:
        """Check that kind, version and namespace match the path or are not set."""
        wanted = {"apiVersion": resource.group_version, "kind": resource.kind}
        for name, value in wanted.items():
            if obj.get(name, value) != value:
                version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
                text = f"converting ({version}.{kind}) to (core.{resource.kind}): unknown conversion"
                what = f'{kind} in version "{version}"'
                raise errors.bad_request(f"{what} cannot be handled as a {resource.kind}: {text}")
        obj["apiVersion"], obj["kind"] = wanted["apiVersion"], wanted["kind"]
        meta = obj.setdefault("metadata", {})
        if not isinstance(meta, dict):
            raise errors.bad_request(f"{resource.kind}.metadata: must be an object")
        if not resource.namespaced:
            meta.pop("namespace", None)
            return
        if meta.get("namespace") and meta["namespace"] != request.namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        meta["namespace"] = request.namespace

    def _check_namespace(self, resource: Resource, name: str, obj: Object) -> None:
        namespace = self.storage.get("namespaces", ("", name))
        if namespace is None:
            raise errors.not_found("namespaces", "", name)
        if namespace.object["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            error = errors.forbidden(resource.plural, resource.group, obj["metadata"].get("name", ""), why)
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated"}
            error.details = {**(error.details or {}), "causes": [{**cause, "field": "metadata.namespace"}]}
            raise error

    def _fill_metadata(self, request: Request, resource: Resource, obj: Object) -> None:
        meta = obj["metadata"]
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "managedFields"):
            meta.pop(name, None)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = generate_name(meta["generateName"])
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = timestamp()
        if resource.generation:
            meta["generation"] = 1

    def _validate_metadata(self, strategy: Strategy, obj: Object) -> list[field.Error]:
        meta, path = obj["metadata"], field.Path("metadata")
        name = meta.get("name", "")
        if not name:
            return [field.required(path.child("name"), "name or generateName is required")]
        errs = [field.invalid(path.child("name"), name, message) for message in strategy.validate_name(name)]
        return errs + _validate_labels(meta, path) + _validate_owners(meta, path)

    def update(
        self,
        request: Request,
        resource: Resource,
        name: str,
        change: Callable[[Object], Object],
        *,
        uid: str = "",
    ) -> tuple[Entry, bool]:
        """Store the result of `change`, called with a copy of the object, and report whether the object is new.

        Raise ApiError 409 if the result has a resourceVersion other than the stored one.
        """
        key = (request.namespace if resource.namespaced else "", name)
        while True:
            current = self.storage.get(resource.plural, key)
            if current is None:
                return self._create_on_update(request, resource, name, change), True
            if uid and uid != current.object["metadata"]["uid"]:
                raise self._uid_mismatch(resource, current, uid)
            new = self._updated(request, resource, current, change)
            if new["metadata"].get("deletionTimestamp") and self._may_go_after_update(resource, new, current.object):
                if request.dry_run:
                    return Entry(key, new, current.version), False
                if (gone := self.storage.remove(resource.plural, current)) is not None:
                    return gone, False
                continue
            if new == current.object:
                return current, False
            if request.dry_run:
                return Entry(key, new, current.version), False
            if (entry := self.storage.replace(resource.plural, current, new)) is not None:
                return entry, False

    def _create_on_update(
        self, request: Request, resource: Resource, name: str, change: Callable[[Object], Object]
    ) -> Entry:
        if not resource.create_on_update or request.subresource or request.verb == "patch":
            raise errors.not_found(resource.plural, resource.group, name)
        obj = change({})
        obj.get("metadata", {}).pop("resourceVersion", None)
        return self.create(request, resource, obj)

    def _uid_mismatch(self, resource: Resource, current: Entry, uid: str) -> errors.ApiError:
        path = "/".join(part for part in ("/registry", resource.plural, *current.key) if part)
        why = (
            f"StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current.object['metadata']['uid']}"
        )
        return errors.conflict(resource.plural, resource.group, current.key[1], why)

    def _updated(
        self, request: Request, resource: Resource, current: Entry, change: Callable[[Object], Object]
    ) -> Object:
        strategy = self._strategies[resource.plural]
        old = current.copy()  # Parts of this copy become parts of the new object, which admission may change.
        new = without_nulls(change(current.copy()))
        self._check_identity(request, resource, new)
        meta = new["metadata"]
        if meta.setdefault("name", current.key[1]) != current.key[1]:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({current.key[1]})"
            )
        self._check_version(resource, current, meta)
        _check_shape(resource, new)
        strategy.default(new)
        strategy.prepare_update(request, new, old)
        _keep_metadata(new["metadata"], old["metadata"])
        new = _ordered(self._admit(request, UPDATE, new, old))
        if resource.generation and _spec_differs(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        errs = _validate_metadata_update(new["metadata"], old["metadata"])
        errs += strategy.validate_update(request, new, old)
        if errs:
            raise errors.invalid(resource.kind, resource.group, current.key[1], errs)
        return new

    def _check_version(self, resource: Resource, current: Entry, meta: Object) -> None:
        version = meta.get("resourceVersion") or ""
        if version in ("", "0"):
            if not resource.unconditional_update:
                err = field.invalid(field.Path("metadata", "resourceVersion"), 0, "must be specified for an update")
                raise errors.invalid(resource.plural, resource.group, current.key[1], [err])
            meta["resourceVersion"] = str(current.version)
        elif version != str(current.version):
            raise errors.conflict(resource.plural, resource.group, current.key[1], errors.MODIFIED)

    def _may_go_after_update(self, resource: Resource, new: Object, old: Object) -> bool:
        """Report whether the update has removed the last finalizer and no grace period is left."""
        strategy = self._strategies[resource.plural]
        return (
            strategy.may_go(new) and not strategy.may_go(old) and not old["metadata"].get("deletionGracePeriodSeconds")
        )

    def delete(self, request: Request, resource: Resource, name: str, options: Object) -> tuple[Entry, bool]:
        """Delete an object. Return its state after the request, and whether it no longer exists."""
        deletion.check_options(options)
        key = (request.namespace if resource.namespaced else "", name)
        while True:
            current = self.get(resource, *key)
            self.check_preconditions(resource, current.object, options)
            self._admit(request, DELETE, None, current.object)
            if request.dry_run:
                return current, True
            if (done := self._delete_once(resource, current, options)) is not None:
                return done

    def check_preconditions(self, resource: Resource, obj: Object, options: Object) -> None:
        """Raise ApiError 409 if an object does not meet the preconditions in the options of a deletion."""
        wanted = options.get("preconditions") or {}
        meta, kind = obj["metadata"], resource.kind
        if wanted.get("uid") and wanted["uid"] != meta["uid"]:
            why = (
                f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({meta['uid']}). "
                "The object might have been deleted and then recreated"
            )
            raise errors.conflict(kind, resource.group, meta["name"], why)
        version = wanted.get("resourceVersion")
        if version and version != meta["resourceVersion"]:
            why = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({meta['resourceVersion']}). The object might have been modified"
            )
            raise errors.conflict(kind, resource.group, meta["name"], why)

    def _delete_once(self, resource: Resource, current: Entry, options: Object) -> tuple[Entry, bool] | None:
        """Try the deletion once. Return None if the object has changed meanwhile."""
        strategy = self._strategies[resource.plural]
        obj, wanted = current.object, options.get("gracePeriodSeconds")
        grace = strategy.grace_period(obj, wanted)
        new = current.copy()
        new["metadata"]["finalizers"] = deletion.finalizers(resource, obj, options)
        if not new["metadata"]["finalizers"]:
            del new["metadata"]["finalizers"]
        if grace is None and strategy.may_go(new):
            return self._gone(resource, current)
        marked = deletion.mark(new["metadata"], obj["metadata"], grace or 0, wanted)
        if not marked and (grace is not None or new == obj):
            if strategy.may_go(obj) and not obj["metadata"].get("deletionGracePeriodSeconds"):
                return self._gone(resource, current)
            return current, False
        if resource.plural == "namespaces":
            new["status"] = {**new.get("status", {}), "phase": "Terminating"}
        entry = self.storage.replace(resource.plural, current, new)
        if entry is None:
            return None
        if new["metadata"]["deletionGracePeriodSeconds"] == 0 and strategy.may_go(new):
            return self._gone(resource, entry)
        return entry, False

    def _gone(self, resource: Resource, current: Entry) -> tuple[Entry, bool] | None:
        entry = self.storage.remove(resource.plural, current)
        return None if entry is None else (entry, True)

    def delete_collection(
        self, request: Request, resource: Resource, entries: Sequence[Entry], options: Object
    ) -> list[Entry]:
        """Delete each object, and ignore objects that no longer exist."""
        deleted = []
        for entry in entries:
            one = replace(request, namespace=entry.key[0], name=entry.key[1])
            try:
                deleted.append(self.delete(one, resource, entry.key[1], options)[0])
            except errors.ApiError as err:
                if err.code != 404:
                    raise
        return deleted

    def bind(self, request: Request, name: str, binding: Object) -> None:
        target = (binding.get("target") or {}).get("name", "")
        if not target:
            err = field.required(field.Path("target", "name"))
            raise errors.invalid("Binding", "", name, [err])
        resource = BY_PLURAL["pods"]

        def assign(pod: Object) -> Object:
            bind(pod, target, timestamp())
            annotations = (binding.get("metadata") or {}).get("annotations")
            if annotations:
                pod["metadata"].setdefault("annotations", {}).update(annotations)
            return pod

        self.admit_create(request, binding)
        self.change(resource, (request.namespace, name), assign)

    def admit_create(self, request: Request, obj: Object) -> None:
        """Admit an object that will not be stored. Raise ApiError if a plugin refuses it."""
        self._admit(request, CREATE, obj, None)

    def change(self, resource: Resource, key: tuple[str, str], change: Callable[[Object], Object]) -> Entry:
        """Store the result of `change`, called with a copy of the object, without any checks."""
        while True:
            current = self.get(resource, *key)
            if (entry := self.storage.replace(resource.plural, current, change(current.copy()))) is not None:
                return entry

    def _admit(self, request: Request, operation: str, new: Object | None, old: Object | None) -> Object:
        admitted = self._admission().admit(request, operation, new, old)
        return admitted if admitted is not None else (new or {})


def _check_shape(resource: Resource, obj: Object) -> None:
    """Raise ApiError 400 if an object does not fit the type of its kind."""
    type_ = type_of(resource)
    if type_ is None:
        return
    try:
        codec.convert(obj, type_)
    except codec.DecodeError as err:
        raise wrong_shape(resource, err) from err


def _ordered(obj: Object) -> Object:
    """Put the kind, version and metadata first, as upstream does."""
    first = {name: obj[name] for name in ("kind", "apiVersion", "metadata")}
    return first | obj


def _validate_labels(meta: Object, path: field.Path) -> list[field.Error]:
    errs: list[field.Error] = []
    for key, value in (meta.get("labels") or {}).items():
        errs += [field.invalid(path.child("labels"), key, text) for text in validation.is_qualified_name(key)]
        errs += [field.invalid(path.child("labels"), value, text) for text in validation.is_valid_label_value(value)]
    for key in meta.get("annotations") or {}:
        errs += [
            field.invalid(path.child("annotations"), key, text) for text in validation.is_qualified_name(key.lower())
        ]
    return errs


def _validate_owners(meta: Object, path: field.Path) -> list[field.Error]:
    errs: list[field.Error] = []
    path, owners = path.child("ownerReferences"), meta.get("ownerReferences") or []
    for i, owner in enumerate(owners):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                detail = "version must not be empty" if name == "apiVersion" else "must not be empty"
                errs.append(field.invalid(path.index(i).child(name), "", detail))
    controllers = [f"{each.get('kind')}/{each.get('name')}" for each in owners if each.get("controller")]
    for other in controllers[1:]:
        detail = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {other}"
        )
        errs.append(field.invalid(path, owners, detail))
    return errs


def _keep_metadata(new: Object, old: Object) -> None:
    """Silently restore the fields that no update may change."""
    for name in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "generateName"):
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)
    new.pop("managedFields", None)
    new.pop("selfLink", None)
    new.setdefault("uid", old["uid"])


def _validate_metadata_update(new: Object, old: Object) -> list[field.Error]:
    path = field.Path("metadata")
    errs = []
    if new["uid"] != old["uid"]:
        errs.append(field.invalid(path.child("uid"), new["uid"], "field is immutable"))
    if old.get("deletionTimestamp"):
        added = [name for name in new.get("finalizers") or [] if name not in (old.get("finalizers") or [])]
        if added:
            names = ", ".join(f'"{name}"' for name in sorted(added))
            detail = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{names}}}"
            )
            errs.append(field.forbidden(path.child("finalizers"), detail))
    return errs + _validate_labels(new, path) + _validate_owners(new, path)


def _spec_differs(new: Object, old: Object) -> bool:
    return any(new.get(name) != old.get(name) for name in new.keys() | old.keys() if name not in ("metadata", "status"))
