"""Which of the newer rules hold.

Go: pkg/apis/core/validation/validation.go (PodValidationOptions)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True, kw_only=True)
class PodValidationOptions:
    """What the feature gates allow a pod. The defaults are those of release 1.36.

    Go's options that keep old faults valid in an update, and those whose gate is locked, are left out.
    """

    allow_invalid_pod_deletion_cost: bool = False
    pod_level_resources_enabled: bool = True
    allow_match_label_keys_in_pod_topology_spread: bool = True
    allow_match_label_keys_in_pod_topology_spread_selector_merge: bool = True
    allow_container_restart_policy_rules: bool = True
    allow_restart_all_containers: bool = True
    allow_env_files_validation: bool = True
    allow_taint_toleration_comparison_operators: bool = False
    allow_user_namespaces_host_network_support: bool = False
    # Go asks the gate where an address is checked.
    strict_ip_validation: bool = True
