"""Devices that plugins offer, and the containers that were given them.

A plugin registers with the server of plugin.v1beta1, and from then on tells of its devices. The manager counts them as
resources of the node, picks some for each container that asks for them when its pod is admitted, has the plugin
allocate these, and keeps what the plugin says to that for the container's start, and in a checkpoint.

Go: pkg/kubelet/cm/devicemanager
"""

from kubelet.cm.devicemanager.manager import AllocationError, DevicesAwaitedError, ManagerImpl
from kubelet.cm.devicemanager.pod_devices import DeviceInstances, ResourceDeviceInstances
from kubelet.cm.devicemanager.types import DeviceRunContainerOptions, Manager

__all__ = [
    "AllocationError",
    "DeviceInstances",
    "DeviceRunContainerOptions",
    "DevicesAwaitedError",
    "Manager",
    "ManagerImpl",
    "ResourceDeviceInstances",
]
