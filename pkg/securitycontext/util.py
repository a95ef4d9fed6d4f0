"""Compute the effective security context of a container, and the /proc paths that are hidden from it.

Go: pkg/securitycontext/util.go, util_linux.go
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from pkg.api.core import v1

# A container inherits these settings from its pod.
_FROM_POD = ("se_linux_options", "windows_options", "run_as_user", "run_as_group", "run_as_non_root")

# A container's own security context overrides these settings of the pod.
_FROM_CONTAINER = (
    "se_linux_options",
    "windows_options",
    "capabilities",
    "privileged",
    "run_as_user",
    "run_as_group",
    "run_as_non_root",
    "read_only_root_filesystem",
    "allow_privilege_escalation",
    "proc_mount",
)


def determine_effective_security_context(pod: v1.Pod, container: v1.Container) -> v1.SecurityContext:
    """Return the pod's settings overridden by the container's, as a new object or as the container's own object."""
    effective = _security_context_from_pod_security_context(pod)
    own = container.security_context
    if effective is None:
        return own if own is not None else v1.SecurityContext()
    if own is None:
        return effective
    for field in _FROM_CONTAINER:
        value = getattr(own, field)
        if value is not None:
            setattr(effective, field, value)
    return effective


def determine_effective_run_as_user(pod: v1.Pod, container: v1.Container) -> int | None:
    """Return the user id that the container or else the pod requests, or None."""
    user = None
    if pod.spec.security_context is not None:
        user = pod.spec.security_context.run_as_user
    if container.security_context is not None and container.security_context.run_as_user is not None:
        user = container.security_context.run_as_user
    return user


def _security_context_from_pod_security_context(pod: v1.Pod) -> v1.SecurityContext | None:
    source = pod.spec.security_context
    if source is None:
        return None
    synthesized = v1.SecurityContext()
    for field in _FROM_POD:
        setattr(synthesized, field, getattr(source, field))
    return synthesized


def add_no_new_privileges(sc: v1.SecurityContext | None) -> bool:
    """Report whether to set no_new_privs, which only an explicit ban of privilege escalation does."""
    return sc is not None and sc.allow_privilege_escalation is False


# The two lists are those of Docker (moby, oci/defaults.go), and must stay equal to them.
_MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)

_READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@functools.cache
def _default_masked_paths() -> tuple[str, ...]:
    throttle = (f"/sys/devices/system/cpu/cpu{cpu}/thermal_throttle" for cpu in possible_cpus())
    return _MASKED_PATHS + tuple(path for path in throttle if os.path.exists(path))


def convert_to_runtime_masked_paths(opt: str | None) -> list[str]:
    """Return the paths to hide from the container, or none with procMount Unmasked."""
    return [] if opt == v1.UNMASKED_PROC_MOUNT else list(_default_masked_paths())


def convert_to_runtime_readonly_paths(opt: str | None) -> list[str]:
    """Return the paths that the container may only read, or none with procMount Unmasked."""
    return [] if opt == v1.UNMASKED_PROC_MOUNT else list(_READONLY_PATHS)


def possible_cpus() -> list[int]:
    """Return the numbers of the CPUs that this machine can have, from the kernel's list."""
    try:
        return _parse_cpu_list(Path("/sys/devices/system/cpu/possible").read_text())
    except (OSError, ValueError):
        return list(range(os.cpu_count() or 1))


def _parse_cpu_list(text: str) -> list[int]:
    cpus: list[int] = []
    for part in text.strip().split(","):
        start, dash, end = part.partition("-")
        cpus.extend(range(int(start), int(end if dash else start) + 1))
    return cpus
