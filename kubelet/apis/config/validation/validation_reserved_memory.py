"""Check the memory that is reserved on each NUMA node.

Go: pkg/kubelet/apis/config/validation/validation_reserved_memory.go
"""

from __future__ import annotations

from collections.abc import Iterator

from kubelet.apis.config.types import KubeletConfiguration

_HUGE_PAGES_PREFIX = "hugepages-"


def validate_reserved_memory_configuration(kc: KubeletConfiguration) -> Iterator[str]:
    """Check that each limit has a known type, is not zero, and appears once for each node."""
    seen: set[tuple[int, str]] = set()
    for reservation in kc.reserved_memory:
        node = reservation.numa_node
        for name, quantity in reservation.limits.items():
            if name != "memory" and not name.startswith(_HUGE_PAGES_PREFIX):
                yield (
                    f'invalid configuration: the limit type "{name}" for NUMA node {node} is not supported, '
                    "only [memory hugepages-<HugePageSize>] is accepted"
                )
            if quantity.is_zero():
                yield (
                    f'invalid configuration: reserved memory may not be zero for NUMA node {node} and resource "{name}"'
                )
            if (node, name) in seen:
                yield (
                    f"invalid configuration: the reserved memory has a duplicate value for NUMA node {node} "
                    f'and resource "{name}"'
                )
            seen.add((node, name))
