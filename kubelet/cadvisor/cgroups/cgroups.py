"""Choose the reader for the node's version of cgroups.

Go: github.com/google/cadvisor/container/libcontainer/helpers.go
"""

from __future__ import annotations

from kubelet.cadvisor.cgroups import files, v1, v2
from kubelet.cadvisor.cgroups.common import Cgroups
from kubelet.util import CGROUP_ROOT, is_cgroup2_unified_mode
from pkg import klog


def new_cgroups(root: str = CGROUP_ROOT) -> Cgroups:
    """Return a reader for the node's version of cgroups."""
    return v2.CgroupsV2(root) if is_cgroup2_unified_mode(root) else v1.CgroupsV1(root)


def is_psi_enabled(root: str = CGROUP_ROOT) -> bool:
    """Report whether the kernel offers pressure stall information (PSI), which only cgroups of version 2 have."""
    name = "cpu.pressure"
    # A kernel that was booted without the parameter psi=1 may have the file, but reading it fails.
    try:
        if not files.read(root, name):
            raise OSError("the file is empty")
    except OSError as err:
        klog.v(4).info_s("PSI not available", dir=root, file=name, err=err)
        return False
    return True
