"""Find every error in a kubeconfig before it is used.

Go: k8s.io/client-go/tools/clientcmd/validation.go
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from pkg.apimachinery.util import validation
from pkg.client_go.tools.clientcmd import api
from pkg.golang import net

_INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")


class ConfigurationInvalidError(ValueError):
    """Signal that a kubeconfig is invalid; the text lists all errors in one line."""

    def __init__(self, faults: list[str], location: str = "") -> None:
        where = f' in "{location}"' if location else ""
        joined = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
        super().__init__(f"invalid configuration{where}: {joined}")
        self.faults = faults


def validate(config: api.Config) -> None:
    """Check the whole config; raise ConfigurationInvalidError if anything is invalid."""
    faults: list[str] = []
    if config.is_empty():
        faults.append("no configuration has been provided")
    elif config.current_context and config.current_context not in config.contexts:
        faults.append(f"context was not found for specified context: {config.current_context}")
    for name, context in config.contexts.items():
        faults += _context_faults(name, context, config)
    for name, auth_info in config.auth_infos.items():
        faults += _auth_info_faults(name, auth_info)
    for name, cluster in config.clusters.items():
        faults += _cluster_faults(name, cluster)
    if faults:
        raise ConfigurationInvalidError(faults, config.location)


def confirm_usable(config: api.Config, context_name: str = "") -> None:
    """Check one context ("" means the current one), its user and its cluster.

    Raise ConfigurationInvalidError if anything is invalid.
    """
    context_name = context_name or config.current_context
    if config.is_empty():
        raise ConfigurationInvalidError(["no configuration has been provided"], config.location)
    if not context_name:
        raise ConfigurationInvalidError(["no context chosen: current-context is not set"], config.location)
    context = config.contexts.get(context_name)
    if context is None:
        fault = f"context was not found for specified context: {context_name}"
        raise ConfigurationInvalidError([fault], config.location)
    faults = [*_context_faults(context_name, context, config)]
    faults += _auth_info_faults(context.auth_info, config.auth_infos.get(context.auth_info, api.AuthInfo()))
    if context.cluster in config.clusters:
        faults += _cluster_faults(context.cluster, config.clusters[context.cluster])
    if faults:
        raise ConfigurationInvalidError(faults, config.location)


def _context_faults(name: str, context: api.Context, config: api.Config) -> Iterator[str]:
    if not context.auth_info:
        yield f'user was not specified for context "{name}"'
    elif context.auth_info not in config.auth_infos:
        yield f'user "{context.auth_info}" was not found for context "{name}"'
    if not context.cluster:
        yield f'cluster was not specified for context "{name}"'
    elif context.cluster not in config.clusters:
        yield f'cluster "{context.cluster}" was not found for context "{name}"'
    if context.namespace and validation.is_dns1123_label(context.namespace):
        yield (
            f'namespace "{context.namespace}" for context "{name}" does not conform to the kubernetes DNS_LABEL rules'
        )


def _cluster_faults(name: str, cluster: api.Cluster) -> Iterator[str]:
    if cluster == api.Cluster():
        yield f'cluster has no server defined: "{name}"'
        return
    if not cluster.server:
        yield f'no server found for cluster "{name}"'
    if cluster.proxy_url and (fault := _proxy_fault(cluster.proxy_url)):
        yield f'invalid \'proxy-url\' "{net.redacted(cluster.proxy_url)}" for cluster "{name}": {fault}'
    if cluster.certificate_authority and cluster.certificate_authority_data:
        yield (
            f"certificate-authority-data and certificate-authority are both specified for {name}. "
            "certificate-authority-data will override."
        )
    yield from _file_faults("certificate-authority", cluster.certificate_authority, name)


def _proxy_fault(text: str) -> str:
    try:
        url = urllib.parse.urlsplit(text)
    except ValueError as err:
        return str(err)
    if url.scheme not in ("http", "https", "socks5"):
        return f'unsupported scheme "{url.scheme}", must be http, https, or socks5'
    return ""


def _auth_info_faults(name: str, info: api.AuthInfo) -> Iterator[str]:
    if info.client_certificate or info.client_certificate_data:
        yield from _client_certificate_faults(name, info)
    if info.exec is not None:
        yield from _exec_faults(name, info)
    elif info.auth_provider is not None:
        yield f"auth-provider of user {name} is not supported, use an exec plugin"
    methods = [
        *(["token"] if info.token else []),
        *(["basicAuth"] if info.username or info.password else []),
    ]
    if len(methods) > 1:
        yield (
            f"more than one authentication method found for {name}; found [{' '.join(methods)}], only one is allowed"
        )
    others = info.impersonate_uid or info.impersonate_groups or info.impersonate_user_extra
    if others and not info.impersonate:
        yield f"requesting uid, groups or user-extra for {name} without impersonating a user"


def _client_certificate_faults(name: str, info: api.AuthInfo) -> Iterator[str]:
    if info.client_certificate and info.client_certificate_data:
        yield f"client-cert-data and client-cert are both specified for {name}. client-cert-data will override."
    if info.client_key and info.client_key_data:
        yield f"client-key-data and client-key are both specified for {name}; client-key-data will override"
    if not (info.client_key or info.client_key_data):
        yield (
            f"client-key-data or client-key must be specified for {name} to use the clientCert authentication method."
        )
    yield from _file_faults("client-cert", info.client_certificate, name)
    yield from _file_faults("client-key", info.client_key, name)


def _file_faults(what: str, path: str, name: str) -> Iterator[str]:
    if not path:
        return
    try:
        with Path(path).open("rb"):
            pass
    except OSError as err:
        yield f"unable to read {what} {path} for {name} due to {(err.strerror or str(err)).lower()}"


def _exec_faults(name: str, info: api.AuthInfo) -> Iterator[str]:
    assert info.exec is not None
    if info.auth_provider is not None:
        yield f"authProvider cannot be provided in combination with an exec plugin for {name}"
    if not info.exec.command:
        yield f"command must be specified for {name} to use exec authentication plugin"
    if not info.exec.api_version:
        yield f"apiVersion must be specified for {name} to use exec authentication plugin"
    if any(not variable.name for variable in info.exec.env or ()):
        yield f"env variable name must be specified for {name} to use exec authentication plugin"
    if not info.exec.interactive_mode:
        yield f"interactiveMode must be specified for {name} to use exec authentication plugin"
    elif info.exec.interactive_mode not in _INTERACTIVE_MODES:
        yield f'invalid interactiveMode for {name}: "{info.exec.interactive_mode}"'
