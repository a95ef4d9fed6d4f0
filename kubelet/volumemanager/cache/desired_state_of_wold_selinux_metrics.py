"""Define metrics about the SELinux labels of volumes.

Go: pkg/kubelet/volumemanager/cache/desired_state_of_wold_selinux_metrics.go
"""

from __future__ import annotations

from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

_ACCESS_MODE = ("access_mode",)
_PLUGIN_AND_ACCESS_MODE = ("volume_plugin", "access_mode")

SELINUX_CONTAINER_CONTEXT_ERRORS = metrics.new_gauge(
    "volume_manager_selinux_container_errors_total",
    "Number of times that the SELinux context of a container could not be determined. The pod does not start and "
    "the kubelet retries, so the value is not a number of containers.",
    _ACCESS_MODE,
)
SELINUX_CONTAINER_CONTEXT_WARNINGS = metrics.new_gauge(
    "volume_manager_selinux_container_warnings_total",
    "Number of times that the SELinux context of a container could not be determined, but was not needed for a mount.",
    _ACCESS_MODE,
)
SELINUX_POD_CONTEXT_MISMATCH_ERRORS = metrics.new_gauge(
    "volume_manager_selinux_pod_context_mismatch_errors_total",
    "Number of times that containers of a pod used one volume with different SELinux contexts. The pod does not start "
    "and the kubelet retries, so the value is not a number of pods.",
    _ACCESS_MODE,
)
SELINUX_POD_CONTEXT_MISMATCH_WARNINGS = metrics.new_gauge(
    "volume_manager_selinux_pod_context_mismatch_warnings_total",
    "Number of times that containers of a pod used one volume with different SELinux contexts, which were not needed "
    "for a mount.",
    _ACCESS_MODE,
)
SELINUX_VOLUME_CONTEXT_MISMATCH_ERRORS = metrics.new_gauge(
    "volume_manager_selinux_volume_context_mismatch_errors_total",
    "Number of times that a pod used a volume with a different SELinux context than other pods. The pod does not start "
    "and the kubelet retries, so the value is not a number of pods.",
    _PLUGIN_AND_ACCESS_MODE,
)
SELINUX_VOLUME_CONTEXT_MISMATCH_WARNINGS = metrics.new_gauge(
    "volume_manager_selinux_volume_context_mismatch_warnings_total",
    "Number of times that a pod used a volume with a different SELinux context than other pods, which was not needed "
    "for a mount.",
    _PLUGIN_AND_ACCESS_MODE,
)
SELINUX_VOLUMES_ADMITTED = metrics.new_gauge(
    "volume_manager_selinux_volumes_admitted_total",
    "Number of volumes that the kubelet mounts with a valid SELinux context.",
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
