"""Check the kernel settings that a Kubernetes node needs.

Go: pkg/kubelet/cm/container_manager_linux.go (setupKernelTunables)
"""

from __future__ import annotations

import enum

from pkg import features, klog
from pkg.component_helpers.node.util import sysctl

# With these settings the kernel always grants virtual memory, kills a process instead of panicking when memory runs
# out, panics after a kernel fault, and lets root own a key for each container.
_DESIRED = {
    sysctl.VM_OVERCOMMIT_MEMORY: sysctl.VM_OVERCOMMIT_MEMORY_ALWAYS,
    sysctl.VM_PANIC_ON_OOM: sysctl.VM_PANIC_ON_OOM_INVOKE_OOM_KILLER,
    sysctl.KERNEL_PANIC: sysctl.KERNEL_PANIC_REBOOT_TIMEOUT,
    sysctl.KERNEL_PANIC_ON_OOPS: sysctl.KERNEL_PANIC_ON_OOPS_ALWAYS,
    sysctl.ROOT_MAX_KEYS: sysctl.ROOT_MAX_KEYS_SETTING,
    sysctl.ROOT_MAX_BYTES: sysctl.ROOT_MAX_BYTES_SETTING,
}


class KernelTunableBehavior(enum.StrEnum):
    """List what the kubelet can do about a wrong kernel setting."""

    WARN = "warn"
    ERROR = "error"
    MODIFY = "modify"


def setup_kernel_tunables(option: KernelTunableBehavior, root: str = sysctl.SYSCTL_BASE) -> None:
    """Check the kernel settings, and correct them if `option` allows it.

    Raise ValueError, which names all wrong settings, if the kubelet must not change them.

    DIVERGES (safer): without protectKernelDefaults, the kubelet only logs a kernel setting that it cannot read or
    change.
    Go: pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables: the kubelet does not start.
    Why: a kernel may be built without a setting, or /proc/sys may be read-only; pods can run in both cases.
    Test: container_manager_test.py:test_kernel_settings_that_cannot_be_changed_are_left
    """
    faults: list[str] = []
    for name, expected in _DESIRED.items():
        try:
            found = sysctl.get_sysctl(name, root)
        except (OSError, ValueError) as err:
            faults.append(f"kernel flag {name} cannot be read: {err}")
            continue
        if found == expected:
            continue
        shown = {"flag": name, "expectedValue": expected, "actualValue": found}
        match option:
            case KernelTunableBehavior.ERROR:
                faults.append(f"invalid kernel flag: {name}, expected value: {expected}, actual value: {found}")
            case KernelTunableBehavior.WARN:
                klog.v(2).info_s("Invalid kernel flag", **shown)
            case KernelTunableBehavior.MODIFY:
                klog.v(2).info_s("Updating kernel flag", **shown)
                _set(name, expected, root)
    if not faults:
        return
    if option is KernelTunableBehavior.ERROR:
        raise ValueError(f"protectKernelDefaults is set: {'; '.join(faults)}")
    for fault in faults:
        klog.warning_s("Failed to check a kernel flag", err=fault)


def _set(name: str, value: int, root: str) -> None:
    try:
        sysctl.set_sysctl(name, value, root)
    except OSError as err:
        if features.feature_gate.enabled(features.KUBELET_IN_USER_NAMESPACE):
            klog.v(2).info_s("Updating kernel flag failed (running in UserNS, ignoring)", flag=name, err=err)
        else:
            klog.error_s(err, "Updating kernel flag failed", flag=name, value=value)
