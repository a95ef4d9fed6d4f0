"""Use the credentials in a pod's imagePullSecrets.

Go: pkg/credentialprovider/secrets
"""

from pkg.credentialprovider.secrets.secrets import make_docker_keyring

__all__ = ["make_docker_keyring"]
