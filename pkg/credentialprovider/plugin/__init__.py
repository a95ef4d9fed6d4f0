"""Get registry credentials from programs that the administrator of a node installs.

Go: pkg/credentialprovider/plugin
"""

from pkg.credentialprovider.plugin.plugin import (
    GetServiceAccountFunc,
    GetServiceAccountTokenFunc,
    PluginProvider,
    register_credential_provider_plugins,
)
from pkg.credentialprovider.plugin.plugins import Providers

__all__ = [
    "GetServiceAccountFunc",
    "GetServiceAccountTokenFunc",
    "PluginProvider",
    "Providers",
    "register_credential_provider_plugins",
]
