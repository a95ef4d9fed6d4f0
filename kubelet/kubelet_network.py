"""What the kubelet knows of the pod network.

Go: pkg/kubelet/kubelet_network.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkg import klog
from pkg.api.core import v1

if TYPE_CHECKING:
    from cri_api.v1 import api_pb2 as runtimeapi

    from kubelet import container as kubecontainer
    from kubelet.network import dns
    from kubelet.runtime import RuntimeState
    from pkg import golang


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletNetwork:
    """DNS of pods and the node's pod CIDR."""

    dns_configurer: dns.Configurer
    runtime_state: RuntimeState
    container_runtime: kubecontainer.Runtime

    def get_pod_dns(self, ctx: golang.Context, pod: v1.Pod) -> runtimeapi.DNSConfig:
        """The resolver settings of the pod. Raises ValueError when they cannot be made."""
        return self.dns_configurer.get_pod_dns(ctx, pod)

    def update_pod_cidr(self, ctx: golang.Context, cidr: str) -> bool:
        """Tell the runtime and the node state of a new pod CIDR. Whether it changed."""
        current = self.runtime_state.pod_cidr()
        if current == cidr:
            return False
        self.container_runtime.update_pod_cidr(ctx, cidr)
        klog.info_s("Updating Pod CIDR", originalPodCIDR=current, newPodCIDR=cidr)
        self.runtime_state.set_pod_cidr(cidr)
        return True
