"""Compute what a deletion leaves to the garbage collector, and how long a deleted object stays.

Go: k8s.io/apiserver/pkg/registry/generic/registry/store.go (deletionFinalizersForGarbageCollection, markAsDeleting),
k8s.io/apiserver/pkg/registry/rest/delete.go (BeforeDelete), k8s.io/apimachinery/pkg/apis/meta/v1/validation
"""

from __future__ import annotations

import datetime

from pkg.apimachinery.util.validation import field

from . import errors
from .interfaces import Object
from .resources import Resource
from .times import parse_timestamp, timestamp

FOREGROUND, BACKGROUND, ORPHAN = "Foreground", "Background", "Orphan"
# The garbage collector removes these finalizers.
DELETE_DEPENDENTS = "foregroundDeletion"
ORPHAN_DEPENDENTS = "orphan"
_POLICIES = [FOREGROUND, BACKGROUND, ORPHAN, "nil"]


def check_options(options: Object) -> None:
    """Validate the options of a deletion. Raise ApiError 422 if they are invalid."""
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    path = field.Path("propagationPolicy")
    errs = []
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        errs.append(field.invalid(path, policy, detail))
    if policy is not None and policy not in _POLICIES[:-1]:
        errs.append(field.not_supported(path, policy, _POLICIES))
    if errs:
        raise errors.invalid("DeleteOptions", "meta.k8s.io", "", errs)


def finalizers(resource: Resource, obj: Object, options: Object) -> list[str]:
    """Return the finalizers of a deleted object, with one for the garbage collector if the dependents need it."""
    present: list[str] = obj["metadata"].get("finalizers") or []
    kept = [each for each in present if each not in (DELETE_DEPENDENTS, ORPHAN_DEPENDENTS)]
    match _policy(resource, present, options):
        case "Orphan":
            wanted = [*kept, ORPHAN_DEPENDENTS]
        case "Foreground":
            wanted = [*kept, DELETE_DEPENDENTS]
        case _:
            wanted = kept
    return present if set(wanted) == set(present) else wanted


def _policy(resource: Resource, present: list[str], options: Object) -> str:
    """Return the propagation policy of the options, else of the object's finalizers, else of its kind."""
    if not resource.propagation:
        return ""
    if (orphan := options.get("orphanDependents")) is not None:
        return ORPHAN if orphan else BACKGROUND
    if policy := options.get("propagationPolicy"):
        return str(policy)
    if ORPHAN_DEPENDENTS in present:
        return ORPHAN
    return FOREGROUND if DELETE_DEPENDENTS in present else resource.propagation


def mark(meta: Object, old: Object, grace: int, wanted: int | None) -> bool:
    """Set the time at which the object will be gone, or make it earlier. Return False if nothing changes."""
    now = datetime.datetime.now(datetime.UTC)
    if not old.get("deletionTimestamp"):
        meta["deletionTimestamp"] = timestamp(now + datetime.timedelta(seconds=grace))
        meta["deletionGracePeriodSeconds"] = grace
        if old.get("generation"):
            meta["generation"] = old["generation"] + 1
        return True
    before = old.get("deletionGracePeriodSeconds") or 0
    if before == 0 or wanted is None or wanted >= before:
        return False
    begun = parse_timestamp(old["deletionTimestamp"]) - datetime.timedelta(seconds=before)
    moment = begun + datetime.timedelta(seconds=wanted)
    if moment < now:
        moment = now
        wanted = 1 if wanted else 0
    meta["deletionTimestamp"] = timestamp(moment)
    meta["deletionGracePeriodSeconds"] = wanted
    return True
