"""Select which of the newer validation rules apply.

Go: pkg/apis/core/validation/validation.go (PodValidationOptions)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True, kw_only=True)
class PodValidationOptions:
    """Describe what the feature gates allow in a pod; the defaults are those of release 1.36.

    Two kinds of Go's options are left out: those that keep old errors valid in an update, and those whose gate is
    locked.
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
    # Go reads the gate where it validates an address.
    strict_ip_validation: bool = True
