"""Build a keyring from the secrets that a pod names.

Go: pkg/credentialprovider/secrets/secrets.go
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pkg import credentialprovider
from pkg.api.core import v1

_PARSERS: dict[str, tuple[str, Callable[[bytes], credentialprovider.DockerConfig]]] = {
    v1.SECRET_TYPE_DOCKER_CONFIG_JSON: (
        v1.DOCKER_CONFIG_JSON_KEY,
        credentialprovider.docker_config_json_from_bytes,
    ),
    v1.SECRET_TYPE_DOCKERCFG: (v1.DOCKER_CONFIG_KEY, credentialprovider.docker_config_from_bytes),
}


def make_docker_keyring(
    passed_secrets: Sequence[v1.Secret], default_keyring: credentialprovider.DockerKeyring
) -> credentialprovider.DockerKeyring:
    """Return a keyring with the secrets' credentials before the default ones.

    Raise credentialprovider.DockerConfigError if a secret cannot be parsed.
    """
    keyring = credentialprovider.BasicDockerKeyring()
    found = False
    for secret in passed_secrets:
        key, parse = _PARSERS.get(secret.type, ("", None))
        data = secret.data.get(key)
        if parse is None or not data:
            continue
        meta = secret.metadata
        coordinates = credentialprovider.SecretCoordinates(meta.uid, meta.namespace, meta.name)
        try:
            config = parse(data)
        except credentialprovider.DockerConfigError as err:
            raise credentialprovider.DockerConfigError(
                f'image pull secret "{meta.namespace}/{meta.name}", key "{key}": {err}'
            ) from err
        keyring.add(credentialprovider.CredentialSource(secret=coordinates), config)
        found = True
    return credentialprovider.UnionDockerKeyring([keyring, default_keyring]) if found else default_keyring
