"""Match taints with tolerations.

Go: k8s.io/component-helpers/scheduling/corev1/helpers.go, k8s.io/api/core/v1/toleration.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pkg import klog
from pkg.api.core import v1
from pkg.golang import strconv


def tolerations_tolerate_taint(
    tolerations: Iterable[v1.Toleration], taint: v1.Taint, enable_comparison_operators: bool
) -> bool:
    """Report whether any of the tolerations matches the taint."""
    return any(tolerates_taint(t, taint, enable_comparison_operators) for t in tolerations)


def find_matching_untolerated_taint(
    taints: Iterable[v1.Taint],
    tolerations: Iterable[v1.Toleration],
    inclusion_filter: Callable[[v1.Taint], bool] | None,
    enable_comparison_operators: bool,
) -> v1.Taint | None:
    """Return the first taint without a matching toleration, or None if there is none.

    Only taints that pass the filter are considered.
    """
    tolerations = list(tolerations)
    for taint in taints:
        if inclusion_filter is not None and not inclusion_filter(taint):
            continue
        if not tolerations_tolerate_taint(tolerations, taint, enable_comparison_operators):
            return taint
    return None


def tolerates_taint(toleration: v1.Toleration, taint: v1.Taint, enable_comparison_operators: bool) -> bool:
    """Report whether the toleration matches the taint.

    An empty effect or key matches any, and an empty operator means Equal.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | v1.TOLERATION_OP_EQUAL:
            return toleration.value == taint.value
        case v1.TOLERATION_OP_EXISTS:
            return True
        case v1.TOLERATION_OP_LT | v1.TOLERATION_OP_GT if enable_comparison_operators:
            return _compare_numeric_values(toleration, taint)
    return False


def _compare_numeric_values(toleration: v1.Toleration, taint: v1.Taint) -> bool:
    try:
        wanted = _parse_int64(toleration.value)
    except ValueError as err:
        klog.error_s(err, "failed to parse toleration value as int64", toleration=toleration.value)
        return False
    try:
        actual = _parse_int64(taint.value)
    except ValueError as err:
        klog.error_s(err, "failed to parse taint value as int64", taint=taint.value)
        return False
    return actual < wanted if toleration.operator == v1.TOLERATION_OP_LT else actual > wanted


def _parse_int64(text: str) -> int:
    value = strconv.parse_int(text)
    if str(value) != text:
        raise ValueError(f'"{text}" is not a decimal integer in canonical form')
    return value
