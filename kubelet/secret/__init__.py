"""Provide the Secrets to which pods on this node refer.

Go: pkg/kubelet/secret
"""

from kubelet.secret.secret_manager import (
    Manager,
    SecretManager,
    SimpleSecretManager,
    new_caching_secret_manager,
    new_watching_secret_manager,
)

__all__ = [
    "Manager",
    "SecretManager",
    "SimpleSecretManager",
    "new_caching_secret_manager",
    "new_watching_secret_manager",
]
