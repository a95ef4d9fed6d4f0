"""Helpers for pod conditions.

Go: pkg/util/pod/pod.go
"""

from __future__ import annotations

from collections.abc import Sequence

from pkg.api.core import v1
from pkg.api.v1 import pod as podutil


def replace_or_append_pod_condition(
    conditions: Sequence[v1.PodCondition], condition: v1.PodCondition
) -> list[v1.PodCondition]:
    """The conditions with this one in the place of the one of its type, or at the end."""
    index, _ = podutil.get_pod_condition_from_list(conditions, condition.type)
    if index < 0:
        return [*conditions, condition]
    return [*conditions[:index], condition, *conditions[index + 1 :]]
