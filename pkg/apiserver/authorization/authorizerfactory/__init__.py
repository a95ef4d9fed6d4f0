"""Make authorizers.

Go: k8s.io/apiserver/pkg/authorization/authorizerfactory
"""

from pkg.apiserver.authorization.authorizerfactory.builtin import AlwaysAllowAuthorizer
from pkg.apiserver.authorization.authorizerfactory.delegating import DelegatingAuthorizerConfig

__all__ = ["AlwaysAllowAuthorizer", "DelegatingAuthorizerConfig"]
