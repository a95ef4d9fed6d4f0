"""Test taints and tolerations."""

from __future__ import annotations

import pytest

from pkg.api.core import v1
from pkg.component_helpers.scheduling import corev1

NO_EXECUTE = v1.TAINT_EFFECT_NO_EXECUTE


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (v1.Toleration(key="k", value="5", effect=NO_EXECUTE), True),
        (v1.Toleration(key="k", operator="Equal", value="5"), True),
        (v1.Toleration(key="k", operator="Equal", value="6"), False),
        (v1.Toleration(key="k", operator="Exists"), True),
        (v1.Toleration(operator="Exists"), True),
        (v1.Toleration(key="other", operator="Exists"), False),
        (v1.Toleration(key="k", operator="Exists", effect=v1.TAINT_EFFECT_NO_SCHEDULE), False),
        (v1.Toleration(key="k", operator="Lt", value="6"), True),
        (v1.Toleration(key="k", operator="Lt", value="5"), False),
        (v1.Toleration(key="k", operator="Gt", value="4"), True),
        (v1.Toleration(key="k", operator="Gt", value="5"), False),
        (v1.Toleration(key="k", operator="Gt", value="04"), False),
        (v1.Toleration(key="k", operator="Gt", value="x"), False),
        (v1.Toleration(key="k", operator="Like", value="5"), False),
    ],
)
def test_tolerates_taint(toleration: v1.Toleration, expected: bool) -> None:
    taint = v1.Taint(key="k", value="5", effect=NO_EXECUTE)
    assert corev1.tolerates_taint(toleration, taint, True) is expected
    compares = toleration.operator in ("Lt", "Gt")
    assert corev1.tolerates_taint(toleration, taint, False) is (expected and not compares)


def test_find_matching_untolerated_taint() -> None:
    first, second = v1.Taint(key="a", effect="NoSchedule"), v1.Taint(key="b", effect=NO_EXECUTE)
    taints = [first, second]
    tolerations = [v1.Toleration(key="b", operator="Exists")]
    find = corev1.find_matching_untolerated_taint
    assert find(taints, [], None, False) is first
    assert find(taints, tolerations, None, False) is first
    assert find(taints, [], lambda taint: taint.effect == NO_EXECUTE, False) is second
    assert find(taints, tolerations, lambda taint: taint.effect == NO_EXECUTE, False) is None
