"""The reader for the version of cgroups that the node has.

Go: github.com/google/cadvisor/container/libcontainer/helpers.go
"""

from __future__ import annotations

from kubelet.cadvisor.cgroups import files, v1, v2
from kubelet.cadvisor.cgroups.common import Cgroups
from kubelet.util import CGROUP_ROOT, is_cgroup2_unified_mode
from pkg import klog


def new_cgroups(root: str = CGROUP_ROOT) -> Cgroups:
    """A reader for the version that the node has."""
    return v2.CgroupsV2(root) if is_cgroup2_unified_mode(root) else v1.CgroupsV1(root)


def is_psi_enabled(root: str = CGROUP_ROOT) -> bool:
    """Whether the kernel tells how long tasks wait for what, which it does for cgroups of version 2 alone."""
    name = "cpu.pressure"
    # Of some kernels, to which it was not said at their start, the file is there and cannot be read.
    try:
        if not files.read(root, name):
            raise OSError("the file is empty")
    except OSError as err:
        klog.v(4).info_s("PSI not available", dir=root, file=name, err=err)
        return False
    return True
