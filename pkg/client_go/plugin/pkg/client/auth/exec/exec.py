"""Run a program that prints credentials, and cache them until they expire or the server refuses them.

Go: k8s.io/client-go/plugin/pkg/client/auth/exec/exec.go
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import msgspec

from pkg import klog
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.client_go import transport
from pkg.client_go.tools import metrics
from pkg.client_go.tools.clientcmd import api
from pkg.golang import singleflight
from pkg.golang import x509 as golangx509
from pkg.util import exec as utilexec

_EXEC_INFO_ENV = "KUBERNETES_EXEC_INFO"
_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

# TIMEOUT is how long, in seconds, the program may run; MAX_OUTPUT is how many bytes it may write.
# DIVERGES (safer): the kubelet kills a credential program that runs longer or writes more, and gets no credentials.
# Go: k8s.io/client-go/plugin/pkg/client/auth/exec/exec.go, (*Authenticator).refreshCredsLocked: the Go kubelet has no
# bound for either.
# Why: all requests wait for the program, so a program that hangs would cut the node off.
# Test: exec_test.py:test_program_that_does_not_end
TIMEOUT = 60.0
MAX_OUTPUT = 1 << 20
# An error quotes at most this many bytes of the program's standard error.
MAX_STDERR = 2048


class _Status(msgspec.Struct, kw_only=True, rename="camel"):
    expiration_timestamp: metav1.Time | None = None
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecPluginError(ValueError):
    """Signal that the program provided no credentials; the text says why."""


@dataclass(frozen=True, slots=True)
class _Credentials:
    """Hold the program's output."""

    status: _Status
    pair: transport.KeyPair | None


class Authenticator:
    """Provide the credentials of a program.

    All methods are thread-safe. At most one run of the program is in progress. Threads that need new credentials share
    the same run, and also its failure. Meanwhile other threads use the old credentials, unless they have expired.
    """

    def __init__(
        self, config: api.ExecConfig, cluster: dict[str, Any] | None = None, clock: clock_.Clock | None = None
    ) -> None:
        """Prepare an authenticator.

        The program receives `cluster` if its configuration asks for it. Raise ValueError if the configuration is
        unusable.
        """
        if config.api_version not in _API_VERSIONS:
            raise ValueError(f'exec plugin: invalid apiVersion "{config.api_version}"')
        self._config = config
        self._cluster = cluster if config.provide_cluster_info else None
        self._clock = clock or clock_.RealClock()
        self._runs: singleflight.Group[_Credentials] = singleflight.Group()
        # `_credentials` is the program's last credentials; the attribute is only ever replaced as a whole.
        self._credentials: _Credentials | None = None

    def token(self) -> str:
        """Return the bearer token, or "" if the credentials have none; raise ExecPluginError on failure."""
        return self._current().status.token

    def cert(self) -> transport.KeyPair | None:
        """Return the client certificate, or None if the credentials have none; raise ExecPluginError on failure."""
        return self._current().pair

    def refresh(self, refused: str) -> bool:
        """Get new credentials because the server refused this token ("" means the certificate).

        Do nothing if the credentials have been replaced since. Report whether the credentials have changed; raise
        ExecPluginError on failure.
        """
        old = self._credentials
        if old is None or old.status.token != refused:
            return old is not None
        new = self._refresh(old)
        return new.status.token != refused or new.pair != old.pair

    def _current(self) -> _Credentials:
        known = self._credentials
        return self._refresh(known) if known is None or self._is_expired(known.status) else known

    def _refresh(self, old: _Credentials | None) -> _Credentials:
        """Return credentials other than the old ones; raise ExecPluginError on failure."""

        def run() -> _Credentials:
            # Another run may have ended after the caller read the old credentials.
            if self._credentials is not old and self._credentials is not None:
                return self._credentials
            return self._get()

        return self._runs.do("", run)

    def _is_expired(self, status: _Status) -> bool:
        return status.expiration_timestamp is not None and self._clock.now() > status.expiration_timestamp

    def _get(self) -> _Credentials:
        output = self._run()
        try:
            credential = codec.decode_json(output, _ExecCredential)
        except (codec.DecodeError, msgspec.DecodeError, RecursionError) as err:
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
        old = self._credentials
        _tell_certificate(old.pair if old is not None else None, pair, self._clock)
        self._credentials = _Credentials(status, pair)
        return self._credentials

    def _run(self) -> bytes:
        interactive = self._is_interactive()
        command = [self._config.command, *(self._config.args or ())]
        environment = {**os.environ, **{variable.name: variable.value for variable in self._config.env or ()}}
        environment[_EXEC_INFO_ENV] = self._exec_info(interactive)
        stdin = None if interactive else subprocess.DEVNULL
        try:
            done = utilexec.run_program(command, environment, stdin, TIMEOUT, MAX_OUTPUT)
        except FileNotFoundError as err:
            metrics.exec_plugin_call(1, "plugin_not_found_error")
            hint = f": {self._config.install_hint}" if self._config.install_hint else ""
            raise ExecPluginError(f"exec: executable {self._config.command} not found{hint}") from err
        except (OSError, ValueError) as err:
            metrics.exec_plugin_call(1, "client_internal_error")
            raise ExecPluginError(f"exec: {self._config.command}: {getattr(err, 'strerror', None) or err}") from err
        except utilexec.ProgramError as err:
            metrics.exec_plugin_call(1, "plugin_execution_error")
            raise ExecPluginError(f"exec: executable {self._config.command}: {err}{_told(err.stderr)}") from err
        metrics.exec_plugin_call(done.code, "plugin_execution_error" if done.code else "no_error")
        told = _told(done.stderr)
        if done.code != 0:
            raise ExecPluginError(f"exec: executable {self._config.command} failed with exit code {done.code}{told}")
        if told:
            klog.info_s(
                "Credential plugin wrote to standard error",
                command=self._config.command,
                stderr=told.removeprefix(": "),
            )
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


def _tell_certificate(old: transport.KeyPair | None, new: transport.KeyPair | None, clock: clock_.Clock) -> None:
    """Report to the metrics when the certificate expires, and how old the previous one was.

    With several plugins in one process, the metric shows the certificate of the plugin that ran last, not the one that
    expires first. A kubelet has only one plugin.
    """
    from cryptography import x509  # The import is lazy because few kubelets use exec plugins.

    try:
        if old is not None and old != new:
            began = x509.load_pem_x509_certificate(old.cert_pem).not_valid_before_utc
            metrics.client_cert_rotation_age(clock.since(began))
        metrics.client_cert_expiry(x509.load_pem_x509_certificate(new.cert_pem).not_valid_after_utc if new else None)
    except golangx509.decoding_errors():
        pass  # The connection attempt will show whether the certificate is usable.


def _told(stderr: bytes) -> str:
    """Return the program's standard error as the end of a message."""
    said = " ".join(stderr[:MAX_STDERR].decode(errors="replace").split())
    return f": {said}" if said else ""


def _has_terminal() -> bool:
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
