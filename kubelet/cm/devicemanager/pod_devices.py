"""Record the devices of containers, and what the containers need to use them.

Go: pkg/kubelet/cm/devicemanager/pod_devices.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError

from kubelet import container as kubecontainer
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.cm.devicemanager import checkpoint
from kubelet.cm.devicemanager.checkpoint.checkpoint import devices_per_numa
from kubelet.cm.devicemanager.types import DeviceRunContainerOptions
from pkg import klog

# This value stands for the NUMA node of devices that are near no node.
NODE_WITHOUT_TOPOLOGY = -1

# The keys are device IDs.
DeviceInstances = dict[str, pluginapi.Device]


class ResourceDeviceInstances(dict[str, DeviceInstances]):
    """Map resource names to devices by ID."""

    def filter(self, condition: Mapping[str, Collection[str]]) -> ResourceDeviceInstances:
        """Return only the resources and the device IDs that `condition` names."""
        return ResourceDeviceInstances(
            {
                resource: {id: device for id, device in self[resource].items() if id in ids}
                for resource, ids in condition.items()
                if resource in self
            }
        )


@dataclass(frozen=True, slots=True)
class DeviceAllocateInfo:
    """Hold a container's devices of one resource, and the plugin's response to their allocation."""

    device_ids: checkpoint.DevicesPerNUMA
    alloc_resp: pluginapi.ContainerAllocateResponse


# The keys are resource names.
ResourceAllocateInfo = dict[str, DeviceAllocateInfo]


class PodDevices:
    """Record the devices of all containers. All methods are thread-safe; the caller owns the returned objects.

    Go: podDevices
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # This lock guards the fields below.
        # The keys are the pod's UID and the container's name.
        self._devs: dict[str, dict[str, ResourceAllocateInfo]] = {}
        # `_resources` holds the resources of which any container has devices.
        self._resources: set[str] = set()

    def has_resource(self, resource: str) -> bool:
        """Report whether any container has devices of the resource."""
        with self._lock:
            return resource in self._resources

    def pods(self) -> set[str]:
        with self._lock:
            return set(self._devs)

    def has_pod(self, pod_uid: str) -> bool:
        with self._lock:
            return pod_uid in self._devs

    def insert(
        self,
        pod_uid: str,
        container_name: str,
        resource: str,
        devices: checkpoint.DevicesPerNUMA,
        response: pluginapi.ContainerAllocateResponse,
    ) -> None:
        with self._lock:
            container = self._devs.setdefault(pod_uid, {}).setdefault(container_name, {})
            container[resource] = DeviceAllocateInfo(devices, response)
            self._resources.add(resource)

    def delete(self, pods: Iterable[str]) -> None:
        with self._lock:
            for uid in pods:
                self._devs.pop(uid, None)
            everybody = (resources for containers in self._devs.values() for resources in containers.values())
            self._resources = set[str]().union(*everybody)

    def pod_devices(self, pod_uid: str, resource: str) -> set[str]:
        """Return the resource's devices of all the pod's containers."""
        with self._lock:
            containers = self._devs.get(pod_uid, {}).values()
            return {id for given in containers if resource in given for id in given[resource].device_ids.devices()}

    def container_devices(self, pod_uid: str, container_name: str, resource: str) -> set[str] | None:
        """Return the container's devices of the resource, or None if the container was never allocated any."""
        with self._lock:
            given = self._container_locked(pod_uid, container_name).get(resource)
            return None if given is None else given.device_ids.devices()

    def _container_locked(self, pod_uid: str, container_name: str) -> ResourceAllocateInfo:
        return self._devs.get(pod_uid, {}).get(container_name, {})

    def container_allocated_resources(self, pod_uid: str, container_name: str) -> dict[str, set[str]]:
        """Return the container's devices by resource.

        Go: addContainerAllocatedResources, removeContainerAllocatedResources
        """
        with self._lock:
            container = self._container_locked(pod_uid, container_name)
            return {resource: given.device_ids.devices() for resource, given in container.items()}

    def devices(self) -> dict[str, set[str]]:
        """Return the devices of all containers by resource."""
        found: dict[str, set[str]] = {}
        with self._lock:
            for containers in self._devs.values():
                for resources in containers.values():
                    for resource, given in resources.items():
                        found.setdefault(resource, set()).update(given.device_ids.devices())
        return found

    def get_pods_for_devices(self, resource: str, device_ids: set[str]) -> set[str]:
        """Return the UIDs of the pods that have any of the devices.

        DIVERGES (fault of Go): the kubelet looks a device up by its resource and its ID.
        Go: pkg/kubelet/cm/devicemanager/pod_devices.go, (*podDevices).getPodAndContainerForDevice: it uses only the ID.
        Why: when a device fails, the kubelet might instead sync a pod whose device of another resource has the same ID.
        Test: pod_devices_test.py:test_whose_a_device_is
        """
        with self._lock:
            return {
                pod_uid
                for pod_uid, containers in self._devs.items()
                for resources in containers.values()
                if resource in resources and not device_ids.isdisjoint(resources[resource].device_ids.devices())
            }

    # ---- The checkpoint ----

    def to_checkpoint_data(self) -> list[checkpoint.PodDevicesEntry]:
        with self._lock:
            return [
                checkpoint.PodDevicesEntry(
                    pod_uid,
                    container_name,
                    resource,
                    dict(given.device_ids),
                    given.alloc_resp.SerializeToString(deterministic=True),
                )
                for pod_uid, containers in self._devs.items()
                for container_name, resources in containers.items()
                for resource, given in resources.items()
            ]

    def from_checkpoint_data(self, data: Iterable[checkpoint.PodDevicesEntry]) -> None:
        """Restore earlier allocations. An entry that cannot be parsed is logged and skipped."""
        for entry in data:
            log = {"podUID": entry.pod_uid, "containerName": entry.container_name, "resourceName": entry.resource_name}
            klog.v(2).info_s("Get checkpoint entry", **log, deviceIDs=entry.device_ids, allocated=entry.alloc_resp)
            try:
                response = pluginapi.ContainerAllocateResponse.FromString(entry.alloc_resp or b"")
            except DecodeError as err:
                klog.error_s(err, "Can't unmarshal allocResp", **log)
                continue
            devices = devices_per_numa(entry)
            self.insert(entry.pod_uid, entry.container_name, entry.resource_name, devices, response)

    # ---- What containers need ----

    def device_run_container_options(self, pod_uid: str, container_name: str) -> DeviceRunContainerOptions | None:
        """Return what the container's devices need, or None without devices.

        If plugins disagree, the first one counts.
        """
        with self._lock:
            responses = [given.alloc_resp for given in self._container_locked(pod_uid, container_name).values()]
        if not responses:
            return None
        return DeviceRunContainerOptions(
            envs=[
                kubecontainer.EnvVar(name, value)
                for name, value in _merged_maps(responses, "Environment variable", _envs)
            ],
            devices=list(_merged_devices(responses)),
            mounts=list(_merged_mounts(responses)),
            annotations=[
                kubecontainer.Annotation(name, value)
                for name, value in _merged_maps(responses, "Annotation", _annotations)
            ],
            cdi_devices=[
                kubecontainer.CDIDevice(name)
                for name in dict.fromkeys(device.name for response in responses for device in response.cdi_devices)
            ],
        )

    def get_container_devices(self, pod_uid: str, container_name: str) -> ResourceDeviceInstances:
        """Return the container's devices. They contain only the NUMA nodes that they are near."""
        with self._lock:
            container = self._container_locked(pod_uid, container_name)
            return ResourceDeviceInstances(
                {resource: _instances(given.device_ids) for resource, given in container.items() if given.device_ids}
            )


def _instances(device_ids: checkpoint.DevicesPerNUMA) -> DeviceInstances:
    instances: DeviceInstances = {}
    for node, ids in device_ids.items():
        for id in ids:
            device = instances.setdefault(id, pluginapi.Device())
            if node != NODE_WITHOUT_TOPOLOGY:
                device.topology.nodes.add(ID=node)
    return instances


def _envs(response: pluginapi.ContainerAllocateResponse) -> Mapping[str, str]:
    return response.envs


def _annotations(response: pluginapi.ContainerAllocateResponse) -> Mapping[str, str]:
    return response.annotations


def _merged_maps(
    responses: list[pluginapi.ContainerAllocateResponse],
    what: str,
    get: Callable[[pluginapi.ContainerAllocateResponse], Mapping[str, str]],
) -> Iterable[tuple[str, str]]:
    merged: dict[str, str] = {}
    for response in responses:
        for name, value in sorted(get(response).items()):
            if (first := merged.setdefault(name, value)) != value:
                klog.error_s(None, f"{what} has conflicting setting", key=name, got=value, expected=first)
    return merged.items()


def _merged_devices(responses: list[pluginapi.ContainerAllocateResponse]) -> Iterator[kubecontainer.DeviceInfo]:
    for device in _first_at_each_path("device", (device for response in responses for device in response.devices)):
        yield kubecontainer.DeviceInfo(device.host_path, device.container_path, device.permissions)


def _merged_mounts(responses: list[pluginapi.ContainerAllocateResponse]) -> Iterator[kubecontainer.Mount]:
    for mount in _first_at_each_path("mount", (mount for response in responses for mount in response.mounts)):
        yield kubecontainer.Mount(
            name=mount.container_path,
            container_path=mount.container_path,
            host_path=mount.host_path,
            read_only=mount.read_only,
        )


_Placed = TypeVar("_Placed", pluginapi.DeviceSpec, pluginapi.Mount)


def _first_at_each_path(what: str, items: Iterable[_Placed]) -> Iterator[_Placed]:
    """Yield the first item for each path in the container, and log the others that have another host path."""
    seen: dict[str, str] = {}
    for item in items:
        path = item.container_path
        if path not in seen:
            seen[path] = item.host_path
            yield item
        elif seen[path] != item.host_path:
            message = f"Container {what} has conflicting mapping host {what}s"
            klog.error_s(None, message, containerPath=path, got=item.host_path, expected=seen[path])
