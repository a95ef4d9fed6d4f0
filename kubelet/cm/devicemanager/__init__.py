"""Manage the devices that plugins offer, and allocate them to containers.

A plugin registers with the server of plugin.v1beta1, and then streams lists of its devices. The manager counts the
devices as resources of the node. When a pod is admitted, the manager picks devices for each container that requests
some and has the plugin allocate them. It keeps the plugin's response for the container's start, in memory and in a
checkpoint.

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
