"""Find the credentials that match an image, those with the most specific registry path first.

Go: pkg/credentialprovider/keyring.go
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import SplitResult

from pkg import klog
from pkg.credentialprovider.config import DockerConfig
from pkg.golang import net

_DEFAULT_REGISTRY_HOST = "index.docker.io"
_SCHEME = re.compile("^https?://")


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Hold the credentials that are sent to a registry."""

    username: str = ""
    password: str = ""
    auth: str = ""
    email: str = ""
    server_address: str = ""
    identity_token: str = ""
    registry_token: str = ""


@dataclass(frozen=True, slots=True)
class SecretCoordinates:
    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ServiceAccountCoordinates:
    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CredentialSource:
    """Identify the API object that contained the credentials."""

    secret: SecretCoordinates | None = None
    service_account: ServiceAccountCoordinates | None = None


@dataclass(frozen=True, slots=True)
class TrackedAuthConfig:
    """Hold credentials with their source; without a source, every pod of the node may use them."""

    auth_config: AuthConfig
    source: CredentialSource | None = None

    @property
    def auth_config_hash(self) -> str:
        """Return the SHA-256 of the credentials as JSON, which the pull records contain."""
        values = {
            "username": self.auth_config.username,
            "password": self.auth_config.password,
            "auth": self.auth_config.auth,
            "email": self.auth_config.email,
            "serveraddress": self.auth_config.server_address,
            "identitytoken": self.auth_config.identity_token,
            "registrytoken": self.auth_config.registry_token,
        }
        present = {key: value for key, value in values.items() if value}
        text = json.dumps(present, separators=(",", ":"), ensure_ascii=False)
        for character, escaped in (("&", "\\u0026"), ("<", "\\u003c"), (">", "\\u003e")):
            text = text.replace(character, escaped)
        return hashlib.sha256(text.encode()).hexdigest()


class DockerKeyring(Protocol):
    """Define how to find credentials by image repository.

    More than one may match, so that credentials can be rotated.
    """

    def lookup(self, image: str) -> list[TrackedAuthConfig]: ...


@dataclass(slots=True)
class BasicDockerKeyring:
    """Hold credentials by registry host and path."""

    _index: list[str] = field(default_factory=list)
    _creds: dict[str, list[TrackedAuthConfig]] = field(default_factory=dict)

    def add(self, src: CredentialSource | None, cfg: DockerConfig) -> None:
        """Add all entries of one file or secret."""
        for location, entry in cfg.items():
            key = _registry_key(location)
            if key is None:
                klog.error_s(None, "Entry in dockercfg invalid, ignoring", entry=location)
                continue
            creds = AuthConfig(username=entry.username, password=entry.password, email=entry.email)
            self._creds.setdefault(key, []).append(TrackedAuthConfig(creds, src))
        # The reverse order places quay.io/coreos before quay.io.
        self._index = sorted(self._creds, reverse=True)

    def lookup(self, image: str) -> list[TrackedAuthConfig]:
        """Return all credentials whose registry matches, the most specific first."""
        found = [creds for key in self._index if urls_match(key, image) for creds in self._creds[key]]
        if not found and _is_default_registry_match(image):
            found = list(self._creds.get(_DEFAULT_REGISTRY_HOST, []))
        return found


def _registry_key(location: str) -> str | None:
    """Return the key for a registry, or None if the text is not a registry."""
    schemeless = _SCHEME.sub("", location)
    try:
        parsed = parse_schemeless_url(schemeless)
    except ValueError:
        return None
    host = parsed.netloc.rpartition("@")[2]
    path = parsed.path
    if path.startswith(("/v1/", "/v2/")):
        path = path[3:]
    return host + path if path not in ("", "/") else host


def _is_default_registry_match(image: str) -> bool:
    """Report whether the image's name alone implies Docker's own registry."""
    first, slash, _ = image.partition("/")
    if not first:
        return False
    if not slash or first in ("docker.io", "index.docker.io"):
        return True
    return not any(c in first for c in ".:")


def urls_match(glob: str, target: str) -> bool:
    """Report whether a target without a scheme matches a glob such as *.docker.io.

    The parts of the host are matched one by one. An invalid URL matches nothing.
    """
    try:
        glob_parts, glob_port, glob_path = _split_url(glob)
        target_parts, target_port, target_path = _split_url(target)
    except ValueError:
        return False
    if glob_port != target_port or len(glob_parts) != len(target_parts):
        return False
    if not target_path.startswith(glob_path):
        return False
    return all(_part_matches(part, pattern) for pattern, part in zip(glob_parts, target_parts, strict=True))


def _part_matches(part: str, pattern: str) -> bool:
    """Report whether the text matches a pattern in which a star stands for any text.

    fnmatch would compile a regular expression that is thirty times as large, and cache thousands of them. A secret may
    contain a mebibyte.
    """
    first, *others = pattern.split("*")
    if not others:
        return part == pattern
    if not part.startswith(first):
        return False
    position = len(first)
    for piece in others[:-1]:
        position = part.find(piece, position)
        if position < 0:
            return False
        position += len(piece)
    return part.endswith(others[-1], position)


_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BAD_HOST = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}]")


def parse_schemeless_url(schemeless: str) -> SplitResult:
    """Parse a registry with an optional port and path; raise ValueError where Go's net/url fails."""
    parsed = net.split("https://" + schemeless)
    if escape := _BAD_ESCAPE.search(schemeless):
        raise ValueError(f'invalid URL escape "{schemeless[escape.start() : escape.start() + 3]}"')
    if _BAD_HOST.search(parsed.netloc):
        raise ValueError(f'invalid character in host name "{parsed.netloc}"')
    _ = parsed.port  # Reading the port raises ValueError if it is not a number.
    return parsed


def _split_url(schemeless: str) -> tuple[list[str], str, str]:
    parsed = net.split("https://" + schemeless)
    host, colon, port = parsed.netloc.rpartition(":")
    if not colon or "]" in port:
        host, port = parsed.netloc, ""
    return host.split("."), port, parsed.path


@dataclass(frozen=True, slots=True)
class UnionDockerKeyring:
    """Search several keyrings in order."""

    keyrings: Sequence[DockerKeyring]

    def lookup(self, image: str) -> list[TrackedAuthConfig]:
        return [creds for keyring in self.keyrings for creds in keyring.lookup(image)]
