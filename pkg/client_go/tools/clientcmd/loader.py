"""Read and write kubeconfig files.

Go: k8s.io/client-go/tools/clientcmd/loader.go, k8s.io/client-go/tools/clientcmd/api/v1/conversion.go
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import yaml as utilyaml
from pkg.client_go.tools.clientcmd import api
from pkg.util import atomicfile, filesystem

T = TypeVar("T")


class _NamedCluster(msgspec.Struct):
    name: str = ""
    cluster: api.Cluster = msgspec.field(default_factory=api.Cluster)


class _NamedAuthInfo(msgspec.Struct):
    name: str = ""
    user: api.AuthInfo = msgspec.field(default_factory=api.AuthInfo)


class _NamedContext(msgspec.Struct):
    name: str = ""
    context: api.Context = msgspec.field(default_factory=api.Context)


class _File(msgspec.Struct, rename={"current_context": "current-context", "api_version": "apiVersion"}):
    """Describe a kubeconfig as it is stored in its file."""

    api_version: str = "v1"
    kind: str = "Config"
    clusters: list[_NamedCluster] = msgspec.field(default_factory=list)
    users: list[_NamedAuthInfo] = msgspec.field(default_factory=list)
    contexts: list[_NamedContext] = msgspec.field(default_factory=list)
    current_context: str = ""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def load_from_file(path: str) -> api.Config:
    """Read a kubeconfig without resolving its relative paths.

    Raise OSError or ValueError that names the file.
    """
    try:
        config = load(Path(path).read_bytes())
    except ValueError as err:
        raise ValueError(f'error loading config file "{path}": {err}') from err
    config.location = path
    return config


def load(data: bytes) -> api.Config:
    """Parse YAML or JSON; empty data is an empty config.

    Raise ValueError that names the line or the field.
    """
    document = utilyaml.to_builtins(data)
    if document is None:
        return api.Config()
    if not isinstance(document, dict):
        raise ValueError(f"expected a Config, got a {type(document).__name__}")
    file = codec.convert(document, _File)
    if file.kind != "Config" or file.api_version != "v1":
        raise ValueError(f'no kind "{file.kind}" is registered for version "{file.api_version}", expected v1, Config')
    for auth in file.users:
        _default_exec(auth.user.exec)
    return api.Config(
        clusters={item.name: item.cluster for item in _unique(file.clusters, "cluster")},
        auth_infos={item.name: item.user for item in _unique(file.users, "user")},
        contexts={item.name: item.context for item in _unique(file.contexts, "context")},
        current_context=file.current_context,
    )


def resolve_local_paths(config: api.Config) -> None:
    """Make relative paths absolute, starting at the directory of the config's file."""
    base = Path(config.location).absolute().parent

    def resolve(path: str) -> str:
        return str(base / path) if path else ""

    for cluster in config.clusters.values():
        cluster.certificate_authority = resolve(cluster.certificate_authority)
    for auth in config.auth_infos.values():
        auth.client_certificate = resolve(auth.client_certificate)
        auth.client_key = resolve(auth.client_key)
        auth.token_file = resolve(auth.token_file)
        if auth.exec is not None and "/" in auth.exec.command:
            auth.exec.command = resolve(auth.exec.command)


def write(config: api.Config) -> bytes:
    """Return the kubeconfig as YAML, with its items sorted by name."""
    file = _File(
        clusters=[_NamedCluster(name, item) for name, item in sorted(config.clusters.items())],
        users=[_NamedAuthInfo(name, item) for name, item in sorted(config.auth_infos.items())],
        contexts=[_NamedContext(name, item) for name, item in sorted(config.contexts.items())],
        current_context=config.current_context,
    )
    return utilyaml.dump(codec.to_builtins(file)).encode()


def write_to_file(config: api.Config, path: str) -> None:
    """Replace the file in one step, readable by its owner only; raise OSError on failure."""
    target = Path(path)
    filesystem.mkdir_all(target.parent, 0o755)
    atomicfile.write(target, write(config))


def _default_exec(config: api.ExecConfig | None) -> None:
    """Set the default interactive mode of old API versions.

    Go: k8s.io/client-go/tools/clientcmd/api/v1/defaults.go
    """
    if config is not None and not config.interactive_mode and config.api_version.endswith(("/v1beta1", "/v1alpha1")):
        config.interactive_mode = "IfAvailable"


_NamedT = TypeVar("_NamedT", bound=_Named)


def _unique(items: Iterable[_NamedT], what: str) -> Iterable[_NamedT]:
    """Return the items without duplicates; the first of several with one name counts.

    Raise ValueError if an item has no name.
    """
    seen: dict[str, _NamedT] = {}
    for item in items:
        if not item.name:
            raise ValueError(f"a {what} has no name")
        seen.setdefault(item.name, item)
    return seen.values()
