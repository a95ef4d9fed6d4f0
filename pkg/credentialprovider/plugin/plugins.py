"""Combine a kubelet's plugins into a keyring that uses them on behalf of one pod.

Go: pkg/credentialprovider/plugin/plugins.go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pkg import credentialprovider, klog
from pkg.apimachinery import types
from pkg.credentialprovider.plugin.plugin import PerPodPluginProvider, PluginProvider


class DockerConfigProviderWithCoordinates(Protocol):
    def provide_with_coordinates(
        self, image: str
    ) -> tuple[credentialprovider.DockerConfig, credentialprovider.ServiceAccountCoordinates | None]:
        """Return credentials, and the service account whose token was used to get them."""
        ...


@dataclass(frozen=True, slots=True)
class Providers:
    """Hold the plugins that a kubelet registered, in the order of its configuration.

    In Go the plugins are global. Here several kubelets may run in one process.
    """

    providers: Sequence[PluginProvider] = ()

    def keyring(
        self, pod_namespace: str, pod_name: str, pod_uid: str, service_account_name: str
    ) -> credentialprovider.DockerKeyring:
        """Return a keyring that uses the plugins on behalf of this pod.

        Go: NewExternalCredentialProviderDockerKeyring
        """
        keyring = []
        for provider in self.providers:
            klog.v(4).info_s(
                "Generating per pod credential provider",
                provider=provider.name,
                podName=pod_name,
                podNamespace=pod_namespace,
                podUID=pod_uid,
                serviceAccountName=service_account_name,
            )
            keyring.append(
                PerPodPluginProvider(provider, pod_namespace, pod_name, types.UID(pod_uid), service_account_name)
            )
        return ExternalCredentialProviderKeyring(keyring)


@dataclass(frozen=True, slots=True)
class ExternalCredentialProviderKeyring:
    """Look up credentials from plugins.

    Go: externalCredentialProviderKeyring
    """

    providers: Sequence[DockerConfigProviderWithCoordinates]

    def lookup(self, image: str) -> list[credentialprovider.TrackedAuthConfig]:
        keyring = credentialprovider.BasicDockerKeyring()
        for provider in self.providers:
            config, account = provider.provide_with_coordinates(image)
            source = credentialprovider.CredentialSource(service_account=account) if account is not None else None
            keyring.add(source, config)
        return keyring.lookup(image)
