"""Decide which kernel parameters a pod may set, and convert their names.

Go: pkg/kubelet/sysctl
"""

from kubelet.sysctl.allowlist import FORBIDDEN_REASON, Allowlist
from kubelet.sysctl.safe_sysctls import safe_sysctl_allowlist
from kubelet.sysctl.util import convert_pod_sysctls_variable_to_dots_separator

__all__ = [
    "FORBIDDEN_REASON",
    "Allowlist",
    "convert_pod_sysctls_variable_to_dots_separator",
    "safe_sysctl_allowlist",
]
