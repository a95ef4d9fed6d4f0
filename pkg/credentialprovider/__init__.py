"""Read registry credentials, and find those that match an image.

Go: pkg/credentialprovider
"""

from pkg.credentialprovider.config import (
    DockerConfig,
    DockerConfigEntry,
    DockerConfigError,
    docker_config_from_bytes,
    docker_config_json_from_bytes,
    read_docker_config_file,
    read_docker_config_json_file,
    read_dockercfg_file,
    set_preferred_dockercfg_path,
)
from pkg.credentialprovider.keyring import (
    AuthConfig,
    BasicDockerKeyring,
    CredentialSource,
    DockerKeyring,
    SecretCoordinates,
    ServiceAccountCoordinates,
    TrackedAuthConfig,
    UnionDockerKeyring,
    parse_schemeless_url,
    urls_match,
)
from pkg.credentialprovider.provider import default_docker_keyring

__all__ = [
    "AuthConfig",
    "BasicDockerKeyring",
    "CredentialSource",
    "DockerConfig",
    "DockerConfigEntry",
    "DockerConfigError",
    "DockerKeyring",
    "SecretCoordinates",
    "ServiceAccountCoordinates",
    "TrackedAuthConfig",
    "UnionDockerKeyring",
    "default_docker_keyring",
    "docker_config_from_bytes",
    "docker_config_json_from_bytes",
    "parse_schemeless_url",
    "read_docker_config_file",
    "read_docker_config_json_file",
    "read_dockercfg_file",
    "set_preferred_dockercfg_path",
    "urls_match",
]
