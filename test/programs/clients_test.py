"""Test how the kubelet creates its clients of the API server.

Go: cmd/kubelet/app/server.go (buildKubeletClientConfig, InitializeTLS)
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from kubelet_cmd.kubelet.app import clients, options

from pkg import golang
from pkg.client_go import rest
from pkg.client_go.rest import testing
from pkg.client_go.util import cert as certutil
from pkg.client_go.util import keyutil
from pkg.golang.testing import closes


def make_server(folder: Path, **configuration: object) -> options.KubeletServer:
    flags = options.KubeletFlags()
    flags.kube_config = str(folder / "kubeconfig")
    flags.cert_directory = str(folder / "pki")
    kc = options.new_kubelet_configuration()
    for name, value in configuration.items():
        setattr(kc, name, value)
    return options.KubeletServer(flags, kc)


def write_kubeconfig(folder: Path, url: str, **user: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))


def test_limits_are_those_of_the_configuration(tmp_path: Path, ctx: golang.Context) -> None:
    write_kubeconfig(tmp_path, "http://127.0.0.1:1", token="t")
    server = make_server(tmp_path, kube_api_qps=7, kube_api_burst=9)
    config, _, expiry_warning = clients.build_kubelet_client_config(ctx, server, "node")
    assert (config.host, config.bearer_token) == ("http://127.0.0.1:1", "t")
    assert (config.qps, config.burst) == (7.0, 9)
    assert expiry_warning is None, "this certificate is not renewed"


def test_three_clients_with_limits_of_their_own(
    tmp_path: Path, ctx: golang.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kubeconfig(tmp_path, "http://127.0.0.1:1")
    made: list[rest.Config] = []
    monkeypatch.setattr("pkg.client_go.kubernetes.new_for_config", made.append)
    server = make_server(
        tmp_path,
        kube_api_qps=50,
        event_record_qps=0,
        event_burst=3,
        node_status_update_frequency=10.0,
        node_lease_duration_seconds=4,
    )
    clients.build_clients(ctx, server, "node")
    kube, events, heartbeats = made
    assert (kube.qps, kube.timeout) == (50.0, 0.0)
    assert (events.qps, events.burst) == (-1.0, 3), "0 is no limit"
    assert (heartbeats.qps, heartbeats.timeout) == (-1.0, 4.0), "a lease must not expire while one call waits"


@pytest.mark.parametrize("rotate", [False, True])
def test_repeated_failures_of_heartbeats_end_the_watches(tmp_path: Path, ctx: golang.Context, rotate: bool) -> None:
    """Repeated failures of heartbeats end the watches.

    This happens with a frozen server behind a proxy: only heartbeats have a short timeout.
    """

    def handle(connection: socket.socket, number: int) -> None:
        if testing.read_head(connection).startswith(b"GET /api/v1/pods?"):
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while connection.recv(1 << 16):
            pass

    with testing.serve_raw(handle) as url:
        write_kubeconfig(tmp_path, url)
        server = make_server(tmp_path, rotate_certificates=rotate, node_lease_duration_seconds=0.05)
        built = clients.build_clients(ctx, server, "node")
        running = built.kube_client.core_v1.pods("").watch(ctx)
        built.on_heartbeat_failure()
        assert running.result_chan().try_recv() == (None, False, False), "nothing has failed so far"
        with pytest.raises(rest.TransportError):
            built.heartbeat_client.coordination_v1.leases("kube-node-lease").get(ctx, "node")
        built.on_heartbeat_failure()
        assert closes(running.result_chan())


@pytest.mark.parametrize("rotate", [False, True])
def test_a_kubeconfig_that_is_missing_is_named(tmp_path: Path, ctx: golang.Context, rotate: bool) -> None:
    server = make_server(tmp_path, rotate_certificates=rotate)
    with pytest.raises((ValueError, OSError), match=str(tmp_path / "kubeconfig")):
        clients.build_clients(ctx, server, "node")


def test_rotation_takes_over_the_certificate_of_the_kubeconfig(tmp_path: Path, ctx: golang.Context) -> None:
    pair = testing.new_pair("system:node:node")
    (tmp_path / "cert.pem").write_bytes(pair.cert_pem)
    (tmp_path / "key.pem").write_bytes(pair.key_pem)
    write_kubeconfig(
        tmp_path,
        "https://127.0.0.1:1",
        **{"client-certificate": str(tmp_path / "cert.pem"), "client-key": str(tmp_path / "key.pem")},
    )
    server = make_server(tmp_path, rotate_certificates=True)
    config, _, expiry_warning = clients.build_kubelet_client_config(ctx, server, "node")
    assert config.tls_client_config.cert_file == "", "files would not follow a renewal"
    assert config.get_cert is not None and config.get_cert() is not None
    assert expiry_warning is not None


def test_serves_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    kc = server.kubelet_configuration
    clients.initialize_tls(server.kubelet_flags, kc, "node-1")
    assert kc.tls_cert_file == str(tmp_path / "pki/kubelet.crt")
    assert stat.S_IMODE(Path(kc.tls_private_key_file).stat().st_mode) == 0o600
    assert certutil.certs_from_file(kc.tls_cert_file)[0].subject.rfc4514_string().startswith("CN=node-1@")
    before = Path(kc.tls_cert_file).read_bytes()
    again = make_server(tmp_path)
    clients.initialize_tls(again.kubelet_flags, again.kubelet_configuration, "node-1")
    assert Path(kc.tls_cert_file).read_bytes() == before, "the certificate is created only once"


def test_full_disk_leaves_no_half_of_a_certificate_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def room_for_one(write: Callable[[str, bytes], None]) -> Callable[[str, bytes], None]:
        def write_or_fail(path: str, data: bytes) -> None:
            if written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written.append(path)
            write(path, data)

        return write_or_fail

    server = make_server(tmp_path)
    with monkeypatch.context() as full, pytest.raises(OSError, match="No space left"):
        full.setattr(certutil, "write_cert", room_for_one(certutil.write_cert))
        full.setattr(keyutil, "write_key", room_for_one(keyutil.write_key))
        clients.initialize_tls(server.kubelet_flags, server.kubelet_configuration, "node-1")
    again = make_server(tmp_path)
    clients.initialize_tls(again.kubelet_flags, again.kubelet_configuration, "node-1")
    assert Path(again.kubelet_configuration.tls_cert_file).exists()


@pytest.mark.parametrize("given", [{"server_tls_bootstrap": True}, {"tls_cert_file": "a", "tls_private_key_file": "b"}])
def test_makes_no_certificate_where_another_will_serve(tmp_path: Path, given: dict[str, object]) -> None:
    server = make_server(tmp_path, **given)
    clients.initialize_tls(server.kubelet_flags, server.kubelet_configuration, "node-1")
    assert not (tmp_path / "pki").exists()
