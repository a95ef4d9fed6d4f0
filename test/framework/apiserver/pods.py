"""Handle pods: their defaults, the permitted updates, and their deletion.

Go: k8s.io/kubernetes/pkg/registry/core/pod/strategy.go, pkg/apis/core/validation/validation.go (ValidatePodUpdate)
"""

from __future__ import annotations

from typing import Any

from pkg.api.core import v1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.validation import field
from pkg.apis.core import validation as corevalidation
from pkg.apis.core.v1 import defaults
from pkg.apis.core.v1.helper import qos
from pkg.apis.core.validation.options import PodValidationOptions

from . import errors, resize
from .interfaces import Object, Request
from .strategies import Errors, Strategy, restore, wrong_shape

_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)
_OPTIONS = PodValidationOptions()


class PodStrategy(Strategy):
    validates_metadata = True

    def default(self, obj: Object) -> None:
        """Set upstream's defaults, and those values of its built-in admission without which a pod is incomplete."""
        spec = obj.setdefault("spec", {})
        obj["status"] = obj.get("status") or {}
        _same_service_account(spec)
        pod = _typed(self, obj)
        defaults.set_object_defaults_pod(pod)
        fill_in(spec, codec.to_builtins(pod.spec))
        for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
            container.setdefault("resources", {})
            for variable in container.get("env") or []:
                _set_divisor(variable.get("valueFrom"))
        for container in spec.get("ephemeralContainers") or []:
            _default_ephemeral_container(self, container)
        for volume in spec.get("volumes") or []:
            projected = (volume.get("projected") or {}).get("sources") or []
            for source in [volume, *projected]:
                for item in (source.get("downwardAPI") or {}).get("items") or []:
                    _set_divisor(item)

    def prepare_create(self, request: Request, obj: Object) -> None:
        obj["status"] = {"phase": "Pending", "qosClass": qos.compute_pod_qos(_typed(self, obj))}
        spec = obj["spec"]
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        spec.setdefault("priority", 0)
        if spec.get("schedulingGates"):
            gated = {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": None,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
            obj["status"]["conditions"] = [gated]

    def prepare_update(self, request: Request, new: Object, old: Object) -> None:
        match request.subresource:
            case "status":
                _prepare_status(new, old)
            case "ephemeralcontainers":
                _keep_but(new, old, "ephemeralContainers")
            case "resize":
                resize.prepare(new, old)
            case _:
                restore(new, old, "status")

    def validate(self, obj: Object) -> Errors:
        return list(corevalidation.validate_pod_create(_typed(self, obj), _OPTIONS))

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        match request.subresource:
            case "status":
                return _validate_status(new, old)
            case "ephemeralcontainers":
                return _validate_ephemeral_containers(new, old)
            case "resize":
                typed = _typed(self, new)
                errs = corevalidation.validate_pod_spec(typed.spec, typed.metadata, field.Path("spec"), _OPTIONS)
                return list(errs) + resize.validate(typed, _typed(self, old), old)
            case "binding":
                return []
            case _:
                return _validate_spec_update(new, old)

    def grace_period(self, obj: Object, wanted: int | None) -> int | None:
        period = obj["spec"].get("terminationGracePeriodSeconds", 0) if wanted is None else wanted
        if not obj["spec"].get("nodeName") or obj["status"].get("phase") in ("Failed", "Succeeded"):
            return 0
        return 1 if period < 0 else int(period)

    def returns_deleted_object(self) -> bool:
        return True


def _default_ephemeral_container(strategy: Strategy, container: Object) -> None:
    try:
        typed = codec.convert(container, v1.Container)
    except codec.DecodeError as err:
        raise wrong_shape(strategy.resource, err) from err
    defaults.set_defaults_container(typed)
    fill_in(container, codec.to_builtins(typed))
    container.setdefault("resources", {})


def _set_divisor(source: Object | None) -> None:
    """Set a divisor of "0", which upstream writes too."""
    reference = (source or {}).get("resourceFieldRef")
    if reference is not None:
        reference.setdefault("divisor", "0")


def _typed(strategy: Strategy, obj: Object) -> v1.Pod:
    try:
        return codec.convert(obj, v1.Pod)
    except codec.DecodeError as err:
        raise wrong_shape(strategy.resource, err) from err


def _same_service_account(spec: Object) -> None:
    """Give the old and the new field for the service account the same value."""
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name


def fill_in(obj: Object, defaulted: Object) -> None:
    """Copy into the object what a defaulted copy has and the object lacks. Fields that the copy does not know stay.

    Quantities take the canonical form of the copy.
    """
    for key, value in defaulted.items():
        mine = obj.get(key)
        if (key in ("limits", "requests") and isinstance(value, dict)) or mine is None or mine == "":
            obj[key] = value
        elif isinstance(mine, dict) and isinstance(value, dict):
            fill_in(mine, value)
        elif isinstance(mine, list) and isinstance(value, list) and len(mine) == len(value):
            for my_item, item in zip(mine, value, strict=True):
                if isinstance(my_item, dict) and isinstance(item, dict):
                    fill_in(my_item, item)


def _prepare_status(new: Object, old: Object) -> None:
    new["spec"] = old["spec"]
    restore(new["metadata"], old["metadata"], "deletionTimestamp", "ownerReferences")
    before, after = old["status"], new.setdefault("status", {})
    if not after.get("qosClass") and before.get("qosClass"):
        after["qosClass"] = before["qosClass"]
    if not after.get("observedGeneration") and before.get("observedGeneration"):
        after["observedGeneration"] = before["observedGeneration"]
    generations = {c.get("type"): c.get("observedGeneration") for c in before.get("conditions") or []}
    for condition in after.get("conditions") or []:
        if not condition.get("observedGeneration") and generations.get(condition.get("type")):
            condition["observedGeneration"] = generations[condition["type"]]


def _keep_but(new: Object, old: Object, *names: str) -> None:
    """Undo all changes of an object except those of these fields of the spec."""
    wanted = {name: new["spec"].get(name) for name in names}
    new["spec"] = dict(old["spec"])
    for name, value in wanted.items():
        if value is not None:
            new["spec"][name] = value
    restore(new, old, "status")


def _validate_status(new: Object, old: Object) -> Errors:
    errs: Errors = []
    path = field.Path("status")
    status = new["status"]
    nominated = status.get("nominatedNodeName")
    if nominated and not isinstance(nominated, str):
        errs.append(field.invalid(path.child("nominatedNodeName"), nominated, "must be a name"))
    for i, condition in enumerate(status.get("conditions") or []):
        if condition.get("observedGeneration", 0) < 0:
            detail = "must be greater than or equal to 0"
            at = path.child("conditions").index(i).child("observedGeneration")
            errs.append(field.invalid(at, condition["observedGeneration"], detail))
    if status.get("qosClass") != old["status"].get("qosClass") and old["status"].get("qosClass"):
        errs.append(field.invalid(path.child("qosClass"), status.get("qosClass"), "field is immutable"))
    policy = new["spec"].get("restartPolicy")
    for name in ("containerStatuses", "initContainerStatuses"):
        restartable = {
            container["name"]
            for container in new["spec"].get("initContainers" if name.startswith("init") else "containers") or []
            if container.get("restartPolicy") == "Always" or container.get("restartPolicyRules")
        }
        errs += _validate_states(status, old["status"], name, policy, restartable)
    return errs + _validate_ips(status, path)


def _validate_states(status: Object, old: Object, name: str, policy: Any, restartable: set[str]) -> Errors:
    """Check that a container that has terminated permanently does not return to another state."""
    if policy == "Always":
        return []
    errs: Errors = []
    after = {item.get("name"): item for item in status.get(name) or []}
    for before in old.get(name) or []:
        ended = (before.get("state") or {}).get("terminated")
        if ended is None or before.get("name") in restartable:
            continue
        if policy == "OnFailure" and ended.get("exitCode"):
            continue
        now = after.get(before.get("name"))
        if now is not None and "terminated" not in (now.get("state") or {}):
            index = (status.get(name) or []).index(now)
            at = field.Path("status", name).index(index).child("state")
            errs.append(field.forbidden(at, "may not be transitioned to non-terminated state"))
    return errs


def _validate_ips(status: Object, path: field.Path) -> Errors:
    ips = [item.get("ip") for item in status.get("podIPs") or []]
    first = status.get("podIP")
    if first and ips and ips[0] != first:
        return [field.invalid(path.child("podIPs").index(0).child("ip"), ips[0], "must be equal to `podIP`")]
    return []


def _validate_ephemeral_containers(new: Object, old: Object) -> Errors:
    path = field.Path("spec", "ephemeralContainers")
    after = {item.get("name"): item for item in new["spec"].get("ephemeralContainers") or []}
    errs: Errors = []
    for before in old["spec"].get("ephemeralContainers") or []:
        if before["name"] not in after:
            detail = f'existing ephemeral containers "{before["name"]}" may not be removed\n'
            errs.append(field.forbidden(path, detail))
        elif after[before["name"]] != before:
            detail = f'existing ephemeral containers "{before["name"]}" may not be changed\n'
            errs.append(field.forbidden(path, detail))
    return errs


def _validate_spec_update(new: Object, old: Object) -> Errors:
    after, before = new["spec"], old["spec"]
    errs: Errors = []
    path = field.Path("spec")
    for name in ("containers", "initContainers"):
        counts = len(after.get(name) or []), len(before.get(name) or [])
        if counts[0] != counts[1]:
            return [field.forbidden(path.child(name), "pod updates may not add or remove containers")]
        for i, container in enumerate(after.get(name) or []):
            if not container.get("image"):
                errs.append(field.required(path.child(name).index(i).child("image")))
    errs += _validate_deadline(after, before, path.child("activeDeadlineSeconds"))
    errs += _validate_tolerations(after, before, path.child("tolerations"))
    if _fixed_part(after, before) != _fixed_part(before, before):
        detail = f"pod updates may not change fields other than {_UPDATABLE}"
        errs.append(field.forbidden(path, detail))
    return errs


def _validate_deadline(after: Object, before: Object, path: field.Path) -> Errors:
    new, old = after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if new is None:
        if old is None:
            return []
        return [field.invalid(path, None, "must not update from a positive integer to nil value")]
    if new < 0:
        return [field.invalid(path, new, "must be between 0 and 2147483647, inclusive")]
    if old is not None and old < new:
        return [field.invalid(path, new, "must be less than or equal to previous value")]
    return []


def _validate_tolerations(after: Object, before: Object, path: field.Path) -> Errors:
    def fixed(toleration: Object) -> Object:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [fixed(item) for item in after.get("tolerations") or []]
    if all(fixed(item) in kept for item in before.get("tolerations") or []):
        return []
    detail = "existing toleration can not be modified except its tolerationSeconds"
    return [field.forbidden(path, detail)]


def _fixed_part(spec: Object, old: Object) -> Object:
    """Return the spec without the fields that an update may change."""
    fixed = dict(spec)
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        fixed.pop(name, None)
    for name in ("containers", "initContainers"):
        fixed[name] = [{**item, "image": ""} for item in spec.get(name) or []]
    grace = old.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        fixed["terminationGracePeriodSeconds"] = grace
    return fixed


def bind(pod: Object, node: str, now: str) -> None:
    """Bind a pod to a node. Raise ApiError if it is already bound or its deletion has been requested."""
    name = pod["metadata"]["name"]
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
        raise errors.conflict("pods/binding", "", name, why)
    if bound := pod["spec"].get("nodeName"):
        raise errors.conflict("pods/binding", "", name, f'pod {name} is already assigned to node "{bound}"')
    pod["spec"]["nodeName"] = node
    set_condition(pod, {"type": "PodScheduled", "status": "True"}, now)


def set_condition(pod: Object, condition: Object, now: str) -> None:
    """Replace the condition of the same type, or add it."""
    conditions = pod["status"].setdefault("conditions", [])
    new = {**condition, "lastProbeTime": None, "lastTransitionTime": now}
    for i, present in enumerate(conditions):
        if present.get("type") == condition["type"]:
            if present.get("status") == condition["status"]:
                new["lastTransitionTime"] = present.get("lastTransitionTime", now)
            conditions[i] = {**present, **new}
            return
    conditions.append(new)
