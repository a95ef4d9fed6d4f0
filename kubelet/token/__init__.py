"""Provide tokens of service accounts.

Go: pkg/kubelet/token
"""

from kubelet.token.token_manager import Manager, TokenError

__all__ = ["Manager", "TokenError"]
