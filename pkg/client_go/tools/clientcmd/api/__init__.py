"""Define the contents of a kubeconfig.

Go: k8s.io/client-go/tools/clientcmd/api
"""

from pkg.client_go.tools.clientcmd.api.types import (
    AuthInfo,
    Cluster,
    Config,
    Context,
    ExecConfig,
    ExecEnvVar,
)

__all__ = ["AuthInfo", "Cluster", "Config", "Context", "ExecConfig", "ExecEnvVar"]
