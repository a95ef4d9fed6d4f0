"""Run a credential provider plugin, with the request on its stdin and the response on its stdout.

Go: pkg/credentialprovider/plugin/plugin.go (execPlugin), k8s.io/kubelet/pkg/apis/credentialprovider/v1/types.go
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kubelet.apis import config as kubeletconfig
from pkg import klog
from pkg.apimachinery.runtime import codec
from pkg.component_base.cli.flag import parse_duration
from pkg.credentialprovider.plugin import metrics
from pkg.util import exec as utilexec

# `TIMEOUT` is the time limit, in seconds. A plugin may retry failed requests, but must end at some point.
TIMEOUT = 60.0
# `MAX_OUTPUT` is the maximum size of a plugin's output in bytes.
# DIVERGES (safer): the kubelet kills a credential provider plugin that prints more, and ignores its response.
# Go: pkg/credentialprovider/plugin/plugin.go, (*execPlugin).runPlugin: the Go kubelet has no bound.
# Why: a plugin that prints endlessly would exhaust the memory.
# Test: plugin_test.py:test_failing_plugin
MAX_OUTPUT = 1 << 20
# Errors quote at most this many bytes of the plugin's standard error.
MAX_STDERR = 4 << 10

_RESPONSE_KIND = "CredentialProviderResponse"


class PluginError(Exception):
    """Signal that a plugin did not run, or sent an invalid response."""


class CredentialProviderRequest(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """Describe a plugin's input, which is the same in all versions."""

    image: str
    service_account_token: str = ""
    service_account_annotations: Mapping[str, str] = {}


class AuthConfig(msgspec.Struct, forbid_unknown_fields=True):
    """Hold the credentials for one registry."""

    username: str = ""
    password: str = ""


class CredentialProviderResponse(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Describe a plugin's output.

    cache_duration is in seconds; None means the configured default.
    """

    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""
    cache_key_type: str = msgspec.field(default="", name="cacheKeyType")
    cache_duration_text: str | None = msgspec.field(default=None, name="cacheDuration")
    auth: dict[str, AuthConfig] = {}

    @property
    def cache_duration(self) -> float | None:
        return None if self.cache_duration_text is None else parse_duration(self.cache_duration_text)


class _TypeMeta(msgspec.Struct):
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """Run one program.

    All methods are thread-safe. The timeout is in seconds.
    """

    name: str
    api_version: str
    args: Sequence[str]
    env_vars: Sequence[kubeletconfig.ExecEnvVar]
    plugin_bin_dir: str
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    timeout: float = TIMEOUT

    def exec_plugin(
        self, image: str, service_account_token: str, service_account_annotations: Mapping[str, str]
    ) -> CredentialProviderResponse:
        """Run the plugin and return its response; raise PluginError on failure."""
        klog.v(5).info_s("Getting image credentials from external exec plugin", pluginName=self.name, image=image)
        request = CredentialProviderRequest(
            image=image,
            service_account_token=service_account_token,
            service_account_annotations=service_account_annotations,
        )
        return self.decode_response(self._run_plugin(self.encode_request(request), image))

    def encode_request(self, request: CredentialProviderRequest) -> bytes:
        """Return the request as JSON in the plugin's version."""
        head = {"kind": "CredentialProviderRequest", "apiVersion": self.api_version}
        return msgspec.json.encode(head | msgspec.to_builtins(request)) + b"\n"

    def decode_response(self, data: bytes) -> CredentialProviderResponse:
        """Parse the response; raise PluginError on failure.

        The error's text never quotes the response, because that may contain a password.
        """
        try:
            head = codec.decode_json(data, _TypeMeta)
        except (codec.DecodeError, RecursionError):
            raise PluginError("error reading GVK from response: it is not a JSON object") from None
        if head.api_version != self.api_version:
            raise PluginError(
                "apiVersion from credential plugin response did not match expected"
                f" apiVersion:{self.api_version}, actual apiVersion:{head.api_version}"
            )
        try:
            response = codec.decode_json(data, CredentialProviderResponse)
            _ = response.cache_duration
        except (ValueError, RecursionError):
            raise PluginError("error decoding credential provider plugin response from stdout") from None
        if response.kind != _RESPONSE_KIND:
            raise PluginError(f'failed to decode {_RESPONSE_KIND}, unexpected Kind: "{response.kind}"')
        return response

    def _run_plugin(self, request: bytes, image: str) -> bytes:
        start = time.monotonic()
        try:
            return self._run(request)
        except (OSError, ValueError, PluginError) as err:  # A NUL character in an argument causes a ValueError.
            metrics.KUBELET_CREDENTIAL_PROVIDER_PLUGIN_ERRORS.labels(self.name).inc()
            raise PluginError(f"error execing credential provider plugin {self.name} for image {image}: {err}") from err
        finally:
            elapsed = time.monotonic() - start
            metrics.KUBELET_CREDENTIAL_PROVIDER_PLUGIN_DURATION.labels(self.name).observe(elapsed)

    def _run(self, request: bytes) -> bytes:
        # A file on disk is not used because the request may contain a token. A pipe is not used because a plugin may
        # close it before everything is written.
        with os.fdopen(os.memfd_create("request"), "w+b") as stdin:
            stdin.write(request)
            stdin.seek(0)
            command = [os.path.join(self.plugin_bin_dir, self.name), *self.args]
            environment = merge_env_vars(self.environ, self.env_vars)
            try:
                code, stdout, stderr = utilexec.run_program(command, environment, stdin, self.timeout, MAX_OUTPUT)
            except utilexec.ProgramError as err:
                raise PluginError(_with_stderr(str(err), err.stderr)) from None
        if code != 0:
            how = f"signal: {signal.strsignal(-code) or -code}".lower() if code < 0 else f"exit status {code}"
            raise PluginError(_with_stderr(how, stderr))
        return stdout


def merge_env_vars(
    sys_env_vars: Mapping[str, str], cred_provider_vars: Sequence[kubeletconfig.ExecEnvVar]
) -> dict[str, str]:
    """Return the kubelet's environment, overridden by the plugin's own variables."""
    return {**sys_env_vars, **{variable.name: variable.value for variable in cred_provider_vars}}


def _with_stderr(how: str, stderr: bytes) -> str:
    """Return how the plugin ended, followed by its standard error."""
    return f"{how}: {stderr[:MAX_STDERR].decode(errors='replace')}"
