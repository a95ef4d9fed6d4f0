"""Settings of the kernel that a node of Kubernetes relies on.

Go: pkg/kubelet/cm/container_manager_linux.go (setupKernelTunables)
"""

from __future__ import annotations

import enum

from pkg import features, klog
from pkg.component_helpers.node.util import sysctl

# What each setting must be: no memory is refused that may never be used, the kernel kills a process when memory runs
# out instead of panicking, panics when it is broken, and root may have a key for each container.
_DESIRED = {
    sysctl.VM_OVERCOMMIT_MEMORY: sysctl.VM_OVERCOMMIT_MEMORY_ALWAYS,
    sysctl.VM_PANIC_ON_OOM: sysctl.VM_PANIC_ON_OOM_INVOKE_OOM_KILLER,
    sysctl.KERNEL_PANIC: sysctl.KERNEL_PANIC_REBOOT_TIMEOUT,
    sysctl.KERNEL_PANIC_ON_OOPS: sysctl.KERNEL_PANIC_ON_OOPS_ALWAYS,
    sysctl.ROOT_MAX_KEYS: sysctl.ROOT_MAX_KEYS_SETTING,
    sysctl.ROOT_MAX_BYTES: sysctl.ROOT_MAX_BYTES_SETTING,
}


class KernelTunableBehavior(enum.StrEnum):
    """What is done about a setting that is not as it should be."""

    WARN = "warn"
    ERROR = "error"
    MODIFY = "modify"


def setup_kernel_tunables(option: KernelTunableBehavior, root: str = sysctl.SYSCTL_BASE) -> None:
    """See that the kernel is set as a node needs it.

    Raises ValueError that names all settings which are wrong, if they must not be changed.

    DIVERGES (safer): without protectKernelDefaults, a kernel setting that cannot be read or changed is logged and left.
    Go: pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables: the kubelet does not start.
    Why: a kernel may be built without a setting, and /proc/sys may be read-only; pods can run all the same.
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
        klog.warning_s("Kernel flag is not as it should be", err=fault)


def _set(name: str, value: int, root: str) -> None:
    try:
        sysctl.set_sysctl(name, value, root)
    except OSError as err:
        if features.feature_gate.enabled(features.KUBELET_IN_USER_NAMESPACE):
            klog.v(2).info_s("Updating kernel flag failed (running in UserNS, ignoring)", flag=name, err=err)
        else:
            klog.error_s(err, "Updating kernel flag failed", flag=name, value=value)
