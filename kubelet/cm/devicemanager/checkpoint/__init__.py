"""Define what survives a restart of the kubelet: the containers' devices, and the registered resources.

Go: pkg/kubelet/cm/devicemanager/checkpoint
"""

from kubelet.cm.devicemanager.checkpoint.checkpoint import Data, DevicesPerNUMA, PodDevicesEntry

__all__ = ["Data", "DevicesPerNUMA", "PodDevicesEntry"]
