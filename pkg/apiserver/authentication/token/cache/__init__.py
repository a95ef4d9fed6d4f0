"""Cache the results of token authentication.

Go: k8s.io/apiserver/pkg/authentication/token/cache
"""

from pkg.apiserver.authentication.token.cache.cached_token_authenticator import CachedTokenAuthenticator

__all__ = ["CachedTokenAuthenticator"]
