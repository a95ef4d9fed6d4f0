"""Gauges of what is found about the SELinux labels of volumes.

Go: pkg/kubelet/volumemanager/cache/desired_state_of_wold_selinux_metrics.go
"""

from __future__ import annotations

from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

_ACCESS_MODE = ("access_mode",)
_PLUGIN_AND_ACCESS_MODE = ("volume_plugin", "access_mode")

SELINUX_CONTAINER_CONTEXT_ERRORS = metrics.new_gauge(
    "volume_manager_selinux_container_errors_total",
    "Containers whose SELinux context could not be found out. Such a pod does not start and is tried again, "
    "so that the value is not their number.",
    _ACCESS_MODE,
)
SELINUX_CONTAINER_CONTEXT_WARNINGS = metrics.new_gauge(
    "volume_manager_selinux_container_warnings_total",
    "Containers whose SELinux context could not be found out, where it does not matter yet.",
    _ACCESS_MODE,
)
SELINUX_POD_CONTEXT_MISMATCH_ERRORS = metrics.new_gauge(
    "volume_manager_selinux_pod_context_mismatch_errors_total",
    "Pods whose containers use one volume with several SELinux contexts. Such a pod does not start and is tried "
    "again, so that the value is not their number.",
    _ACCESS_MODE,
)
SELINUX_POD_CONTEXT_MISMATCH_WARNINGS = metrics.new_gauge(
    "volume_manager_selinux_pod_context_mismatch_warnings_total",
    "Pods whose containers use one volume with several SELinux contexts, where it does not matter yet.",
    _ACCESS_MODE,
)
SELINUX_VOLUME_CONTEXT_MISMATCH_ERRORS = metrics.new_gauge(
    "volume_manager_selinux_volume_context_mismatch_errors_total",
    "Pods that want a volume with another SELinux context than other pods have it with. Such a pod does not start "
    "and is tried again, so that the value is not their number.",
    _PLUGIN_AND_ACCESS_MODE,
)
SELINUX_VOLUME_CONTEXT_MISMATCH_WARNINGS = metrics.new_gauge(
    "volume_manager_selinux_volume_context_mismatch_warnings_total",
    "Pods that want a volume with another SELinux context than other pods have it with, where it does not matter yet.",
    _PLUGIN_AND_ACCESS_MODE,
)
SELINUX_VOLUMES_ADMITTED = metrics.new_gauge(
    "volume_manager_selinux_volumes_admitted_total",
    "Volumes whose SELinux context was fine, and that are mounted with it.",
    _PLUGIN_AND_ACCESS_MODE,
)

register_selinux_metrics = legacyregistry.Once(
    SELINUX_CONTAINER_CONTEXT_ERRORS,
    SELINUX_CONTAINER_CONTEXT_WARNINGS,
    SELINUX_POD_CONTEXT_MISMATCH_ERRORS,
    SELINUX_POD_CONTEXT_MISMATCH_WARNINGS,
    SELINUX_VOLUME_CONTEXT_MISMATCH_ERRORS,
    SELINUX_VOLUME_CONTEXT_MISMATCH_WARNINGS,
    SELINUX_VOLUMES_ADMITTED,
)
