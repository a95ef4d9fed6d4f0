"""Test the certificate managers: what they request, where they store it, and which files they watch."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import wait_until_equal

from kubelet import certificate as kubeletcertificate
from kubelet.apis import config as kubeletconfig
from kubelet.certificate import kubelet
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.client_go.util import cert as certutil
from pkg.client_go.util import certificate
from pkg.client_go.util.certificate import testing
from pkg.component_base.featuregate import testing as featuregatetesting
from pkg.component_base.metrics import legacyregistry

WAIT = 30.0
AUTHORITY = testing.Authority()


def address(kind: str, value: str) -> v1.NodeAddress:
    return v1.NodeAddress(type=kind, address=value)


@pytest.mark.parametrize(
    ("addresses", "names", "ips"),
    [
        pytest.param([], [], [], id="empty"),
        pytest.param([address("", "ignored")], [], [], id="ignored"),
        pytest.param(
            [address("Hostname", "1.1.1.1"), address("Hostname", "host")], ["host"], ["1.1.1.1"], id="host names"
        ),
        pytest.param(
            [address("ExternalIP", "2.2.2.2"), address("InternalIP", "::1"), address("InternalIP", "no ip")],
            [],
            ["2.2.2.2", "::1"],
            id="ips",
        ),
        pytest.param(
            [address("InternalIP", "::ffff:1.2.3.4"), address("ExternalIP", "fe80::1%eth0")],
            [],
            ["1.2.3.4"],
            id="ips that no certificate has",
        ),
        pytest.param(
            [address("ExternalDNS", "b.c"), address("InternalDNS", "a.b"), address("InternalDNS", "")],
            ["a.b", "b.c"],
            [],
            id="names, sorted",
        ),
        pytest.param([address("InternalDNS", "1.2.3.4")], ["1.2.3.4"], [], id="a name that looks like an ip"),
        pytest.param(
            [address("Hostname", "h"), address("InternalDNS", "h"), address("InternalIP", "1.1.1.1")] * 2,
            ["h"],
            ["1.1.1.1"],
            id="doubles",
        ),
    ],
)
def test_addresses_to_hostnames_and_ips(addresses: Sequence[v1.NodeAddress], names: list[str], ips: list[str]) -> None:
    got_names, got_ips = kubelet.addresses_to_hostnames_and_ips(addresses)
    assert (list(got_names), [str(ip) for ip in got_ips]) == (names, ips)


@pytest.mark.parametrize(
    ("addresses", "dns_only", "has_template"),
    [
        pytest.param([], False, False, id="nothing"),
        pytest.param([], True, False, id="nothing, names allowed"),
        pytest.param([address("Hostname", "h")], False, False, id="only a name"),
        pytest.param([address("Hostname", "h")], True, True, id="only a name, allowed"),
        pytest.param([address("InternalIP", "1.1.1.1")], False, True, id="only an ip"),
        pytest.param([address("Hostname", "h"), address("InternalIP", "1.1.1.1")], False, True, id="both"),
    ],
)
def test_get_template(addresses: Sequence[v1.NodeAddress], dns_only: bool, has_template: bool) -> None:
    with featuregatetesting.set_feature_gate_during_test(
        features.feature_gate, features.ALLOW_DNS_ONLY_NODE_CSR, dns_only
    ):
        template = kubelet.new_get_template_fn("n", lambda: addresses)()
    assert (template is not None) == has_template
    if template is not None:
        names, ips = kubelet.addresses_to_hostnames_and_ips(addresses)
        assert template == certutil.CertificateRequest("system:node:n", ("system:nodes",), names, ips)


def subject(cert: certificate.Certificate) -> str:
    return cert.leaf.subject.rfc4514_string()


def metric(name: str) -> float | None:
    return legacyregistry.DEFAULT_GATHERER.get_sample_value(name)


def test_client_certificate_manager(tmp_path: Path) -> None:
    signer = testing.FakeSigner(AUTHORITY)
    manager = kubeletcertificate.new_kubelet_client_certificate_manager(
        str(tmp_path), "n", b"", b"", "", "", lambda _: signer.client
    )
    kubeletcertificate.register_client_ttl(manager)
    assert metric("kubelet_certificate_manager_client_ttl_seconds") == float("inf")
    assert manager.rotate_certs(golang.background())
    (request,) = signer.requests()
    assert request.spec.signer_name == "kubernetes.io/kube-apiserver-client-kubelet"
    assert request.spec.usages == ["digital signature", "client auth"]
    cert = manager.current()
    assert cert is not None and subject(cert) == "CN=system:node:n,O=system:nodes"
    assert (tmp_path / "kubelet-client-current.pem").resolve() == Path(cert.cert_file)
    ttl = metric("kubelet_certificate_manager_client_ttl_seconds")
    assert ttl is not None and 3000 < ttl <= 3600 and ttl == int(ttl)


def test_client_certificate_manager_counts_failures(tmp_path: Path) -> None:
    signer = testing.FakeSigner(AUTHORITY)
    manager = kubeletcertificate.new_kubelet_client_certificate_manager(
        str(tmp_path), "n", b"", b"", "", "", lambda _: signer.client
    )
    name = "kubelet_certificate_manager_client_expiration_renew_errors"
    before = metric(name)
    signer.errors["create"] = [ConnectionError("refused")]
    assert not manager.rotate_certs(golang.background())
    assert before is not None and metric(name) == before + 1


def test_client_certificate_manager_falls_back_to_the_kubeconfigs_own(tmp_path: Path) -> None:
    cert_pem, key_pem = AUTHORITY.issue("kubeadm")
    manager = kubeletcertificate.new_kubelet_client_certificate_manager(
        str(tmp_path), "n", cert_pem, key_pem, "", "", None
    )
    cert = manager.current()
    assert cert is not None and subject(cert) == "CN=kubeadm"


def test_server_certificate_manager(tmp_path: Path) -> None:
    signer = testing.FakeSigner(AUTHORITY)
    addresses = [address("Hostname", "host"), address("InternalIP", "192.0.2.1")]
    manager = kubeletcertificate.new_kubelet_server_certificate_manager(
        signer.client, kubeletconfig.KubeletConfiguration(), "n", lambda: addresses, str(tmp_path)
    )
    assert metric("kubelet_certificate_manager_server_ttl_seconds") == float("inf")
    assert manager.rotate_certs(golang.background()) and manager.rotate_certs(golang.background())
    request = signer.requests()[0]
    assert request.spec.signer_name == "kubernetes.io/kubelet-serving"
    assert request.spec.usages == ["digital signature", "server auth"]
    cert = manager.current()
    assert cert is not None and subject(cert) == "CN=system:node:n,O=system:nodes"
    assert (tmp_path / "kubelet-server-current.pem").resolve() == Path(cert.cert_file)
    ttl = metric("kubelet_certificate_manager_server_ttl_seconds")
    assert ttl is not None and 3000 < ttl <= 3600
    assert (metric("kubelet_certificate_manager_server_rotation_seconds_count") or 0) >= 1


@pytest.mark.parametrize("kind", ["client", "server"])
def test_a_broken_store_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"kubelet-{kind}-updated.pem").touch()
    with pytest.raises(ValueError, match=rf"failed to initialize {kind} certificate store: .*updated.pem"):
        _manager(kind, tmp_path)
    (tmp_path / f"kubelet-{kind}-updated.pem").unlink()
    (tmp_path / f"kubelet-{kind}-current.pem").write_bytes(b"broken")
    with pytest.raises(ValueError, match=rf"failed to initialize {kind} certificate manager: .*current.pem"):
        _manager(kind, tmp_path)


def _manager(kind: str, directory: Path) -> object:
    if kind == "client":
        return kubeletcertificate.new_kubelet_client_certificate_manager(str(directory), "n", b"", b"", "", "", None)
    return kubeletcertificate.new_kubelet_server_certificate_manager(
        None, kubeletconfig.KubeletConfiguration(), "n", list, str(directory)
    )


# ---- Serving certificates from files ----

Replace = Callable[[Path, bytes, bytes], None]


def in_place(directory: Path, cert_pem: bytes, key_pem: bytes) -> None:
    (directory / "tls.crt").write_bytes(cert_pem)
    (directory / "tls.key").write_bytes(key_pem)


def by_rename(directory: Path, cert_pem: bytes, key_pem: bytes) -> None:
    for name, data in (("tls.key", key_pem), ("tls.crt", cert_pem)):
        (directory / "new").write_bytes(data)
        (directory / "new").rename(directory / name)


def by_removal(directory: Path, cert_pem: bytes, key_pem: bytes) -> None:
    for name in ("tls.crt", "tls.key"):
        (directory / name).unlink(missing_ok=True)
    in_place(directory, cert_pem, key_pem)


def by_links(directory: Path, cert_pem: bytes, key_pem: bytes) -> None:
    """Replace the files through links, as secret volumes do."""
    target = directory / f"..{len(os.listdir(directory))}"
    target.mkdir()
    in_place(target, cert_pem, key_pem)
    (directory / "..data_tmp").symlink_to(target.name)
    (directory / "..data_tmp").rename(directory / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(Path("..data", name))


@pytest.fixture
def follow() -> Iterator[Callable[[Path], kubeletcertificate.KubeletServerCertificateDynamicFileManager]]:
    managers = []

    def follow(directory: Path) -> kubeletcertificate.KubeletServerCertificateDynamicFileManager:
        manager = kubeletcertificate.KubeletServerCertificateDynamicFileManager(
            str(directory / "tls.crt"), str(directory / "tls.key")
        )
        managers.append(manager)
        manager.start()
        return manager

    yield follow
    for manager in managers:
        manager.stop()


def await_subject(manager: kubeletcertificate.KubeletServerCertificateDynamicFileManager, expected: str) -> None:
    def found() -> str:
        cert = manager.current()
        return "" if cert is None else subject(cert)

    wait_until_equal("subject of the certificate", found, expected)


@pytest.mark.parametrize("replace", [in_place, by_rename, by_removal, by_links])
def test_serving_certificate_from_files_that_change(tmp_path: Path, replace: Replace, follow: Any) -> None:
    replace(tmp_path, *AUTHORITY.issue("first"))
    manager = follow(tmp_path)
    assert subject(manager.current()) == "CN=first" and manager.server_healthy()
    for name in ("second", "third"):
        replace(tmp_path, *AUTHORITY.issue(name))
        await_subject(manager, f"CN={name}")


def test_each_pair_is_logged(tmp_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(klog._Settings, "verbosity", 4)
    in_place(tmp_path, *AUTHORITY.issue("first"))
    cert_file, key_file = str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")
    manager = kubeletcertificate.KubeletServerCertificateDynamicFileManager(cert_file, key_file)
    line = (
        '"loaded certificate and key pair in kubelet server certificate manager" '
        f'certFile="{cert_file}" keyFile="{key_file}"'
    )
    assert log.getvalue().count(line) == 1
    in_place(tmp_path, *AUTHORITY.issue("second"))
    for _ in range(2):
        manager._content.load_cert_key_pair()
    assert log.getvalue().count(line) == 2


def test_broken_files_leave_the_last_pair_in_use(tmp_path: Path, follow: Any) -> None:
    in_place(tmp_path, *AUTHORITY.issue("first"))
    manager = follow(tmp_path)
    in_place(tmp_path, b"broken", b"broken")
    (tmp_path / "tls.key").unlink()
    (tmp_path / "tls.crt").write_bytes(AUTHORITY.issue("other")[0])
    assert subject(manager.current()) == "CN=first"
    in_place(tmp_path, *AUTHORITY.issue("second"))
    await_subject(manager, "CN=second")


def test_the_pair_is_shown_even_when_it_has_ended(tmp_path: Path) -> None:
    end = testing.now() - timedelta(minutes=1)
    in_place(tmp_path, *AUTHORITY.issue("first", not_after=end))
    manager = kubeletcertificate.KubeletServerCertificateDynamicFileManager(
        str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")
    )
    assert subject(manager.current() or pytest.fail("none")) == "CN=first"


@pytest.mark.parametrize(
    ("cert_file", "message"), [("", "missing filename for serving cert"), ("nowhere.crt", "No such file.*nowhere.crt")]
)
def test_files_that_hold_no_pair_are_refused(tmp_path: Path, cert_file: str, message: str) -> None:
    path = str(tmp_path / cert_file) if cert_file else ""
    with pytest.raises(ValueError, match=f"unable to set up dynamic certificate manager .*: .*{message}"):
        kubeletcertificate.KubeletServerCertificateDynamicFileManager(path, path)
