"""Test kubeconfigs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pkg.client_go.tools import clientcmd
from pkg.client_go.tools.clientcmd import api

GOOD = """
apiVersion: v1
kind: Config
current-context: c
unknown: 1
clusters:
- name: k
  cluster: {server: "https://h:6443", certificate-authority: ca.crt, tls-server-name: s, extensions: []}
users:
- name: u
  user: {client-certificate: pki/c.pem, client-key: pki/c.pem, tokenFile: token}
contexts:
- name: c
  context: {cluster: k, user: u}
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    (tmp_path / "pki").mkdir()
    for name in ("ca.crt", "pki/c.pem", "token"):
        (tmp_path / name).write_text("x")
    file = tmp_path / "kubeconfig"
    file.write_text(GOOD)
    return file


def test_paths_are_resolved_against_the_file(kubeconfig: Path) -> None:
    config = clientcmd.build_config_from_flags("", str(kubeconfig))
    base = kubeconfig.parent
    assert config.host == "https://h:6443"
    assert config.tls_client_config.ca_file == str(base / "ca.crt")
    assert config.tls_client_config.cert_file == config.tls_client_config.key_file == str(base / "pki/c.pem")
    assert config.tls_client_config.server_name == "s"
    assert config.bearer_token_file == str(base / "token")


def test_master_url_wins(kubeconfig: Path) -> None:
    assert clientcmd.build_config_from_flags("http://other", str(kubeconfig)).host == "http://other"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("current-context: c", "current-context: d", "context was not found for specified context: d"),
        ("current-context: c", "", "no context chosen"),
        ("cluster: k, user", "cluster: z, user", 'cluster "z" was not found for context "c"'),
        ("user: u", "user: z", 'user "z" was not found for context "c"'),
        ("ca.crt", "gone.crt", "unable to read certificate-authority .*/gone.crt for k due to no such file"),
        ("client-key: pki/c.pem", "client-key: gone", "unable to read client-key .*/gone for u due to no such file"),
        ("client-key: pki/c.pem", "username: x", "client-key-data or client-key must be specified for u"),
        ("tokenFile: token", "token: t, username: name", r"found \[token basicAuth\], only one is allowed"),
        ('server: "https://h:6443", ', "", 'no server found for cluster "k"'),
        ("tokenFile: token", "exec: {command: x, apiVersion: v}", "interactiveMode must be specified for u"),
        ("tls-server-name: s", "proxy-url: 'ftp://p'", 'invalid \'proxy-url\' "ftp://p" for cluster "k"'),
        ("tls-server-name: s", "proxy-url: 'ftp://u:geheim@p'", 'invalid \'proxy-url\' "ftp://p" for cluster "k"'),
        ("tokenFile: token", "as-groups: [g]", "without impersonating a user"),
        ("server: ", "server: [", "yaml: line 8"),
        ("kind: Config", "kind: Pod", 'no kind "Pod" is registered for version "v1"'),
        ("client-key: pki/c.pem", "client-key: 5", r"\$.users\[0\].user.client-key"),
    ],
)
def test_faults(kubeconfig: Path, old: str, new: str, message: str) -> None:
    kubeconfig.write_text(GOOD.replace(old, new))
    with pytest.raises(ValueError, match=message) as caught:
        clientcmd.build_config_from_flags("", str(kubeconfig))
    assert str(kubeconfig) in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        clientcmd.build_config_from_flags("", str(tmp_path / "nowhere"))


def test_written_file_reads_the_same_and_is_private(tmp_path: Path) -> None:
    config = api.Config(
        clusters={"k": api.Cluster(server="https://h", certificate_authority_data=b"ca")},
        auth_infos={"u": api.AuthInfo(client_certificate="/p", client_key="/p")},
        contexts={"c": api.Context(cluster="k", auth_info="u", namespace="default")},
        current_context="c",
    )
    file = tmp_path / "below" / "kubeconfig"
    clientcmd.write_to_file(config, str(file))
    config.location = str(file)
    assert clientcmd.load_from_file(str(file)) == config
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["kubeconfig"]


@pytest.mark.parametrize(
    "token",
    ["2024-01-01", "2024-01-01T00:00:00Z", "12:30:45", "190:20:30.15", "1.2.3", "nan", "=", "1e999", "9" * 5000],
)
def test_token_that_only_looks_like_something_else(token: str) -> None:
    """A token that looks like another type is read as text.

    YAML 1.1 reads most of these as dates and numbers, and Go's reader reads them all as text.
    """
    config = clientcmd.load(f"apiVersion: v1\nkind: Config\nusers: [{{name: u, user: {{token: {token}}}}}]".encode())
    assert config.auth_infos["u"].token == token


@pytest.mark.parametrize("token", ["yes", "0o17", "1_000", "1e3", "0x1f", "off"])
def test_token_that_is_no_text(token: str) -> None:
    text = f"apiVersion: v1\nkind: Config\nusers: [{{name: u, user: {{token: {token}}}}}]"
    with pytest.raises(ValueError, match=r"Expected `str`, got `(bool|int)` - at `\$.users\[0\].user.token`"):
        clientcmd.load(text.encode())


def test_base64_in_a_block() -> None:
    text = """
apiVersion: v1
kind: Config
clusters:
- name: k
  cluster:
    certificate-authority-data: |
      aGVsbG8s
      IHdvcmxk
"""
    assert clientcmd.load(text.encode()).clusters["k"].certificate_authority_data == b"hello, world"


@pytest.mark.parametrize("token", ["yes", "0o17", "1_000", "1e3", "2024-01-01", "12:30:45", "~", "", "y", ".inf"])
def test_written_text_is_read_as_text(token: str) -> None:
    config = api.Config(auth_infos={token or "u": api.AuthInfo(token=token)})
    assert clientcmd.load(clientcmd.write(config)).auth_infos == config.auth_infos


def test_validate_finds_all() -> None:
    config = api.Config(contexts={"c": api.Context()}, clusters={"k": api.Cluster()})
    with pytest.raises(clientcmd.ConfigurationInvalidError) as caught:
        clientcmd.validate(config)
    assert len(caught.value.faults) == 3


def test_beta_plugins_are_interactive_where_possible() -> None:
    exec_config = "{command: x, apiVersion: client.authentication.k8s.io/v1beta1}"
    config = clientcmd.load(f"users: [{{name: u, user: {{exec: {exec_config}}}}}]\nkind: Config\n".encode())
    provider = config.auth_infos["u"].exec
    assert provider is not None and provider.interactive_mode == "IfAvailable"
