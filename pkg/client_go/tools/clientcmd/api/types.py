"""Define the contents of a kubeconfig, with its lists of named items as dicts by name.

Go: k8s.io/client-go/tools/clientcmd/api/types.go, and for the names on the wire
k8s.io/client-go/tools/clientcmd/api/v1/types.go

Extensions and preferences are neither read nor written, because no component uses them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ExecEnvVar(msgspec.Struct, kw_only=True):
    name: str = ""
    value: str = ""


class ExecConfig(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """Describe a program that provides credentials."""

    command: str = ""
    args: list[str] | None = None
    env: list[ExecEnvVar] | None = None
    api_version: str = ""
    install_hint: str = ""
    """The error shows this hint if the program does not exist."""
    provide_cluster_info: bool = False
    interactive_mode: str = ""
    """The mode, which is Never, IfAvailable or Always, says whether the program gets our standard input."""


class Cluster(msgspec.Struct, kw_only=True, omit_defaults=True, rename="kebab"):
    """Describe a server and how to verify it.

    Data takes precedence over the file for the same setting.
    """

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: bytes = b""
    proxy_url: str = ""
    disable_compression: bool = False


class AuthInfo(msgspec.Struct, kw_only=True, omit_defaults=True, rename="kebab"):
    """Hold the credentials of a user.

    Data takes precedence over the file for the same setting.
    """

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
        """Return a representation without the secrets."""
        return f"AuthInfo(client_certificate={self.client_certificate!r}, token_file={self.token_file!r}, …)"


class Context(msgspec.Struct, kw_only=True, omit_defaults=True, rename="kebab"):
    """Combine a cluster with a user."""

    cluster: str = ""
    auth_info: str = msgspec.field(name="user", default="")
    namespace: str = ""


class Config(msgspec.Struct, kw_only=True):
    """Hold named clusters, users and contexts, and the name of the current context."""

    clusters: dict[str, Cluster] = msgspec.field(default_factory=dict)
    auth_infos: dict[str, AuthInfo] = msgspec.field(default_factory=dict)
    contexts: dict[str, Context] = msgspec.field(default_factory=dict)
    current_context: str = ""
    location: str = ""
    """`location` is the file from which the config was read."""

    def is_empty(self) -> bool:
        return not (self.clusters or self.auth_infos or self.contexts)
