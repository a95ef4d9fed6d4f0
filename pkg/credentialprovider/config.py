"""Read Docker's credential files: config.json and the older .dockercfg.

Go: pkg/credentialprovider/config.go
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pkg import klog
from pkg.apimachinery.runtime import codec

_CONFIG_FILE_NAME = ".dockercfg"
_CONFIG_JSON_FILE_NAME = "config.json"

_preferred_path = ""


@dataclass(frozen=True, slots=True)
class DockerConfigEntry:
    """Hold the credentials for one registry."""

    username: str = ""
    password: str = ""
    email: str = ""


# A DockerConfig maps a registry (a host, optionally with a path) to its credentials.
DockerConfig = dict[str, DockerConfigEntry]


class DockerConfigError(ValueError):
    """Signal that a credential file cannot be parsed."""


class _Entry(msgspec.Struct):
    """Describe an entry; null means absent, here and below."""

    username: str | None = None
    password: str | None = None
    email: str | None = None
    auth: str | None = None


_Entries = dict[str, _Entry | None]


class _ConfigJSON(msgspec.Struct):
    auths: _Entries | None = None


def set_preferred_dockercfg_path(path: str) -> None:
    """Set the directory that is searched first, which is the kubelet's root directory."""
    global _preferred_path
    _preferred_path = path


def default_dockercfg_paths() -> list[str]:
    """List the directories in which a .dockercfg is searched, in order."""
    return [_preferred_path, "", os.path.expanduser("~"), "/"]


def default_docker_config_json_paths() -> list[str]:
    """List the directories in which a config.json is searched, in order."""
    return [_preferred_path, "", os.path.expanduser("~/.docker"), "/.docker"]


def read_dockercfg_file(search_paths: Iterable[str] = ()) -> DockerConfig:
    """Return the first readable .dockercfg; raise FileNotFoundError if there is none."""
    return _read_first(list(search_paths) or default_dockercfg_paths(), _CONFIG_FILE_NAME, docker_config_from_bytes)


def read_docker_config_json_file(search_paths: Iterable[str] = ()) -> DockerConfig:
    """Return the first readable config.json; raise FileNotFoundError if there is none."""
    paths = list(search_paths) or default_docker_config_json_paths()
    return _read_first(paths, _CONFIG_JSON_FILE_NAME, docker_config_json_from_bytes)


def read_docker_config_file() -> DockerConfig:
    """Return the config.json or else the .dockercfg in the default directories; raise FileNotFoundError on failure."""
    try:
        return read_docker_config_json_file()
    except FileNotFoundError:
        return read_dockercfg_file()


def _read_first(paths: list[str], name: str, parse: Callable[[bytes], DockerConfig]) -> DockerConfig:
    for directory in paths:
        path = Path(directory, name).absolute()
        klog.v(4).info_s("Looking for registry credentials", path=str(path))
        try:
            return parse(path.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, DockerConfigError) as err:
            klog.v(4).info_s("Could not read registry credentials", path=str(path), err=err)
    raise FileNotFoundError(f"couldn't find valid {name} after checking in {paths}")


def docker_config_from_bytes(contents: bytes) -> DockerConfig:
    """Parse a .dockercfg; raise DockerConfigError, whose text never quotes the contents."""
    return _convert(_decode(contents, _Entries | None))


def docker_config_json_from_bytes(contents: bytes) -> DockerConfig:
    """Parse a config.json; raise DockerConfigError, whose text never quotes the contents."""
    config: _ConfigJSON | None = _decode(contents, _ConfigJSON | None)
    return _convert(config.auths if config is not None else None)


def _decode(contents: bytes, kind: Any) -> Any:
    try:
        return codec.json_decoder(kind).decode(contents)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # The parser's own message could quote a password.
        raise DockerConfigError("error occurred while trying to unmarshal json") from None


def _convert(entries: _Entries | None) -> DockerConfig:
    return {location: _docker_config_entry(entry or _Entry()) for location, entry in (entries or {}).items()}


def _docker_config_entry(entry: _Entry) -> DockerConfigEntry:
    username, password = entry.username or "", entry.password or ""
    if entry.auth:
        username, password = _decode_docker_config_field_auth(entry.auth)
    return DockerConfigEntry(username, password, entry.email or "")


def _decode_docker_config_field_auth(field: str) -> tuple[str, str]:
    """Decode the auth field, which is base64 of "username:password".

    Padding is optional, and line breaks are allowed.
    """
    field = "".join(field.split())
    try:
        decoded = base64.b64decode(field + "=" * (-len(field) % 4), validate=True).decode()
    except ValueError:  # The field is not base64, or not even ASCII, or its contents are not UTF-8.
        raise DockerConfigError("unable to decode auth field, must be base64") from None
    username, colon, password = decoded.partition(":")
    if not colon:
        raise DockerConfigError("unable to parse auth field, must be formatted as base64(username:password)")
    return username, password
