"""Parse the options of the static policy.

Go: pkg/kubelet/cm/cpumanager/policy_options.go
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubelet.cm import topologymanager
from kubelet.cm.cpumanager.topology import CPUTopology
from kubelet.cm.topologymanager.policy import POLICY_SINGLE_NUMA_NODE
from pkg import features
from pkg.component_base.cli import flag

FULL_PCPUS_ONLY_OPTION = "full-pcpus-only"
DISTRIBUTE_CPUS_ACROSS_NUMA_OPTION = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET_OPTION = "align-by-socket"
DISTRIBUTE_CPUS_ACROSS_CORES_OPTION = "distribute-cpus-across-cores"
STRICT_CPU_RESERVATION_OPTION = "strict-cpu-reservation"
PREFER_ALIGN_BY_UNCORE_CACHE_OPTION = "prefer-align-cpus-by-uncorecache"

_ALPHA_OPTIONS = (ALIGN_BY_SOCKET_OPTION, DISTRIBUTE_CPUS_ACROSS_CORES_OPTION)
_BETA_OPTIONS = (DISTRIBUTE_CPUS_ACROSS_NUMA_OPTION,)
_STABLE_OPTIONS = (FULL_PCPUS_ONLY_OPTION, STRICT_CPU_RESERVATION_OPTION, PREFER_ALIGN_BY_UNCORE_CACHE_OPTION)

# The two options of a pair cannot both be on.
_EXCLUDING = (
    (FULL_PCPUS_ONLY_OPTION, DISTRIBUTE_CPUS_ACROSS_CORES_OPTION),
    (DISTRIBUTE_CPUS_ACROSS_NUMA_OPTION, DISTRIBUTE_CPUS_ACROSS_CORES_OPTION),
    (PREFER_ALIGN_BY_UNCORE_CACHE_OPTION, DISTRIBUTE_CPUS_ACROSS_CORES_OPTION),
    (PREFER_ALIGN_BY_UNCORE_CACHE_OPTION, DISTRIBUTE_CPUS_ACROSS_NUMA_OPTION),
)


def check_policy_option_available(option: str) -> None:
    """Raise ValueError for an unknown option, or one whose feature gate is off."""
    gate = features.feature_gate
    if option not in _ALPHA_OPTIONS + _BETA_OPTIONS + _STABLE_OPTIONS:
        raise ValueError(f'unknown CPU Manager Policy option: "{option}"')
    if option in _ALPHA_OPTIONS and not gate.enabled(features.CPU_MANAGER_POLICY_ALPHA_OPTIONS):
        raise ValueError(f'CPU Manager Policy Alpha-level Options not enabled, but option "{option}" provided')
    if option in _BETA_OPTIONS and not gate.enabled(features.CPU_MANAGER_POLICY_BETA_OPTIONS):
        raise ValueError(f'CPU Manager Policy Beta-level Options not enabled, but option "{option}" provided')


@dataclass(frozen=True, slots=True)
class StaticPolicyOptions:
    """Hold the options of the configuration's cpuManagerPolicyOptions."""

    # A container gets whole cores, so that no other container runs on them.
    full_physical_cpus_only: bool = False
    # If one NUMA node has too few CPUs, each of several nodes provides the same number.
    distribute_cpus_across_numa: bool = False
    # A container's CPUs should stay within one socket, rather than within one NUMA node.
    align_by_socket: bool = False
    # Each CPU comes from another core, as long as there are enough cores.
    distribute_cpus_across_cores: bool = False
    # Containers without exclusive CPUs may not run on reserved CPUs.
    strict_cpu_reservation: bool = False
    # The CPUs come from as few last-level caches as possible.
    prefer_align_by_uncore_cache: bool = False


def new_static_policy_options(policy_options: Mapping[str, str]) -> StaticPolicyOptions:
    """Return the options. Raise ValueError, which names an option that is unknown, disabled, or has a bad value."""
    on = set()
    for name, value in policy_options.items():
        check_policy_option_available(name)
        try:
            if flag.parse_bool(value):
                on.add(name)
        except ValueError as err:
            raise ValueError(f'bad value for option "{name}": {err}') from err
    for one, other in _EXCLUDING:
        if one in on and other in on:
            raise ValueError(f"static policy options {one} and {other} can not be used at the same time")
    return StaticPolicyOptions(
        full_physical_cpus_only=FULL_PCPUS_ONLY_OPTION in on,
        distribute_cpus_across_numa=DISTRIBUTE_CPUS_ACROSS_NUMA_OPTION in on,
        align_by_socket=ALIGN_BY_SOCKET_OPTION in on,
        distribute_cpus_across_cores=DISTRIBUTE_CPUS_ACROSS_CORES_OPTION in on,
        strict_cpu_reservation=STRICT_CPU_RESERVATION_OPTION in on,
        prefer_align_by_uncore_cache=PREFER_ALIGN_BY_UNCORE_CACHE_OPTION in on,
    )


def validate_static_policy_options(
    opts: StaticPolicyOptions, topology: CPUTopology, topology_manager: topologymanager.Store
) -> None:
    """Raise ValueError if an option does not fit this machine or the topology manager's policy."""
    if not opts.align_by_socket:
        return
    if topology_manager.get_policy().name() == POLICY_SINGLE_NUMA_NODE:
        raise ValueError(
            f"topology manager {POLICY_SINGLE_NUMA_NODE} policy is incompatible with "
            f"CPUManager {ALIGN_BY_SOCKET_OPTION} policy option"
        )
    if topology.num_sockets > topology.num_numa_nodes:
        raise ValueError(
            "align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
        )
