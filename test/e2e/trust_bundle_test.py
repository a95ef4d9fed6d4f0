"""Test cluster trust bundles in files of a pod, with feature gates that are off by default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from framework.apiserver.certificates import CertificateAuthority
from framework.cluster_client import Namespace
from framework.local_cluster import LocalCluster
from framework.pods import Manifest
from framework.volumes import looker, mounted, once, told
from kubernetes.client import CertificatesV1beta1Api

pytestmark = pytest.mark.local

GATES = {"ClusterTrustBundle": True, "ClusterTrustBundleProjection": True}
SIGNER = "example.com/signer"


@pytest.fixture(scope="module", autouse=True)
def bundles(local: LocalCluster, namespace: Namespace) -> Iterator[None]:
    """Create one bundle without a signer, and two bundles of a signer."""
    certificates = CertificatesV1beta1Api(namespace.api)
    signers = {"alone": "", "example.com:signer:two": SIGNER, "example.com:signer:three": SIGNER}
    with local.kubelet.configured({"featureGates": GATES}):
        for name, signer in signers.items():
            anchors = CertificateAuthority.create(name).pem.decode()
            metadata = {"name": name, "labels": {"for": "tests"}}
            spec = {"signerName": signer, "trustBundle": anchors}
            certificates.create_cluster_trust_bundle({"metadata": metadata, "spec": spec})
        yield
        for name in signers:
            certificates.delete_cluster_trust_bundle(name)


def shows(pod: str, **source: object) -> Manifest:
    script = looker("grep -c BEGIN.CERTIFICATE /v/anchors.pem || true", volumeMounts=[mounted("v", "/v")])
    projection = {"clusterTrustBundle": {"path": "anchors.pem", **source}}
    return once(pod, script, volumes=[{"name": "v", "projected": {"sources": [projection]}}])


def test_bundle_by_name(namespace: Namespace) -> None:
    namespace.create(shows("by-name", name="alone"))
    assert told(namespace, "by-name") == "1\n"


def test_bundles_of_a_signer(namespace: Namespace) -> None:
    namespace.create(shows("by-signer", signerName=SIGNER, labelSelector={"matchLabels": {"for": "tests"}}))
    assert told(namespace, "by-signer") == "2\n"


def test_bundle_that_is_not_there(namespace: Namespace) -> None:
    namespace.create(shows("optional", name="none", optional=True))
    assert told(namespace, "optional") == "0\n"

    namespace.create(shows("missing", name="none"))
    why = 'MountVolume.SetUp failed for volume "v" : .*clustertrustbundle.*"none" not found.*'
    namespace.wait_for_event("missing", "FailedMount", f"(?i){why}")
