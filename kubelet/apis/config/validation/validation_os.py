"""Check settings that depend on the Linux host.

Go: pkg/kubelet/apis/config/validation/validation_linux.go
"""

from __future__ import annotations

from collections.abc import Iterator

from kubelet.apis.config.types import KubeletConfiguration

_USER_NS_UNIT_LENGTH = 65536
_MAX_UINT32 = 2**32 - 1


def validate_kubelet_os_configuration(kc: KubeletConfiguration) -> Iterator[str]:
    """Yield the faults of settings that depend on the kernel's configuration."""
    # The import is lazy, because it imports the metrics, which --help does not need.
    from kubelet.util import is_cgroup2_unified_mode

    cgroup1 = not is_cgroup2_unified_mode()
    if kc.fail_cgroup_v1 and cgroup1:
        yield (
            "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported "
            "and will be removed in a future release (failCgroupV1: false, or --fail-cgroupv1=false, "
            "allows it)"
        )
    if cgroup1 and kc.single_process_oom_kill is False:
        yield ("invalid configuration: singleProcessOOMKill must not be explicitly set to false when using cgroup v1")
    ids = kc.user_namespaces.ids_per_pod if kc.user_namespaces else None
    if ids is None:
        return
    prefix = "invalid configuration: userNamespaces.idsPerPod must"
    if ids < _USER_NS_UNIT_LENGTH:
        yield f"{prefix} not be less than {_USER_NS_UNIT_LENGTH}"
    elif ids % _USER_NS_UNIT_LENGTH:
        yield f"{prefix} be a multiple of {_USER_NS_UNIT_LENGTH}"
    elif ids > _MAX_UINT32:
        yield f"{prefix} not be more than {_MAX_UINT32}"
