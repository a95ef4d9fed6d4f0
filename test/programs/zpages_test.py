"""Test the configuration that /configz shows.

Go: cmd/kubelet/app/server.go (setConfigz)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubelet_cmd.kubelet.app import options, zpages

from kubelet.apis import config as kubeletconfig
from pkg.component_base import configz
from pkg.golang.http.testing import record


@pytest.fixture
def kc() -> Iterator[kubeletconfig.KubeletConfiguration]:
    yield options.new_kubelet_configuration()
    zpages.delete_configz()


def shown() -> dict[str, Any]:
    document: dict[str, Any] = record(configz.handle, "GET", "/configz").json()["kubeletconfig"]
    return document


def test_configuration_in_force(kc: kubeletconfig.KubeletConfiguration) -> None:
    kc.cluster_dns = ["10.96.0.10"]
    kc.static_pod_path = "/etc/kubernetes/manifests"
    zpages.init_configz(kc)
    document = shown()
    assert list(document)[:2] == ["kind", "apiVersion"]
    assert (document["kind"], document["apiVersion"]) == ("KubeletConfiguration", "kubelet.config.k8s.io/v1beta1")
    assert (document["clusterDNS"], document["staticPodPath"]) == (["10.96.0.10"], "/etc/kubernetes/manifests")
    assert document["authorization"]["webhook"]["cacheAuthorizedTTL"] == "5m0s"


def test_what_says_nothing_is_left_out(kc: kubeletconfig.KubeletConfiguration) -> None:
    kc.read_only_port = 0
    kc.healthz_port = 0
    kc.fail_cgroup_v1 = False
    zpages.init_configz(kc)
    document = shown()
    assert {"tlsCertFile", "readOnlyPort", "featureGates", "runOnce", "clusterDNS"}.isdisjoint(document)
    # Without these fields, a reader would assume other values.
    assert (document["healthzPort"], document["failCgroupV1"]) == (0, False)
    assert document["imageMaximumGCAge"] == "0s"


def test_credentials_are_hidden(kc: kubeletconfig.KubeletConfiguration) -> None:
    kc.static_pod_url_header = {"Authorization": ["secret"]}
    zpages.init_configz(kc)
    assert shown()["staticPodURLHeader"] == {"Authorization": ["<masked>"]}


def test_second_kubelet_in_one_process(kc: kubeletconfig.KubeletConfiguration) -> None:
    zpages.init_configz(kc)
    kc.cluster_domain = "second"
    zpages.init_configz(kc)
    assert "clusterDomain" not in shown()
