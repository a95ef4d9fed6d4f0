"""Find the conditions of nodes.

Go: k8s.io/component-helpers/node/util/conditions.go
"""

from __future__ import annotations

from pkg.api.core import v1


def get_node_condition(status: v1.NodeStatus, condition_type: str) -> tuple[int, v1.NodeCondition | None]:
    """Return the index and the condition of this type, or -1 and None if there is none."""
    for index, condition in enumerate(status.conditions):
        if condition.type == condition_type:
            return index, condition
    return -1, None
