"""Parse the options of the topology manager's policies.

Go: pkg/kubelet/cm/topologymanager/policy_options.go
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pkg import klog
from pkg.component_base.cli import flag

PREFER_CLOSEST_NUMA_NODES = "prefer-closest-numa-nodes"
MAX_ALLOWABLE_NUMA_NODES = "max-allowable-numa-nodes"

# With more nodes, there are too many sets of nodes to try at each admission.
DEFAULT_MAX_ALLOWABLE_NUMA_NODES = 8

_OPTIONS = (PREFER_CLOSEST_NUMA_NODES, MAX_ALLOWABLE_NUMA_NODES)


def check_policy_option_available(option: str) -> None:
    """Raise ValueError for an unknown option. All known options are stable."""
    if option not in _OPTIONS:
        raise ValueError(f'unknown Topology Manager Policy option: "{option}"')


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Hold the options of the configuration's topologyManagerPolicyOptions."""

    prefer_closest_numa: bool = False
    max_allowable_numa_nodes: int = DEFAULT_MAX_ALLOWABLE_NUMA_NODES


def new_policy_options(policy_options: Mapping[str, str]) -> PolicyOptions:
    """Return the options. Raise ValueError, which names the option that is unknown or has a bad value."""
    prefer_closest, max_nodes = False, DEFAULT_MAX_ALLOWABLE_NUMA_NODES
    for name, value in policy_options.items():
        check_policy_option_available(name)
        if name == PREFER_CLOSEST_NUMA_NODES:
            try:
                prefer_closest = flag.parse_bool(value)
            except ValueError as err:
                raise ValueError(f'bad value for option "{name}": {err}') from err
        else:
            max_nodes = _max_allowable_numa_nodes(name, value)
    return PolicyOptions(prefer_closest, max_nodes)


def _max_allowable_numa_nodes(name: str, value: str) -> int:
    try:
        number = flag.parse_int(value, -(1 << 63), (1 << 63) - 1, "Atoi")
    except ValueError as err:
        raise ValueError(f'unable to convert policy option to integer "{name}": {err}') from err
    if number < DEFAULT_MAX_ALLOWABLE_NUMA_NODES:
        raise ValueError(f'the minimum value of "{name}" should not be less than {DEFAULT_MAX_ALLOWABLE_NUMA_NODES}')
    if number > DEFAULT_MAX_ALLOWABLE_NUMA_NODES:
        klog.warning_s(
            "WARNING: the value of max-allowable-numa-nodes is more than the default recommended value",
            maxAllowableNUMANodes=number,
            defaultMaxAllowableNUMANodes=DEFAULT_MAX_ALLOWABLE_NUMA_NODES,
        )
    return number
