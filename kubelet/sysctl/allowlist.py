"""Admit pods by the sysctls that they set.

Go: pkg/kubelet/sysctl/allowlist.go
"""

from __future__ import annotations

import re

from kubelet import lifecycle
from pkg.component_helpers.node.util import sysctl as utilsysctl

FORBIDDEN_REASON = "SysctlForbidden"

_SYSCTL_MAX_LENGTH = 253
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_PATTERN_FMT = f"({_SEGMENT}[\\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]"
_PATTERN = re.compile(_PATTERN_FMT)


class Allowlist:
    """Hold the names, and the patterns with a trailing star, of the sysctls that pods may set."""

    def __init__(self, patterns: list[str]) -> None:
        """Raise ValueError for a malformed pattern, or for one outside the known namespaces."""
        self._sysctls: dict[str, utilsysctl.Namespace] = {}
        self._prefixes: dict[str, utilsysctl.Namespace] = {}
        for pattern in patterns:
            self._add(pattern)

    def _add(self, pattern: str) -> None:
        if len(pattern) > _SYSCTL_MAX_LENGTH or not _PATTERN.fullmatch(pattern):
            raise ValueError(
                f'sysctl "{pattern}" must have at most {_SYSCTL_MAX_LENGTH} characters and match regex ^{_PATTERN_FMT}$'
            )
        found = utilsysctl.get_namespace(pattern)
        if found.namespace == utilsysctl.UNKNOWN_NAMESPACE:
            raise ValueError(f'the sysctls "{found.name}" are not known to be namespaced')
        (self._prefixes if found.is_prefix else self._sysctls)[found.name] = found.namespace

    def validate_sysctl(self, sysctl: str, host_net: bool, host_ipc: bool) -> None:
        """Raise ValueError if a pod that shares the given host namespaces may not set the sysctl."""
        sysctl = utilsysctl.normalize_name(sysctl)
        namespace = self._find(sysctl)
        if namespace is None:
            raise ValueError(f'"{sysctl}" not allowlisted')
        shared = {utilsysctl.IPC_NAMESPACE: host_ipc, utilsysctl.NET_NAMESPACE: host_net}
        if shared.get(namespace, False):
            raise ValueError(f'"{sysctl}" not allowed with host {namespace} enabled')

    def _find(self, sysctl: str) -> utilsysctl.Namespace | None:
        if sysctl in self._sysctls:
            return self._sysctls[sysctl]
        for prefix, namespace in self._prefixes.items():
            if sysctl.startswith(prefix):
                return namespace
        return None

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        """Reject the pod because of its first sysctl that is not allowed.

        Go: Admit
        """
        pod = attrs.pod
        if pod.spec.security_context is None:
            return lifecycle.PodAdmitResult(admit=True)
        for s in pod.spec.security_context.sysctls:
            try:
                self.validate_sysctl(s.name, pod.spec.host_network, pod.spec.host_ipc)
            except ValueError as err:
                return lifecycle.PodAdmitResult(
                    admit=False, reason=FORBIDDEN_REASON, message=f"forbidden sysctl: {err}"
                )
        return lifecycle.PodAdmitResult(admit=True)
