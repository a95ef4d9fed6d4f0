"""Represent a node with its resources, and the resources that its pods use.

Go: pkg/scheduler/framework/types.go
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pkg import features
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery.api.resource import Quantity
from pkg.apis.core.v1 import helper as v1helper
from pkg.component_helpers import resource as resourcehelper

_ANY_IP = "0.0.0.0"  # This address represents all addresses of the host; this module does not listen on it.


@dataclass(slots=True)
class Resource:
    """Hold amounts of resources as plain numbers: CPU in thousandths, and others in whole units."""

    milli_cpu: int = 0
    memory: int = 0
    ephemeral_storage: int = 0
    allowed_pod_number: int = 0
    # These are extended resources, huge pages and others that have no field above.
    scalar_resources: dict[str, int] = field(default_factory=dict)

    def add(self, resources: dict[str, Quantity]) -> None:
        for name, quantity in resources.items():
            match name:
                case v1.RESOURCE_CPU:
                    self.milli_cpu += quantity.milli_value()
                case v1.RESOURCE_MEMORY:
                    self.memory += quantity.value()
                case v1.RESOURCE_PODS:
                    self.allowed_pod_number += quantity.value()
                case v1.RESOURCE_EPHEMERAL_STORAGE:
                    self.ephemeral_storage += quantity.value()
                case _ if is_scalar_resource_name(name):
                    self.scalar_resources[name] = self.scalar_resources.get(name, 0) + quantity.value()


class HostPortInfo:
    """Record the host ports in use, by address and protocol.

    An empty address means all addresses, and an empty protocol means TCP.
    """

    def __init__(self) -> None:
        self._taken: dict[str, set[tuple[str, int]]] = {}

    def add(self, ip: str, protocol: str, port: int) -> None:
        if port > 0:
            self._taken.setdefault(ip or _ANY_IP, set()).add((protocol or v1.PROTOCOL_TCP, port))

    def check_conflict(self, ip: str, protocol: str, port: int) -> bool:
        """Report whether the port is in use at this address, or at all addresses."""
        if port <= 0:
            return False
        ip = ip or _ANY_IP
        taken = self._taken.values() if ip == _ANY_IP else [self._taken.get(a, set()) for a in (_ANY_IP, ip)]
        return any((protocol or v1.PROTOCOL_TCP, port) in ports for ports in taken)


class NodeInfo:
    """Hold a node and its pods, with the sums of their resources."""

    def __init__(self, *pods: v1.Pod) -> None:
        self.node: v1.Node | None = None
        self.pods: list[v1.Pod] = []
        self.requested = Resource()
        self.allocatable = Resource()
        self.used_ports = HostPortInfo()
        for pod in pods:
            self.add_pod(pod)

    def add_pod(self, pod: v1.Pod) -> None:
        self.pods.append(pod)
        # During a resize, the resources that the pod's containers currently have count too.
        in_place = features.feature_gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING)
        self.requested.add(resourcehelper.pod_requests(pod, pod_resources_options(use_status=in_place)))
        for port in get_host_ports(pod):
            self.used_ports.add(port.host_ip, port.protocol, port.host_port)

    def set_node(self, node: v1.Node) -> None:
        self.node = node
        self.allocatable = Resource()
        self.allocatable.add(node.status.allocatable)


def pod_resources_options(use_status: bool) -> resourcehelper.PodResourcesOptions:
    """Return the options with which this package adds up the requests of pods."""
    enabled = features.feature_gate.enabled
    return resourcehelper.PodResourcesOptions(
        use_status_resources=use_status,
        in_place_pod_level_resources_vertical_scaling_enabled=(
            use_status and enabled(features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING)
        ),
        skip_pod_level_resources=not enabled(features.POD_LEVEL_RESOURCES),
        use_dra_node_allocatable_resource_claim_status=enabled(features.DRA_NODE_ALLOCATABLE_RESOURCES),
    )


def is_scalar_resource_name(name: str) -> bool:
    """Report whether the resource belongs in scalar_resources.

    Go: pkg/scheduler/util/utils.go
    """
    return (
        v1helper.is_extended_resource_name(name)
        or v1helper.is_huge_page_resource_name(name)
        or v1helper.is_prefixed_native_resource(name)
        or v1helper.is_attachable_volume_resource_name(name)
    )


def get_host_ports(pod: v1.Pod) -> list[v1.ContainerPort]:
    """Return the host ports of containers and sidecars.

    Go: pkg/scheduler/util/utils.go
    """
    sidecars = [c for c in pod.spec.init_containers if podutil.is_restartable_init_container(c)]
    return [port for c in [*sidecars, *pod.spec.containers] for port in c.ports if port.host_port > 0]
