"""Runs a program that prints credentials, and keeps them until they expire or are refused.

Go: k8s.io/client-go/plugin/pkg/client/auth/exec/exec.go
"""

from __future__ import annotations

import base64
import datetime
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from pkg import klog
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.runtime import codec
from pkg.client_go import rest, transport
from pkg.client_go.tools import metrics
from pkg.client_go.tools.clientcmd import api

_EXEC_INFO_ENV = "KUBERNETES_EXEC_INFO"
_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

# How much of what the program says of its failure goes into the error.
_MAX_STDERR = 2048


class _Status(msgspec.Struct, kw_only=True, rename="camel"):
    expiration_timestamp: datetime.datetime | None = None
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecPluginError(ValueError):
    """The program gave no credentials; the text says why."""


class Authenticator:
    """Safe from any thread; the program runs once at a time, and others wait for it."""

    def __init__(
        self, config: api.ExecConfig, cluster: dict[str, Any] | None = None, clock: clock_.Clock | None = None
    ) -> None:
        """`cluster` is told to the program if its config asks for it. Raises ValueError for a config of no use."""
        if config.api_version not in _API_VERSIONS:
            raise ValueError(f'exec plugin: invalid apiVersion "{config.api_version}"')
        self._config = config
        self._cluster = cluster if config.provide_cluster_info else None
        self._clock = clock or clock_.RealClock()
        self._lock = threading.Lock()  # guards the rest
        self._status: _Status | None = None
        self._pair: transport.KeyPair | None = None

    def token(self) -> str:
        """The bearer token, "" if the credentials have none. Raises ExecPluginError."""
        with self._lock:
            return self._current_locked().token

    def cert(self) -> transport.KeyPair | None:
        """The client certificate, None if the credentials have none. Raises ExecPluginError."""
        with self._lock:
            self._current_locked()
            return self._pair

    def refresh(self, refused: str) -> bool:
        """The server refused this token ("": the certificate): get others unless that has happened since.

        Returns whether there are others now. Raises ExecPluginError.
        """
        with self._lock:
            old, pair = self._status, self._pair
            if old is not None and old.token == refused:
                self._refresh_locked()
            assert self._status is not None
            return self._status.token != refused or self._pair != pair

    def _current_locked(self) -> _Status:
        status = self._status
        if status is None or self._is_expired(status):
            status = self._refresh_locked()
        return status

    def _is_expired(self, status: _Status) -> bool:
        return status.expiration_timestamp is not None and self._clock.now() > status.expiration_timestamp

    def _refresh_locked(self) -> _Status:
        output = self._run()
        try:
            credential = codec.decode_json(output, _ExecCredential)
        except (codec.DecodeError, msgspec.DecodeError) as err:
            raise ExecPluginError(f"exec plugin {self._config.command}: decoding stdout: {err}") from err
        if credential.api_version != self._config.api_version:
            raise ExecPluginError(
                f"exec plugin is configured to use API version {self._config.api_version}, "
                f"plugin returned version {credential.api_version}"
            )
        status = credential.status
        if status is None:
            raise ExecPluginError("exec plugin didn't return a status field")
        cert, key = status.client_certificate_data, status.client_key_data
        if not (status.token or cert or key):
            raise ExecPluginError("exec plugin didn't return a token or cert/key pair")
        if bool(cert) != bool(key):
            raise ExecPluginError("exec plugin returned only certificate or key, not both")
        pair = transport.KeyPair(cert.encode(), key.encode()) if cert else None
        _tell_certificate(self._pair, pair, self._clock)
        self._pair = pair
        self._status = status
        return status

    def _run(self) -> bytes:
        interactive = self._is_interactive()
        command = [self._config.command, *(self._config.args or ())]
        environment = {**os.environ, **{variable.name: variable.value for variable in self._config.env or ()}}
        environment[_EXEC_INFO_ENV] = self._exec_info(interactive)
        stdin = None if interactive else subprocess.DEVNULL
        try:
            done = subprocess.run(command, env=environment, stdin=stdin, capture_output=True, check=False)
        except FileNotFoundError as err:
            metrics.exec_plugin_call(1, "plugin_not_found_error")
            hint = f": {self._config.install_hint}" if self._config.install_hint else ""
            raise ExecPluginError(f"exec: executable {self._config.command} not found{hint}") from err
        except OSError as err:
            metrics.exec_plugin_call(1, "client_internal_error")
            raise ExecPluginError(f"exec: {self._config.command}: {err.strerror}") from err
        metrics.exec_plugin_call(done.returncode, "plugin_execution_error" if done.returncode else "no_error")
        said = " ".join(done.stderr[:_MAX_STDERR].decode(errors="replace").split())
        if done.returncode != 0:
            told = f": {said}" if said else ""
            message = f"exec: executable {self._config.command} failed with exit code {done.returncode}{told}"
            raise ExecPluginError(message)
        if said:
            klog.info_s("Credential plugin said", command=self._config.command, stderr=said)
        return done.stdout

    def _exec_info(self, interactive: bool) -> str:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        info = {"kind": "ExecCredential", "apiVersion": self._config.api_version, "spec": spec}
        return msgspec.json.encode(info).decode()

    def _is_interactive(self) -> bool:
        match self._config.interactive_mode:
            case "Never":
                return False
            case "IfAvailable":
                return _has_terminal()
            case "Always":
                if not _has_terminal():
                    raise ExecPluginError(
                        "exec plugin cannot support interactive mode: standard input is not a terminal"
                    )
                return True
        raise ExecPluginError(f'unknown interactiveMode: "{self._config.interactive_mode}"')


def get_authenticator(config: rest.Config) -> Authenticator | None:
    """The authenticator of the config's plugin; None if other credentials in it win.

    Raises ValueError or OSError if the plugin's config, or what it is to be told, cannot be used.
    """
    tls = config.tls_client_config
    others = (config.bearer_token, config.bearer_token_file, config.username, tls.cert_data, tls.cert_file)
    if config.exec_provider is None or any(others):
        return None
    return Authenticator(config.exec_provider, _cluster(config))


def _cluster(config: rest.Config) -> dict[str, Any]:
    """Go: k8s.io/client-go/rest/exec.go"""
    tls = config.tls_client_config
    ca_data = tls.ca_data or (Path(tls.ca_file).read_bytes() if tls.ca_file else b"")
    cluster = {
        "server": config.host,
        "tls-server-name": tls.server_name,
        "insecure-skip-tls-verify": tls.insecure,
        "certificate-authority-data": base64.b64encode(ca_data).decode(),
        "proxy-url": config.proxy_url,
        "disable-compression": config.disable_compression,
    }
    return {key: value for key, value in cluster.items() if value} | {"config": None}


def _tell_certificate(old: transport.KeyPair | None, new: transport.KeyPair | None, clock: clock_.Clock) -> None:
    """Tell the metrics when the certificate ends, and how old the one before it had become.

    DIVERGES: of several plugins in one process the last to be run counts, not the one whose certificate ends first.
    """
    from cryptography import x509  # rarely needed

    try:
        if old is not None and old != new:
            began = x509.load_pem_x509_certificate(old.cert_pem).not_valid_before_utc
            metrics.client_cert_rotation_age(clock.since(began))
        metrics.client_cert_expiry(x509.load_pem_x509_certificate(new.cert_pem).not_valid_after_utc if new else None)
    except ValueError:
        pass  # no certificate: whoever connects with it finds that out


def _has_terminal() -> bool:
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
