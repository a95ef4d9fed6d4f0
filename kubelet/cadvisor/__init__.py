"""Facts about the machine, read from /proc and /sys.

Go wraps the cAdvisor library here; its part that a kubelet cannot do without is small enough to read directly.

Go: pkg/kubelet/cadvisor
"""

from kubelet.cadvisor.cadvisor import Cadvisor
from kubelet.cadvisor.types import Interface, MachineInfo
from kubelet.cadvisor.util import capacity_from_machine_info

__all__ = ["Cadvisor", "Interface", "MachineInfo", "capacity_from_machine_info"]
