"""What a kubeconfig holds, its lists of named things as dicts by name.

Go: k8s.io/client-go/tools/clientcmd/api/types.go, and for the names on the wire
k8s.io/client-go/tools/clientcmd/api/v1/types.go

Extensions and preferences, which no component uses, are neither read nor written.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ExecEnvVar(msgspec.Struct, kw_only=True):
    name: str = ""
    value: str = ""


class ExecConfig(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """A program that gets credentials."""

    command: str = ""
    args: list[str] | None = None
    env: list[ExecEnvVar] | None = None
    api_version: str = ""
    install_hint: str = ""
    """Told when the program is not there."""
    provide_cluster_info: bool = False
    interactive_mode: str = ""
    """Never, IfAvailable or Always: whether it is given our standard input."""


class Cluster(msgspec.Struct, kw_only=True, omit_defaults=True, rename="kebab"):
    """A server and what it must prove. Data wins over the file of the same thing."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: bytes = b""
    proxy_url: str = ""
    disable_compression: bool = False


class AuthInfo(msgspec.Struct, kw_only=True, omit_defaults=True, rename="kebab"):
    """Who we are. Data wins over the file of the same thing."""

    client_certificate: str = ""
    client_certificate_data: bytes = b""
    client_key: str = ""
    client_key_data: bytes = b""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    impersonate: str = msgspec.field(name="as", default="")
    impersonate_uid: str = msgspec.field(name="as-uid", default="")
    impersonate_groups: list[str] = msgspec.field(name="as-groups", default_factory=list)
    impersonate_user_extra: dict[str, list[str]] = msgspec.field(name="as-user-extra", default_factory=dict)
    username: str = ""
    password: str = ""
    auth_provider: Any = None
    exec: ExecConfig | None = None

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"AuthInfo(client_certificate={self.client_certificate!r}, token_file={self.token_file!r}, …)"


class Context(msgspec.Struct, kw_only=True, omit_defaults=True, rename="kebab"):
    """A user of a cluster."""

    cluster: str = ""
    auth_info: str = msgspec.field(name="user", default="")
    namespace: str = ""


class Config(msgspec.Struct, kw_only=True):
    """Named clusters, users and contexts, and which context is meant."""

    clusters: dict[str, Cluster] = msgspec.field(default_factory=dict)
    auth_infos: dict[str, AuthInfo] = msgspec.field(default_factory=dict)
    contexts: dict[str, Context] = msgspec.field(default_factory=dict)
    current_context: str = ""
    location: str = ""
    """The file that it was read from."""

    def is_empty(self) -> bool:
        return not (self.clusters or self.auth_infos or self.contexts)
