"""What survives a restart: which devices containers have, and which resources there were.

Go: pkg/kubelet/cm/devicemanager/checkpoint
"""

from kubelet.cm.devicemanager.checkpoint.checkpoint import Data, DevicesPerNUMA, PodDevicesEntry

__all__ = ["Data", "DevicesPerNUMA", "PodDevicesEntry"]
