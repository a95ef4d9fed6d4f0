"""Provide the pods' DNS settings and the node's pod CIDR.

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
    """Provide the pods' DNS settings and the node's pod CIDR."""

    dns_configurer: dns.Configurer
    runtime_state: RuntimeState
    container_runtime: kubecontainer.Runtime

    def get_pod_dns(self, ctx: golang.Context, pod: v1.Pod) -> runtimeapi.DNSConfig:
        """Return the pod's resolver settings. Raise OSError or ResolvConfError if the node's settings are unusable."""
        return self.dns_configurer.get_pod_dns(ctx, pod)

    def update_pod_cidr(self, ctx: golang.Context, cidr: str) -> bool:
        """Pass a new pod CIDR to the runtime and to the node state; return whether the CIDR changed."""
        current = self.runtime_state.pod_cidr()
        if current == cidr:
            return False
        self.container_runtime.update_pod_cidr(ctx, cidr)
        klog.info_s("Updating Pod CIDR", originalPodCIDR=current, newPodCIDR=cidr)
        self.runtime_state.set_pod_cidr(cidr)
        return True
