"""Test the handling of the pod CIDR."""

from __future__ import annotations

from kubelet.container.testing import FakeRuntime
from kubelet.kubelet_network import KubeletNetwork
from kubelet.network import dns
from kubelet.runtime import RuntimeState
from pkg import golang
from pkg.api.core import v1
from pkg.client_go.tools.record.testing import FakeRecorder


def test_pod_cidr() -> None:
    configurer = dns.Configurer(FakeRecorder(1), v1.ObjectReference(), [], [], "cluster.test", "")
    state = RuntimeState(30)
    network = KubeletNetwork(dns_configurer=configurer, runtime_state=state, container_runtime=FakeRuntime())
    assert network.update_pod_cidr(golang.background(), "10.0.0.0/24")
    assert not network.update_pod_cidr(golang.background(), "10.0.0.0/24")
    assert state.pod_cidr() == "10.0.0.0/24"
