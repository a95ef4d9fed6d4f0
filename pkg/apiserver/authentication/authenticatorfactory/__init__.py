"""Combine authenticators.

Go: k8s.io/apiserver/pkg/authentication/authenticatorfactory
"""

from pkg.apiserver.authentication.authenticatorfactory.delegating import DelegatingAuthenticatorConfig

__all__ = ["DelegatingAuthenticatorConfig"]
