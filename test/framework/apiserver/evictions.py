"""Evict a pod: delete it unless the deletion exceeds the pod's disruption budget.

Go: pkg/registry/core/pod/storage/eviction.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.apimachinery import labels
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec

from . import errors
from .interfaces import Object, Request
from .pods import set_condition
from .registry import Registry, without_nulls
from .resources import BY_PLURAL
from .storage import Entry
from .times import timestamp

_PODS, _BUDGETS = BY_PLURAL["pods"], BY_PLURAL["poddisruptionbudgets"]
_CAUSE = "DisruptionBudget"
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_MORE_THAN_ONE = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
# At most this many evicted pods may wait until the disruption controller has seen their deletion.
_MOST_DISRUPTED = 2000
_RETRY_AFTER = 10  # seconds
_UNDISTURBED = ("Failed", "Succeeded", "Pending")
_EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def evict(registry: Registry, request: Request, name: str, eviction: Object) -> None:
    """Delete the pod. Raise ApiError 429 if its budget does not allow that now, and 500 if it has two budgets."""
    if (eviction.get("metadata") or {}).get("name") != name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    options = without_nulls(eviction.get("deleteOptions") or {})
    request.dry_run = request.dry_run or options.get("dryRun") == ["All"]
    registry.admit_create(request, eviction)
    pod = _delete_without_budget(registry, request, name, options)
    if pod is None:
        return
    budget = _budget_of(registry, pod.object)
    if budget is not None and _goes_without_budget(pod.object, budget):
        _delete_unready(registry, request, pod, options, budget)
        return
    if budget is not None:
        _take_from(registry, budget, name, request.dry_run)
    _mark_and_delete(registry, request, pod, options)


def _delete_without_budget(registry: Registry, request: Request, name: str, options: Object) -> Entry | None:
    """Delete a pod whose deletion disrupts nothing, and return None. Return any other pod without deleting it."""
    while True:
        pod = registry.get(_PODS, request.namespace, name)
        if not _needs_no_budget(pod.object):
            return pod
        # A pending pod may become ready meanwhile.
        changes = pod.object["status"].get("phase") == "Pending" and not _version(options)
        try:
            registry.delete(request, _PODS, name, _at_version(options, pod) if changes else options)
            return None
        except errors.ApiError as err:
            if err.code != 409 or not changes or registry.get(_PODS, *pod.key).version == pod.version:
                raise


def _delete_unready(registry: Registry, request: Request, pod: Entry, options: Object, budget: Object) -> None:
    try:
        _mark_and_delete(registry, request, pod, options if _version(options) else _at_version(options, pod))
    except errors.ApiError as err:
        if err.code != 409 or _version(options):
            raise
        raise _still_processed(budget["metadata"]["name"]) from err  # The pod may have become ready.


def _mark_and_delete(registry: Registry, request: Request, pod: Entry, options: Object) -> None:
    name = pod.key[1]
    if request.dry_run:
        registry.delete(request, _PODS, name, options)
        return

    def mark(found: Object) -> Object:
        registry.check_preconditions(_PODS, found, options)
        set_condition(found, _EVICTED, timestamp())
        return found

    registry.change(_PODS, pod.key, mark)
    # The condition has changed the pod's resource version.
    preconditions = {**(options.get("preconditions") or {}), "resourceVersion": ""}
    registry.delete(request, _PODS, name, {**options, "preconditions": preconditions})


def _version(options: Object) -> str:
    version: str = (options.get("preconditions") or {}).get("resourceVersion", "")
    return version


def _at_version(options: Object, pod: Entry) -> Object:
    preconditions = {**(options.get("preconditions") or {}), "resourceVersion": str(pod.version)}
    return {**options, "preconditions": preconditions}


def _needs_no_budget(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) or pod["status"].get("phase") in _UNDISTURBED


def _budget_of(registry: Registry, pod: Object) -> Object | None:
    entries, _ = registry.storage.entries(_BUDGETS.plural, pod["metadata"]["namespace"])
    found = [entry.object for entry in entries if selects(entry.object, pod)]
    if len(found) > 1:
        raise errors.ApiError(500, "", _MORE_THAN_ONE)
    return found[0] if found else None


def selects(budget: Object, pod: Object) -> bool:
    """Report whether a budget selects a pod. Without a selector it selects no pod, with an empty one all pods."""
    return selector_of(budget).matches(pod["metadata"].get("labels") or {})


def selector_of(budget: Object) -> labels.Selector:
    selector = (budget.get("spec") or {}).get("selector")
    return metav1.label_selector_as_selector(
        None if selector is None else codec.convert(selector, metav1.LabelSelector)
    )


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("type") == v1.POD_READY and each.get("status") == v1.CONDITION_TRUE for each in conditions)


def _goes_without_budget(pod: Object, budget: Object) -> bool:
    """Report whether a pod may be evicted without a budget because it is not ready and so disrupts nothing."""
    if is_ready(pod):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget["status"]
    return bool(status["currentHealthy"] >= status["desiredHealthy"] > 0)


def _take_from(registry: Registry, budget: Object, pod: str, dry_run: bool) -> None:
    """Count a pod as disrupted. Raise ApiError 429 or 403 if the budget does not allow that."""
    metadata = budget["metadata"]
    if dry_run:
        _check(budget)
        return

    def take(found: Object) -> Object:
        _check(found)
        status = found["status"]
        status["disruptionsAllowed"] -= 1
        if status["disruptionsAllowed"] == 0:
            update_condition(found)
        status.setdefault("disruptedPods", {})[pod] = timestamp()
        return found

    registry.change(_BUDGETS, (metadata["namespace"], metadata["name"]), take)


def _check(budget: Object) -> None:
    name, status = budget["metadata"]["name"], budget["status"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _still_processed(name)
    if len(status.get("disruptedPods") or {}) > _MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden("poddisruptionbudget", "policy", name, why)
    if status["disruptionsAllowed"] == 0:
        raise _too_many(_why_none(budget), 0)


def _why_none(budget: Object) -> str:
    """Return the reason why no pod may be disrupted."""
    name, status = budget["metadata"]["name"], budget["status"]
    condition: Object = next(
        (each for each in status.get("conditions") or [] if each["type"] == "DisruptionAllowed"), {}
    )
    why = condition.get("message", "") if condition.get("status") == "False" else ""
    if why and condition["reason"] == "SyncFailed":
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
    healthy, needed = status["currentHealthy"], status["desiredHealthy"]
    if healthy <= needed:
        return f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
    text = f"The disruption budget {name} does not allow evicting pods currently"
    return f"{text} ({condition['reason']}): {why}" if why else text


def _still_processed(name: str) -> errors.ApiError:
    return _too_many(f"The disruption budget {name} is still being processed by the server.", _RETRY_AFTER)


def _too_many(why: str, retry_after: int) -> errors.ApiError:
    error = errors.too_many_requests(_REFUSED, retry_after)
    error.details = {"causes": [{"reason": _CAUSE, "message": why}], **(error.details or {})}
    return error


def update_condition(budget: Object) -> None:
    """Set the condition from `disruptionsAllowed`.

    Go: k8s.io/component-helpers/apps/poddisruptionbudget
    """
    allowed = budget["status"]["disruptionsAllowed"] > 0
    reason = "SufficientPods" if allowed else "InsufficientPods"
    set_disruption_allowed(budget, "True" if allowed else "False", reason, "")


def set_disruption_allowed(budget: Object, value: str, reason: str, message: str) -> None:
    status = budget["status"]
    conditions = status.setdefault("conditions", [])
    known = next((each for each in conditions if each["type"] == "DisruptionAllowed"), None)
    condition = {
        "type": "DisruptionAllowed",
        "status": value,
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": timestamp(),
        "reason": reason,
        "message": message,
    }
    if known is None:
        conditions.append(condition)
        return
    if known["status"] == value:
        condition["lastTransitionTime"] = known["lastTransitionTime"]
    known |= condition
