"""Provide helpers for pods that more than one component uses.

Go: pkg/util/pod
"""

from pkg.util.pod.pod import StatusPatch, get_pod, patch_pod_status, replace_or_append_pod_condition

__all__ = ["StatusPatch", "get_pod", "patch_pod_status", "replace_or_append_pod_condition"]
