"""Validate affinity, tolerations and topology spread, which the kubelet does not use itself.

Go: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pkg.api.core import v1
from pkg.apimachinery.api import validation as apimachineryvalidation
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.apis.meta.v1 import validation as unversionedvalidation
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.apis.core.validation.names import Errors, invalid_each, validate_positive_field
from pkg.apis.core.validation.options import PodValidationOptions
from pkg.golang import strconv

_TAINT_EFFECTS = [v1.TAINT_EFFECT_NO_SCHEDULE, v1.TAINT_EFFECT_PREFER_NO_SCHEDULE, v1.TAINT_EFFECT_NO_EXECUTE]
_WHEN_UNSATISFIABLE = ["DoNotSchedule", "ScheduleAnyway"]
_NODE_INCLUSION_POLICIES = ["Honor", "Ignore"]


def validate_tolerations(
    tolerations: Sequence[v1.Toleration], fld_path: field.Path, opts: PodValidationOptions
) -> Errors:
    errs: Errors = []
    for i, toleration in enumerate(tolerations):
        path = fld_path.index(i)
        if toleration.key:
            errs += unversionedvalidation.validate_label_name(toleration.key, path.child("key"))
        elif toleration.operator != v1.TOLERATION_OP_EXISTS:
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errs.append(field.invalid(path.child("operator"), toleration.operator, detail))
        if toleration.toleration_seconds is not None and toleration.effect != v1.TAINT_EFFECT_NO_EXECUTE:
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errs.append(field.invalid(path.child("effect"), toleration.effect, detail))
        errs += _validate_toleration_operator(toleration, path, opts)
        if toleration.effect and toleration.effect not in _TAINT_EFFECTS:
            errs.append(field.not_supported(path.child("effect"), toleration.effect, _TAINT_EFFECTS))
    return errs


def _is_canonical_integer(value: str) -> bool:
    try:
        return str(strconv.parse_int(value)) == value
    except strconv.NumError:
        return False


def _validate_toleration_operator(
    toleration: v1.Toleration, fld_path: field.Path, opts: PodValidationOptions
) -> Errors:
    path, value = fld_path.child("operator"), toleration.value
    match toleration.operator:
        case "Equal" | "":
            messages = validation.is_valid_label_value(value)
            return [field.invalid(path, value, ";".join(messages))] if messages else []
        case "Exists":
            detail = "value must be empty when `operator` is 'Exists'"
            return [field.invalid(path, value, detail)] if value else []
        case "Lt" | "Gt" if opts.allow_taint_toleration_comparison_operators:
            if _is_canonical_integer(value):
                return []
            return [field.invalid(fld_path.child("value"), value, "must be a valid decimal integer in canonical form")]
        case "Lt" | "Gt":
            return [field.not_supported(path, toleration.operator, ["Equal", "Exists", "Gt", "Lt"])]
    return [field.not_supported(path, toleration.operator, ["Equal", "Exists"])]


def validate_affinity(affinity: v1.Affinity | None, fld_path: field.Path) -> Errors:
    if affinity is None:
        return []
    errs: Errors = []
    if affinity.node_affinity is not None:
        errs += _validate_node_affinity(affinity.node_affinity, fld_path.child("nodeAffinity"))
    for name, terms in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        if terms is not None:
            errs += _validate_pod_affinity(terms, fld_path.child(name))
    return errs


def _validate_node_affinity(affinity: v1.NodeAffinity, fld_path: field.Path) -> Errors:
    errs: Errors = []
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        path = fld_path.child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
        if not required.node_selector_terms:
            errs.append(field.required(path, "must have at least one node selector term"))
        for i, term in enumerate(required.node_selector_terms):
            errs += _validate_node_selector_term(term, path.index(i), allow_invalid_values=False)
    path = fld_path.child("preferredDuringSchedulingIgnoredDuringExecution")
    for i, preferred in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        errs += _validate_weight(preferred.weight, path.index(i))
        # The values of preferred terms were never validated in the past, so existing pods may contain invalid ones.
        preference_path = path.index(i).child("preference")
        errs += _validate_node_selector_term(preferred.preference, preference_path, allow_invalid_values=True)
    return errs


def _validate_weight(weight: int, fld_path: field.Path) -> Errors:
    if 0 < weight <= 100:
        return []
    return [field.invalid(fld_path.child("weight"), weight, "must be in the range 1-100")]


def _validate_node_selector_term(
    term: v1.NodeSelectorTerm, fld_path: field.Path, *, allow_invalid_values: bool
) -> Errors:
    errs: Errors = []
    for i, requirement in enumerate(term.match_expressions):
        path = fld_path.child("matchExpressions").index(i)
        errs += _validate_node_selector_requirement(requirement, path, allow_invalid_values)
    for i, requirement in enumerate(term.match_fields):
        errs += _validate_node_field_selector_requirement(requirement, fld_path.child("matchFields").index(i))
    return errs


def _validate_node_selector_requirement(
    requirement: v1.NodeSelectorRequirement, fld_path: field.Path, allow_invalid_values: bool
) -> Errors:
    errs: Errors = []
    values_path = fld_path.child("values")
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                errs.append(field.required(values_path, "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if requirement.values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errs.append(field.forbidden(values_path, detail))
        case "Gt" | "Lt":
            if len(requirement.values) != 1:
                detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                errs.append(field.required(values_path, detail))
        case operator:
            errs.append(field.invalid(fld_path.child("operator"), operator, "not a valid selector operator"))
    errs += unversionedvalidation.validate_label_name(requirement.key, fld_path.child("key"))
    if not allow_invalid_values:
        for i, value in enumerate(requirement.values):
            errs += invalid_each(values_path.index(i), value, validation.is_valid_label_value(value))
    return errs


def _validate_node_field_selector_requirement(requirement: v1.NodeSelectorRequirement, fld_path: field.Path) -> Errors:
    errs: Errors = []
    if requirement.operator not in ("In", "NotIn"):
        detail = "not a valid selector operator"
        errs.append(field.invalid(fld_path.child("operator"), requirement.operator, detail))
    elif len(requirement.values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errs.append(field.required(fld_path.child("values"), detail))
    if requirement.key != "metadata.name":
        errs.append(field.invalid(fld_path.child("key"), requirement.key, "not a valid field selector key"))
        return errs
    for i, value in enumerate(requirement.values):
        messages = apimachineryvalidation.name_is_dns_subdomain(value, False)
        errs += invalid_each(fld_path.child("values").index(i), value, messages)
    return errs


def _validate_pod_affinity(affinity: v1.PodAffinity | v1.PodAntiAffinity, fld_path: field.Path) -> Errors:
    errs: Errors = []
    path = fld_path.child("requiredDuringSchedulingIgnoredDuringExecution")
    for i, term in enumerate(affinity.required_during_scheduling_ignored_during_execution):
        errs += _validate_pod_affinity_term(term, path.index(i))
    path = fld_path.child("preferredDuringSchedulingIgnoredDuringExecution")
    for i, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        errs += _validate_weight(weighted.weight, path.index(i))
        errs += _validate_pod_affinity_term(weighted.pod_affinity_term, path.index(i).child("podAffinityTerm"))
    return errs


def _validate_pod_affinity_term(term: v1.PodAffinityTerm, fld_path: field.Path) -> Errors:
    validate_selector = unversionedvalidation.validate_label_selector
    errs: Errors = []
    errs += validate_selector(term.label_selector, fld_path.child("labelSelector"))
    errs += validate_selector(term.namespace_selector, fld_path.child("namespaceSelector"))
    for name in term.namespaces:
        messages = apimachineryvalidation.validate_namespace_name(name, False)
        errs += invalid_each(fld_path.child("namespace"), name, messages)
    errs += _validate_match_label_keys_and_mismatch_label_keys(
        fld_path, term.match_label_keys, term.mismatch_label_keys, term.label_selector
    )
    path = fld_path.child("topologyKey")
    if not term.topology_key:
        errs.append(field.required(path, "can not be empty"))
    return errs + unversionedvalidation.validate_label_name(term.topology_key, path)


def _validate_match_label_keys_and_mismatch_label_keys(
    fld_path: field.Path,
    match_keys: Sequence[str],
    mismatch_keys: Sequence[str],
    selector: metav1.LabelSelector | None,
) -> Errors:
    """Validate keys whose values the API server merges into the selector when the pod is created."""
    errs = _validate_label_keys(fld_path.child("matchLabelKeys"), match_keys, selector)
    errs += _validate_label_keys(fld_path.child("mismatchLabelKeys"), mismatch_keys, selector)
    if selector is not None:
        # The first of several equal keys counts.
        indices = {key: i for i, key in reversed(list(enumerate(match_keys)))}
        # A key may occur once because of the merge. A second occurrence was in the manifest.
        seen = set(selector.match_labels)
        for expression in selector.match_expressions:
            if expression.key in indices and expression.key in seen:
                detail = "exists in both matchLabelKeys and labelSelector"
                errs.append(field.invalid(fld_path.index(indices[expression.key]), expression.key, detail))
            seen.add(expression.key)
    mismatched = set(mismatch_keys)
    for i, key in enumerate(match_keys):
        if key in mismatched:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            errs.append(field.invalid(fld_path.child("matchLabelKeys").index(i), key, detail))
    return errs


def _validate_label_keys(fld_path: field.Path, keys: Sequence[str], selector: metav1.LabelSelector | None) -> Errors:
    if not keys:
        return []
    if selector is None:
        return [field.forbidden(fld_path, "must not be specified when labelSelector is not set")]
    errs: Errors = []
    for i, key in enumerate(keys):
        errs += unversionedvalidation.validate_label_name(key, fld_path.index(i))
    return errs


def validate_topology_spread_constraints(
    constraints: Sequence[v1.TopologySpreadConstraint], fld_path: field.Path, opts: PodValidationOptions
) -> Errors:
    errs: Errors = []
    # `left` is the number of constraints of each kind from this point on.
    left = Counter((constraint.topology_key, constraint.when_unsatisfiable) for constraint in constraints)
    for i, constraint in enumerate(constraints):
        path = fld_path.index(i)
        errs += validate_positive_field(constraint.max_skew, path.child("maxSkew"))
        if not constraint.topology_key:
            errs.append(field.required(path.child("topologyKey"), "can not be empty"))
        when = constraint.when_unsatisfiable
        if when not in _WHEN_UNSATISFIABLE:
            errs.append(field.not_supported(path.child("whenUnsatisfiable"), when, _WHEN_UNSATISFIABLE))
        key = (constraint.topology_key, when)
        left[key] -= 1
        if left[key]:
            repeated = path.child("{topologyKey, whenUnsatisfiable}")
            errs.append(field.duplicate(repeated, f"{{{key[0]}, {key[1]}}}"))
        errs += _validate_min_domains(constraint, path.child("minDomains"))
        for name, policy in (
            ("nodeAffinityPolicy", constraint.node_affinity_policy),
            ("nodeTaintsPolicy", constraint.node_taints_policy),
        ):
            if policy is not None and policy not in _NODE_INCLUSION_POLICIES:
                errs.append(field.not_supported(path.child(name), policy, _NODE_INCLUSION_POLICIES))
        errs += _validate_spread_label_keys(constraint, path, opts)
        selector_path = path.child("labelSelector")
        errs += unversionedvalidation.validate_label_selector(constraint.label_selector, selector_path)
    return errs


def _validate_min_domains(constraint: v1.TopologySpreadConstraint, fld_path: field.Path) -> Errors:
    if constraint.min_domains is None:
        return []
    errs = validate_positive_field(constraint.min_domains, fld_path)
    when = constraint.when_unsatisfiable
    if when != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"
        errs.append(field.invalid(fld_path, constraint.min_domains, detail))
    return errs


def _validate_spread_label_keys(
    constraint: v1.TopologySpreadConstraint, fld_path: field.Path, opts: PodValidationOptions
) -> Errors:
    keys, selector = constraint.match_label_keys, constraint.label_selector
    if (
        opts.allow_match_label_keys_in_pod_topology_spread
        and opts.allow_match_label_keys_in_pod_topology_spread_selector_merge
    ):
        return _validate_match_label_keys_and_mismatch_label_keys(fld_path, keys, [], selector)
    errs = _validate_label_keys(fld_path.child("matchLabelKeys"), keys, selector)
    if selector is None:
        return errs
    selected = {*selector.match_labels, *(e.key for e in selector.match_expressions)}
    for i, key in enumerate(keys):
        if key in selected:
            detail = "exists in both matchLabelKeys and labelSelector"
            errs.append(field.invalid(fld_path.child("matchLabelKeys").index(i), key, detail))
    return errs
