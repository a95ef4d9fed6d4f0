"""Read the node's own credentials from Docker's files, and cache them for five minutes.

Go: pkg/credentialprovider/provider.go, keyring.go (providersDockerKeyring)
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from pkg import klog
from pkg.apimachinery import clock
from pkg.credentialprovider.config import DockerConfig, read_docker_config_file
from pkg.credentialprovider.keyring import BasicDockerKeyring, DockerKeyring, TrackedAuthConfig

_LIFETIME = 5 * 60.0


@dataclass(slots=True)
class CachingDockerConfigProvider:
    """Cache the credentials of Docker's files.

    All methods are thread-safe.

    Go: CachingDockerConfigProvider, around a defaultDockerConfigProvider
    """

    clock: clock.Clock = field(default_factory=clock.RealClock)
    lifetime: float = _LIFETIME
    # The lock guards the two fields below.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _config: DockerConfig = field(default_factory=dict)
    _expiration: float | None = None

    def provide(self) -> DockerConfig:
        """Return the node's registry credentials, which may be empty."""
        with self._lock:
            now = self.clock.monotonic()
            if self._expiration is None or now >= self._expiration:
                self._config = _read()
                self._expiration = now + self.lifetime
            return self._config


def _read() -> DockerConfig:
    try:
        return read_docker_config_file()
    except FileNotFoundError as err:
        klog.v(2).info_s("Docker config file not found", err=err)
        return {}


@dataclass(slots=True)
class _ProvidersDockerKeyring:
    provider: CachingDockerConfigProvider

    def lookup(self, image: str) -> list[TrackedAuthConfig]:
        keyring = BasicDockerKeyring()
        keyring.add(None, self.provider.provide())
        return keyring.lookup(image)


def default_docker_keyring() -> DockerKeyring:
    """Return a keyring with the node's own credentials.

    Go: NewDefaultDockerKeyring
    """
    return _ProvidersDockerKeyring(CachingDockerConfigProvider())
