"""Test the bootstrap: which credentials are used, and that the key of a request is never lost."""

from __future__ import annotations

import contextlib
import http.server
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest
from framework import faulty_call
from framework.apiserver.faults import Fault
from framework.client_calls import Call
from framework.faulty_call import FaultyCall, Kind

from kubelet.certificate import bootstrap
from kubelet.certificate.bootstrap import bootstrap as module
from pkg import golang
from pkg.apimachinery.api import errors as apierrors
from pkg.client_go import kubernetes, rest
from pkg.client_go.tools import clientcmd
from pkg.client_go.util import keyutil
from pkg.client_go.util.certificate import csr, testing

WAIT = 30.0
AUTHORITY = testing.Authority()
HOST = "https://cluster-a.example:6443"


class Node:
    """Hold the files of a node, and an API server with a signer behind every kubeconfig."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.signer = testing.FakeSigner(AUTHORITY)
        self.pki = directory / "pki"
        self.kubeconfig = directory / "kubelet.conf"
        self.bootstrap = directory / "bootstrap.conf"
        self.ca = directory / "ca.crt"
        self.ca.write_bytes(AUTHORITY.cert_pem)
        self.write(self.bootstrap, "token: abcdef.0123456789abcdef")
        self.configs: list[rest.Config] = []
        monkeypatch.setattr(kubernetes, "new_for_config", self._new_for_config)
        monkeypatch.setattr(module, "wait_for_server", lambda *_: None)

    def _new_for_config(self, config: rest.Config) -> object:
        self.configs.append(config)
        return self.signer.client

    def write(self, path: Path, user: str) -> None:
        path.write_text(
            f"""
apiVersion: v1
kind: Config
clusters:
- {{name: a, cluster: {{server: "{HOST}", certificate-authority: ca.crt, tls-server-name: real.example,
    proxy-url: "http://proxy:1"}}}}
- {{name: b, cluster: {{server: "https://cluster-b.example"}}}}
users:
- {{name: u, user: {{{user}}}}}
contexts:
- {{name: c, context: {{cluster: a, user: u}}}}
- {{name: d, context: {{cluster: b, user: u}}}}
current-context: c
"""
        )

    def write_with_certificate(self, life: timedelta = timedelta(hours=1)) -> Path:
        """Write a kubeconfig whose certificate expires after `life`, and return the file of the pair."""
        pair = self.kubeconfig.parent / "pair.pem"
        end = testing.now() + life
        pair.write_bytes(b"".join(AUTHORITY.issue("n", not_before=end - timedelta(days=1), not_after=end)))
        self.write(self.kubeconfig, "client-certificate: pair.pem, client-key: pair.pem")
        return pair

    def load_client_cert(self) -> None:
        bootstrap.load_client_cert(golang.background(), str(self.kubeconfig), str(self.bootstrap), str(self.pki), "n")

    def load_client_config(self, bootstrap_path: str | None = None) -> tuple[object, object]:
        path = str(self.bootstrap) if bootstrap_path is None else bootstrap_path
        return bootstrap.load_client_config(str(self.kubeconfig), path, str(self.pki))

    @property
    def key_tmp(self) -> Path:
        return self.pki / "kubelet-client.key.tmp"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


@pytest.mark.parametrize("with_bootstrap", [False, True], ids=["no bootstrap path", "valid kubeconfig"])
def test_load_client_config_uses_the_kubeconfig(node: Node, with_bootstrap: bool) -> None:
    pair = node.write_with_certificate()
    before = node.kubeconfig.read_bytes()
    cert_config, client_config = bootstrap.load_client_config(
        str(node.kubeconfig), str(node.bootstrap) if with_bootstrap else "", str(node.pki)
    )
    assert cert_config == client_config and cert_config is not client_config
    assert (client_config.host, client_config.tls_client_config.cert_file) == (HOST, str(pair))
    assert node.kubeconfig.read_bytes() == before


def expired(node: Node) -> None:
    node.write_with_certificate(timedelta(minutes=-1))


def broken(node: Node) -> None:
    node.kubeconfig.write_text("clusters: nonsense")


def certificate_gone(node: Node) -> None:
    node.write_with_certificate().unlink()


def certificate_of_another_key(node: Node) -> None:
    pair = node.write_with_certificate()
    pair.write_bytes(AUTHORITY.issue("n")[0] + AUTHORITY.issue("n")[1])


def only_a_token(node: Node) -> None:
    node.write(node.kubeconfig, "token: mine")


def none_yet(node: Node) -> None:
    pass


UNUSABLE = [none_yet, expired, broken, certificate_gone, certificate_of_another_key, only_a_token]


@pytest.mark.parametrize("prepare", UNUSABLE)
def test_load_client_config_falls_back_to_bootstrap(node: Node, prepare: Callable[[Node], None]) -> None:
    prepare(node)
    cert_config, client_config = bootstrap.load_client_config(str(node.kubeconfig), str(node.bootstrap), str(node.pki))
    assert (cert_config.host, cert_config.bearer_token) == (HOST, "abcdef.0123456789abcdef")
    current = str(node.pki / "kubelet-client-current.pem")
    tls = client_config.tls_client_config
    assert (client_config.host, client_config.bearer_token, tls.ca_file) == (HOST, "", str(node.ca))
    assert (tls.cert_file, tls.key_file, tls.server_name) == (current, current, "real.example")
    assert stat.S_IMODE(node.kubeconfig.stat().st_mode) == 0o600
    written = clientcmd.load_from_file(str(node.kubeconfig))
    (cluster,), (user,) = written.clusters.values(), written.auth_infos.values()
    assert (cluster.server, cluster.tls_server_name, cluster.proxy_url) == (HOST, "real.example", "http://proxy:1")
    assert (user.client_certificate, user.client_key, user.token) == (current, current, "")


@pytest.mark.parametrize(
    ("kubeconfig", "bootstrap_path", "message"),
    [
        pytest.param("nowhere", "", "unable to load kubeconfig: .*nowhere", id="kubeconfig"),
        pytest.param("nowhere", "neither", "unable to load bootstrap kubeconfig: .*neither", id="bootstrap"),
    ],
)
def test_load_client_config_names_the_missing_file(
    tmp_path: Path, kubeconfig: str, bootstrap_path: str, message: str
) -> None:
    path = str(tmp_path / bootstrap_path) if bootstrap_path else ""
    with pytest.raises(ValueError, match=message):
        bootstrap.load_client_config(str(tmp_path / kubeconfig), path, str(tmp_path))


@pytest.mark.parametrize("prepare", UNUSABLE)
def test_load_client_cert(node: Node, prepare: Callable[[Node], None]) -> None:
    prepare(node)
    node.load_client_cert()
    (request,) = node.signer.requests()
    assert request.metadata.name.startswith("node-csr-")
    assert request.spec.signer_name == "kubernetes.io/kube-apiserver-client-kubelet"
    assert request.spec.usages == ["digital signature", "client auth"]
    assert node.configs[0].bearer_token == "abcdef.0123456789abcdef"
    config = clientcmd.build_config_from_flags("", str(node.kubeconfig))
    pair = Path(config.tls_client_config.cert_file)
    assert pair == node.pki / "kubelet-client-current.pem" and (request.status.certificate or b"?") in pair.read_bytes()
    assert not node.key_tmp.exists()
    # The kubeconfig is valid from now on, so this call does nothing.
    node.load_client_cert()
    assert len(node.signer.requests()) == 1


def test_load_client_cert_skips_when_the_kubeconfig_is_valid(node: Node) -> None:
    node.write_with_certificate()
    node.load_client_cert()
    assert node.signer.requests() == [] and not node.pki.exists()


def test_a_request_that_was_not_granted_is_gone_on_with(node: Node) -> None:
    node.signer.approve = False
    node.signer.errors["create"] = [ConnectionError("refused")]
    with pytest.raises(ConnectionError):
        node.load_client_cert()
    key = node.key_tmp.read_bytes()
    assert stat.S_IMODE(node.key_tmp.stat().st_mode) == 0o600

    ended: golang.Channel[Exception | None] = golang.Channel(1)

    def run() -> None:
        try:
            node.load_client_cert()
            ended.send(None)
        except Exception as err:
            ended.send(err)

    golang.go(run, name="bootstrap")
    assert node.signer.watched.recv(WAIT)[1]
    (request,) = node.signer.requests()
    node.signer.remove(request.metadata.name)
    assert isinstance(ended.recv(WAIT)[0], csr.CertificateSigningRequestError)
    assert node.key_tmp.read_bytes() == key and not node.kubeconfig.exists()

    # The next run requests a certificate with the same key, and therefore under the same name.
    golang.go(run, name="bootstrap")
    assert node.signer.watched.recv(WAIT)[1]
    assert [again.metadata.name for again in node.signer.requests()] == [request.metadata.name]
    node.signer.grant(request.metadata.name)
    assert ended.recv(WAIT) == (None, True)
    assert key in (node.pki / "kubelet-client-current.pem").read_bytes()
    assert not node.key_tmp.exists() and node.kubeconfig.exists()


def test_a_granted_request_of_an_earlier_run_is_used(node: Node) -> None:
    # The node died between the request and the storing of the certificate.
    key = keyutil.load_or_generate_key_file(str(node.key_tmp))
    module.request_node_certificate(golang.background(), node.signer.client, key, "n")
    node.load_client_cert()
    assert len(node.signer.requests()) == 1
    assert key in (node.pki / "kubelet-client-current.pem").read_bytes()


def test_the_key_of_the_last_certificate_is_used_again(node: Node) -> None:
    node.load_client_cert()
    first = node.signer.requests()[0].metadata.name
    node.kubeconfig.unlink()
    node.signer.remove(first)
    node.load_client_cert()
    assert [request.metadata.name for request in node.signer.requests()] == [first]


def test_a_broken_key_file_is_not_replaced(node: Node) -> None:
    node.pki.mkdir()
    node.key_tmp.write_bytes(b"broken")
    with pytest.raises(ValueError, match=f"error loading key from {node.key_tmp}"):
        node.load_client_cert()
    assert node.key_tmp.read_bytes() == b"broken"


def test_a_server_that_does_not_answer_healthz_is_asked_all_the_same(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed_out(*_: object) -> None:
        raise TimeoutError("timed out waiting to connect to apiserver")

    monkeypatch.setattr(module, "wait_for_server", timed_out)
    node.load_client_cert()
    assert node.kubeconfig.exists()


class HealthzHandler(http.server.BaseHTTPRequestHandler):
    answers: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        self.send_response(self.answers.pop(0) if self.path.partition("?")[0] == "/healthz" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("answers", "deadline"),
    [
        pytest.param([200], WAIT, id="at once"),
        pytest.param([500, 401, 200], WAIT, id="later"),
        pytest.param([], 0.05, id="never"),
    ],
)
def test_wait_for_server(answers: list[int], deadline: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SERVER_PERIOD", 0.01)
    monkeypatch.setattr(HealthzHandler, "answers", list(answers))
    with http.server.HTTPServer(("127.0.0.1", 0), HealthzHandler) as server:
        config = rest.Config(host=f"http://127.0.0.1:{server.server_port}")
        if not answers:
            server.socket.close()
            with pytest.raises(TimeoutError, match="timed out waiting to connect to apiserver"):
                module.wait_for_server(golang.background(), config, deadline)
            return
        thread = golang.go(server.serve_forever, 0.01, name="server")
        try:
            module.wait_for_server(golang.background(), config, deadline)
        finally:
            server.shutdown()
            thread.join(WAIT)
    assert HealthzHandler.answers == []


def test_wait_for_server_is_given_up_with_its_context() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    with pytest.raises(golang.Canceled):
        module.wait_for_server(ctx, rest.Config(host="http://127.0.0.1:1"), WAIT)


@faulty_call.cases(Call("kubelet/certificate/bootstrap/bootstrap.py", "", "get"))
def test_call_that_asks_for_healthz(call: Call, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet waits for /healthz, and then requests the certificate anyway."""
    monkeypatch.setattr(module, "_SERVER_DEADLINE", 0.5)
    monkeypatch.setattr(module, "_SERVER_PERIOD", 0.01)
    kubeconfig = tmp_path / "kubeconfig"
    with FaultyCall(tmp_path, call, kind) as api:
        bootstrap_kubeconfig = api.cluster.bootstrap_kubeconfig()
        with api.going_wrong() as fault:
            monkeypatch.setattr(module, "wait_for_server", _until_asked(fault))
            bootstrap.load_client_cert(
                golang.background(), str(kubeconfig), str(bootstrap_kubeconfig), str(tmp_path / "pki"), "n"
            )
        monkeypatch.undo()
        assert kubeconfig.exists()
        module.wait_for_server(golang.background(), api.config, WAIT)


def _until_asked(fault: Fault) -> Callable[[golang.Context, rest.Config, float], None]:
    """Return a function that waits for a faulty server until it was asked, which takes long on a busy machine."""
    real = module.wait_for_server

    def wait_for_server(ctx: golang.Context, config: rest.Config, deadline: float) -> None:
        while not fault.hits:
            with contextlib.suppress(TimeoutError):
                real(ctx, config, deadline)
                return
        raise TimeoutError("timed out waiting to connect to apiserver")

    return wait_for_server


def test_request_node_certificate_without_key() -> None:
    signer = testing.FakeSigner(AUTHORITY)
    with pytest.raises(ValueError, match="invalid private key for certificate request: data does not contain"):
        module.request_node_certificate(golang.background(), signer.client, b"", "n")


def test_request_node_certificate_error_creating_csr() -> None:
    signer = testing.FakeSigner(AUTHORITY)
    signer.errors["create"] = [apierrors.new_forbidden("certificatesigningrequests", "", "no")]
    with pytest.raises(apierrors.StatusError, match="cannot create certificate signing request: "):
        module.request_node_certificate(
            golang.background(), signer.client, keyutil.make_elliptic_private_key_pem(), "n"
        )


def test_digested_name_depends_on_each_part() -> None:
    key, other = (keyutil.parse_private_key_pem(keyutil.make_elliptic_private_key_pem()) for _ in range(2))
    arguments: list[tuple[keyutil.PrivateKey, str, tuple[str, ...], tuple[str, ...]]] = [
        (key, "cn", ("o",), ("u",)),
        (other, "cn", ("o",), ("u",)),
        (key, "cno", (), ("u",)),
        (key, "c", ("no",), ("u",)),
        (key, "cn", ("ou",), ()),
        (key, "cn", ("o",), ("u", "v")),
    ]
    names = [module.digested_name(*args) for args in arguments]
    assert len(set(names)) == len(names) and all(len(name) == len("node-csr-") + 43 for name in names)
    assert module.digested_name(*arguments[0]) == names[0]
