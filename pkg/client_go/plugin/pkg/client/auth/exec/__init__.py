"""Get credentials from a program.

Go: k8s.io/client-go/plugin/pkg/client/auth/exec
"""

from pkg.client_go.plugin.pkg.client.auth.exec.exec import Authenticator

__all__ = ["Authenticator"]
