"""Test certificates from the test API server: the first one, renewed ones, and requests that nobody approves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from framework.apiserver.cluster import Cluster
from framework.waiting import wait_for

from kubelet import certificate as kubeletcertificate
from kubelet.apis import config as kubeletconfig
from kubelet.certificate import bootstrap
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import kubernetes, rest
from pkg.client_go.tools import clientcmd
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.client_go.util import certificate

NODE = "node-1"
WAIT = 30.0


class Node:
    """Hold the credentials of a node that began with a bootstrap token, and a client that uses them."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.pki = directory / "pki"
        self.kubeconfig = directory / "kubelet.conf"
        cert_config, client_config = bootstrap.load_client_config(
            str(self.kubeconfig), str(cluster.bootstrap_kubeconfig()), str(self.pki)
        )
        self.recorder = FakeRecorder(100)
        node_ref = v1.ObjectReference(kind="Node", name=NODE, uid=NODE)
        transport_config = rest.anonymous_client_config(client_config)
        transport_config.qps = -1
        tls = client_config.tls_client_config
        self.manager = kubeletcertificate.new_kubelet_client_certificate_manager(
            str(self.pki),
            NODE,
            tls.cert_data,
            tls.key_data,
            tls.cert_file,
            tls.key_file,
            self._clientset,
            expiry_warning=kubeletcertificate.ExpiryWarning("client", node_ref, self.recorder),
        )
        self.ctx, self._cancel = golang.with_cancel(golang.background())
        kubeletcertificate.update_transport(self.ctx, transport_config, self.manager, 300)
        self.bootstrap_client = kubernetes.new_for_config(cert_config)
        self.client = kubernetes.new_for_config(transport_config)
        self.manager.start()

    def _clientset(self, current: certificate.Certificate | None) -> kubernetes.Interface:
        return self.bootstrap_client if current is None else self.client

    def serial_number(self) -> int:
        current = self.manager.current()
        return 0 if current is None else current.leaf.serial_number

    def stop(self) -> None:
        self.manager.stop()
        self._cancel()
        self.client.close()
        self.bootstrap_client.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def node(cluster: Cluster, tmp_path: Path) -> Iterator[Node]:
    # The server backdates certificates, so that each is due for renewal as soon as it arrives.
    cluster.signing.policy.forced_lifetime = timedelta(seconds=20)
    node = Node(cluster, tmp_path / "node")
    yield node
    node.stop()


def test_rotation_does_not_drop_a_watch(node: Node) -> None:
    wait_for("the first certificate", node.serial_number, WAIT)
    nodes = node.client.core_v1.nodes()
    created = nodes.create(node.ctx, v1.Node(metadata=metav1.ObjectMeta(name=NODE)))
    options = metav1.ListOptions(
        field_selector=f"metadata.name={NODE}", resource_version=created.metadata.resource_version
    )
    watcher = nodes.watch(node.ctx, options)
    serial_numbers = {node.serial_number()}
    try:
        for number in range(3):
            wait_for("another certificate", lambda: node.serial_number() not in (0, *serial_numbers), WAIT)
            serial_numbers.add(node.serial_number())
            patch = f'{{"metadata": {{"labels": {{"number": "{number}"}}}}}}'.encode()
            nodes.patch(node.ctx, NODE, types.PatchType.MERGE, patch)
            while True:
                event, ok = watcher.result_chan().recv(WAIT)
                assert ok and event is not None, "the watch ended or delivered nothing"
                if event.object.metadata.labels.get("number") == str(number):
                    break
    finally:
        watcher.stop()
    assert len(serial_numbers) == 4


def test_a_request_that_nobody_approves_is_warned_of_and_used_when_it_is(cluster: Cluster, node: Node) -> None:
    wait_for("the first certificate", node.serial_number, WAIT)
    cluster.signing.policy.approve_clients = False
    wait_for("a warning", lambda: len(node.recorder.events), WAIT)
    (event,) = node.recorder.drain()
    last = node.serial_number()
    pending = [csr for csr in cluster.store.list("certificatesigningrequests") if not csr["status"].get("conditions")]
    (name,) = (csr["metadata"]["name"] for csr in pending)
    assert event.startswith("Warning CertificateExpiring The client certificate of this node expires in ")
    assert event.endswith(f"certificate signing request {name} waits for approval")
    cluster.signing.policy.approve_clients = True
    cluster.signing.policy.forced_lifetime = None
    cluster.signing.reconsider()
    wait_for("a new certificate", lambda: node.serial_number() not in (0, last), WAIT)


def test_bootstrap_and_serving_certificate(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig, pki = str(tmp_path / "kubelet.conf"), str(tmp_path / "pki")
    bootstrap_kubeconfig = str(cluster.bootstrap_kubeconfig())
    bootstrap.load_client_cert(golang.background(), kubeconfig, bootstrap_kubeconfig, pki, NODE)
    client = kubernetes.new_for_config(clientcmd.build_config_from_flags("", kubeconfig))
    cluster.signing.policy.approve_serving = True
    addresses = [v1.NodeAddress(type="Hostname", address=NODE), v1.NodeAddress(type="InternalIP", address="192.0.2.1")]
    manager = kubeletcertificate.new_kubelet_server_certificate_manager(
        client, kubeletconfig.KubeletConfiguration(), NODE, lambda: addresses, pki
    )
    manager.start()
    try:
        wait_for("a serving certificate", manager.current, WAIT)
    finally:
        manager.stop()
        client.close()
    requests = cluster.store.list("certificatesigningrequests")
    assert {request["spec"]["username"] for request in requests} == {"system:bootstrap:abcdef", f"system:node:{NODE}"}
