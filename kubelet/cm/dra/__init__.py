"""Dynamic resource allocation: drivers prepare what pods' claims were allocated, and take it back.

Go: pkg/kubelet/cm/dra

`manager.py` does it, `claiminfo.py` remembers for whom, in `state` it outlives the kubelet, `plugin` calls drivers and
`healthinfo.py` has what these tell of their devices.
"""

from kubelet.cm.dra.manager import Manager
from kubelet.cm.dra.types import ContainerInfo

__all__ = ["ContainerInfo", "Manager"]
