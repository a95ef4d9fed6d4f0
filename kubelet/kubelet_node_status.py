"""The node as the kubelet itself sees it, when no API server has one.

Registration and the status that is sent to an API server are not here yet.

Go: pkg/kubelet/kubelet_node_status.go
"""

from __future__ import annotations

import os
import platform

from kubelet import cadvisor, nodestatus
from kubelet.kubelet_network import KubeletNetwork
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1

_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


class KubeletNodeStatus(KubeletNetwork):
    """The node object."""

    def get_node(self, ctx: golang.Context) -> v1.Node:
        """The node as it is known; in standalone mode what the kubelet would register."""
        return self.initial_node(ctx)

    def get_node_any_way(self, ctx: golang.Context) -> v1.Node:
        """The node, made up from the machine when nobody has a better one.  Go: kubelet_getters.go"""
        return self.get_node(ctx)

    def get_host_ips_any_way(self, ctx: golang.Context) -> list[str]:
        """The node's addresses, at least one; without --node-ip the name service may be asked.

        Raises ValueError when the machine has none.  Go: kubelet_getters.go
        """
        addresses = self.get_node_any_way(ctx).status.addresses
        known = [address.address for address in addresses if address.type == v1.NODE_INTERNAL_IP]
        return known or [nodestatus.node_address(self.node_name)]

    def initial_node(self, ctx: golang.Context) -> v1.Node:
        """A node object of this machine: names, capacity and what of it pods may use."""
        arch = _GO_ARCHITECTURES.get(platform.machine(), platform.machine())
        labels = {
            v1.LABEL_HOSTNAME: self.hostname,
            v1.LABEL_OS_STABLE: "linux",
            v1.LABEL_ARCH_STABLE: arch,
            **self.node_labels,
        }
        node = v1.Node(metadata=metav1.ObjectMeta(name=self.node_name, labels=labels))
        node.status.capacity = self._capacity()
        node.status.allocatable = self._allocatable(node.status.capacity)
        node.status.addresses = [v1.NodeAddress(type=v1.NODE_INTERNAL_IP, address=ip) for ip in self.node_ips]
        node.status.addresses.append(v1.NodeAddress(type=v1.NODE_HOST_NAME, address=self.hostname))
        self._set_runtime_features(node.status)
        return node

    def _set_runtime_features(self, status: v1.NodeStatus) -> None:
        """What the runtime says it can do.  Go: nodestatus/setters.go, NodeFeatures and RuntimeHandlers"""
        features = self.runtime_state.runtime_features()
        if features is not None:
            status.features = v1.NodeFeatures(supplemental_groups_policy=features.supplemental_groups_policy)
        status.runtime_handlers = [
            v1.NodeRuntimeHandler(
                name=handler.name,
                features=v1.NodeRuntimeHandlerFeatures(
                    recursive_read_only_mounts=handler.supports_recursive_read_only_mounts,
                    user_namespaces=handler.supports_user_namespaces,
                ),
            )
            for handler in self.runtime_state.runtime_handlers()
        ]

    def _capacity(self) -> dict[str, resource.Quantity]:
        capacity = cadvisor.capacity_from_machine_info(self.cadvisor.machine_info())
        capacity[v1.RESOURCE_PODS] = resource.new_quantity(self.max_pods)
        disk = os.statvfs(self.root_directory)
        size = disk.f_blocks * disk.f_frsize
        capacity[v1.RESOURCE_EPHEMERAL_STORAGE] = resource.new_quantity(size, resource.Format.BINARY_SI)
        return capacity

    def _allocatable(self, capacity: dict[str, resource.Quantity]) -> dict[str, resource.Quantity]:
        """Capacity less what is reserved, never below zero."""
        allocatable = dict(capacity)
        for name, reserved in self.container_manager.get_node_allocatable_reservation().items():
            if name in allocatable:
                left = allocatable[name].sub(reserved)
                allocatable[name] = left if left.sign() >= 0 else resource.Quantity(0, left.format)
        return allocatable
