"""Test credential plugins."""

from __future__ import annotations

import datetime
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from pkg import golang
from pkg.apimachinery.clock import testing as clocktesting
from pkg.client_go import rest
from pkg.client_go.plugin.pkg.client.auth.exec import exec as exec_plugin
from pkg.client_go.rest.exec import get_authenticator
from pkg.client_go.tools.clientcmd import api
from pkg.util import exec as utilexec

V1 = "client.authentication.k8s.io/v1"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def plugin(tmp_path: Path, script: str, **fields: Any) -> api.ExecConfig:
    """Return a config that runs this shell script."""
    file = tmp_path / "plugin"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    given = {"api_version": V1, "interactive_mode": "Never"} | fields
    return api.ExecConfig(command=str(file), **given)


def printing(status: dict[str, Any] | None, version: str = V1) -> str:
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    return f"cat <<EOF\n{json.dumps(credential)}\nEOF"


def test_kept_until_expired(tmp_path: Path) -> None:
    script = 'echo >> "$0.runs"\n' + printing({"token": "t", "expirationTimestamp": "2026-01-01T01:00:00Z"})
    clock = clocktesting.FakeClock(START)
    authenticator = exec_plugin.Authenticator(plugin(tmp_path, script), clock=clock)
    runs = tmp_path / "plugin.runs"
    assert [authenticator.token(), authenticator.token()] == ["t", "t"]
    assert runs.read_text().count("\n") == 1
    clock.step(3601)
    assert authenticator.token() == "t"
    assert runs.read_text().count("\n") == 2


def test_certificate(tmp_path: Path) -> None:
    status = {"clientCertificateData": "cert", "clientKeyData": "key"}
    authenticator = exec_plugin.Authenticator(plugin(tmp_path, printing(status)))
    assert authenticator.cert() == rest.KeyPair(b"cert", b"key")
    assert authenticator.token() == ""


def test_a_certificate_that_only_our_library_cannot_read_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(data: bytes) -> x509.Certificate:
        raise x509.InvalidVersion("7 is not a valid X509 version", 7)

    monkeypatch.setattr(x509, "load_pem_x509_certificate", refuse)
    status = {"clientCertificateData": "cert", "clientKeyData": "key"}
    authenticator = exec_plugin.Authenticator(plugin(tmp_path, printing(status)))
    assert authenticator.cert() == rest.KeyPair(b"cert", b"key")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no ticket >&2; exit 3", "plugin failed with exit code 3: no ticket"),
        ("echo nonsense", "decoding stdout"),
        (printing(None), "didn't return a status field"),
        (printing({"token": "t", "expirationTimestamp": "2026-01-01T01:00:00"}), "expirationTimestamp"),
        (printing({}), "didn't return a token or cert/key pair"),
        (printing({"clientKeyData": "k"}), "only certificate or key, not both"),
        (printing({"token": "t"}, "client.authentication.k8s.io/v1beta1"), "plugin returned version .*v1beta1"),
    ],
)
def test_faults(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(exec_plugin.ExecPluginError, match=message):
        exec_plugin.Authenticator(plugin(tmp_path, script)).token()


def test_missing_program_tells_the_hint() -> None:
    config = api.ExecConfig(command="/no/such", api_version=V1, interactive_mode="Never", install_hint="get it")
    with pytest.raises(exec_plugin.ExecPluginError, match="executable /no/such not found: get it"):
        exec_plugin.Authenticator(config).token()


def test_what_the_program_is_told(tmp_path: Path) -> None:
    script = 'echo "$KUBERNETES_EXEC_INFO" > "$0.info"; echo "$EXTRA$1" >> "$0.info"\n' + printing({"token": "t"})
    provider = plugin(
        tmp_path, script, provide_cluster_info=True, args=["arg"], env=[api.ExecEnvVar(name="EXTRA", value="e")]
    )
    tls = rest.TLSClientConfig(ca_data=b"ca")
    config = rest.Config(host="https://h", tls_client_config=tls, exec_provider=provider)
    authenticator = get_authenticator(config)
    assert authenticator is not None
    authenticator.token()
    info, extra = (tmp_path / "plugin.info").read_text().splitlines()
    assert json.loads(info)["spec"] == {
        "interactive": False,
        "cluster": {"server": "https://h", "certificate-authority-data": "Y2E=", "config": None},
    }
    assert extra == "earg"


def test_other_credentials_win(tmp_path: Path) -> None:
    config = rest.Config(bearer_token="t", exec_provider=plugin(tmp_path, ""))
    assert get_authenticator(config) is None


def test_unknown_version(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='invalid apiVersion "v0"'):
        exec_plugin.Authenticator(plugin(tmp_path, "", api_version="v0"))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo waiting >&2; exec sleep 1000", "context deadline exceeded: waiting"),
        ("sleep 1000 &\necho waiting >&2", "context deadline exceeded: waiting"),
        ("exec cat /dev/zero", "wrote more than 1048576 bytes"),
        (f"printf '%s' '{'[' * 100_000}'", "decoding stdout"),
    ],
)
def test_program_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str) -> None:
    if "waiting" in script:
        monkeypatch.setattr(exec_plugin, "TIMEOUT", 0.5)
    with pytest.raises(exec_plugin.ExecPluginError, match=message):
        exec_plugin.Authenticator(plugin(tmp_path, script)).token()


class CountingLock:
    """Set an event when the lock has been held three times."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times = 0
        self.three_times = threading.Event()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._times += 1
        if self._times == 3:
            self.three_times.set()
        self._lock.release()


def test_those_who_wait_share_one_run_and_its_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[object] = []
    go_on = threading.Event()
    authenticator = exec_plugin.Authenticator(plugin(tmp_path, ""))
    lock = CountingLock()
    authenticator._runs._lock = lock  # type: ignore[assignment]

    def fail(*args: object) -> utilexec.Completed:
        runs.append(args)
        go_on.wait(30)
        return utilexec.Completed(1, b"", b"no ticket")

    monkeypatch.setattr(utilexec, "run_program", fail)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            authenticator.token()
        except exec_plugin.ExecPluginError as err:
            errors.append(err)

    threads = [golang.go(ask, name="asking") for _ in range(3)]
    # By now each thread knows for which run it waits.
    assert lock.three_times.wait(30)
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert (len(errors), len(runs)) == (3, 1)


def test_credentials_that_have_not_expired_serve_while_others_are_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = exec_plugin.Authenticator(plugin(tmp_path, printing({"token": "old"})))
    assert authenticator.token() == "old"
    started, go_on = threading.Event(), threading.Event()
    new = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "new"}}).encode()

    def run(*args: object) -> utilexec.Completed:
        started.set()
        go_on.wait(30)
        return utilexec.Completed(0, new, b"")

    monkeypatch.setattr(utilexec, "run_program", run)
    thread = golang.go(authenticator.refresh, "old", name="refreshing")
    assert started.wait(30)
    assert authenticator.token() == "old"
    go_on.set()
    thread.join(30)
    assert authenticator.token() == "new"
