"""Read the limits, statistics and processes of cgroups, of version 1 and of version 2.

Go: github.com/opencontainers/cgroups/fs, github.com/opencontainers/cgroups/fs2,
github.com/google/cadvisor/container/libcontainer, github.com/google/cadvisor/container/common
"""

from kubelet.cadvisor.cgroups.cgroups import is_psi_enabled, new_cgroups
from kubelet.cadvisor.cgroups.common import Cgroups
from kubelet.cadvisor.cgroups.files import UNLIMITED
from kubelet.cadvisor.cgroups.v1 import CgroupsV1
from kubelet.cadvisor.cgroups.v2 import CgroupsV2
from kubelet.util import CGROUP_ROOT

__all__ = ["CGROUP_ROOT", "UNLIMITED", "Cgroups", "CgroupsV1", "CgroupsV2", "is_psi_enabled", "new_cgroups"]
