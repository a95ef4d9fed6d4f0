"""Configure the DNS resolver of pods.

Go: pkg/kubelet/network/dns
"""

from kubelet.network.dns.dns import Configurer, PodDNSType

__all__ = ["Configurer", "PodDNSType"]
