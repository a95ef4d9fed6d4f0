"""Rewrite the separators of sysctl names to dots, the only form that runc accepts.

Go: pkg/kubelet/sysctl/util.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.component_helpers.node.util import sysctl as utilsysctl


def convert_pod_sysctls_variable_to_dots_separator(
    security_context: v1.PodSecurityContext | None,
) -> dict[str, str]:
    """Return the pod's sysctls by dotted name.

    Go rewrites the names in the pod itself. Here pods are shared, and are never changed in place.
    """
    if security_context is None:
        return {}
    return {utilsysctl.normalize_name(s.name): s.value for s in security_context.sysctls}
