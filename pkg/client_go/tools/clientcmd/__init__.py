"""Read, check and write kubeconfig files, and turn them into a rest.Config.

Go: k8s.io/client-go/tools/clientcmd
"""

from pkg.client_go.tools.clientcmd.client_config import build_config_from_flags, client_config
from pkg.client_go.tools.clientcmd.loader import load, load_from_file, resolve_local_paths, write, write_to_file
from pkg.client_go.tools.clientcmd.validation import ConfigurationInvalidError, confirm_usable, validate

__all__ = [
    "ConfigurationInvalidError",
    "build_config_from_flags",
    "client_config",
    "confirm_usable",
    "load",
    "load_from_file",
    "resolve_local_paths",
    "validate",
    "write",
    "write_to_file",
]
