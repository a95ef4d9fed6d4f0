"""Provide Secrets that tests set.

Go: pkg/kubelet/secret/fake_manager.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubelet import secret
from kubelet.util.manager.testing import FakeObjectManager
from pkg.api.core import v1


class FakeSecretManager(FakeObjectManager[v1.Secret]):
    """Provide the Secrets that are passed to the constructor."""

    def __init__(self, *secrets: v1.Secret) -> None:
        super().__init__("secret", *secrets)

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        return self.get_object(namespace, name)


if TYPE_CHECKING:
    _: secret.Manager = FakeSecretManager()
