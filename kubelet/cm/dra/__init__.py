"""Run dynamic resource allocation: drivers prepare and unprepare the devices that pods' claims were allocated.

`manager.py` prepares and unprepares claims, `claiminfo.py` records which pods use them, and `state` keeps the records
across a restart of the kubelet. `plugin` calls the drivers, and `healthinfo.py` stores what drivers report about their
devices.

Go: pkg/kubelet/cm/dra
"""

from kubelet.cm.dra.manager import Manager
from kubelet.cm.dra.types import ContainerInfo

__all__ = ["ContainerInfo", "Manager"]
