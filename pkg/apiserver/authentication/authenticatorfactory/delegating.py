"""Check certificates and anonymous users locally, and ask the API server to check tokens.

Go: k8s.io/apiserver/pkg/authentication/authenticatorfactory/delegating.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkg.apimachinery.util import wait
from pkg.apiserver.authentication import authenticator, group
from pkg.apiserver.authentication.request import anonymous, union

if TYPE_CHECKING:
    from pkg.client_go import kubernetes
    from pkg.golang import x509 as golangx509

# Modules that only some authentication methods need are imported lazily, because every kubelet imports this module.


@dataclass(frozen=True, slots=True)
class DelegatingAuthenticatorConfig:
    """Describe which authentication methods to use; a method whose setting is None is not used."""

    webhook_retry_backoff: wait.Backoff
    anonymous: bool = False
    token_access_review_client: kubernetes.AuthenticationV1 | None = None
    # `cache_ttl` is the time, in seconds, for which the result of a token review stays valid.
    cache_ttl: float = 0.0
    verify_options: Callable[[], golangx509.VerifyOptions | None] | None = None

    def new(self) -> authenticator.Request:
        """Return the combined authenticator; raise ValueError if no method is configured."""
        authenticators: list[authenticator.Request] = []
        if self.verify_options is not None:
            from pkg.apiserver.authentication.request import x509

            authenticators.append(x509.Authenticator(self.verify_options))
        if self.token_access_review_client is not None:
            from pkg.apiserver.authentication.request import bearertoken, websocket

            tokens = self._token_authenticator(self.token_access_review_client)
            authenticators += [bearertoken.Authenticator(tokens), websocket.ProtocolAuthenticator(tokens)]
        if not authenticators:
            if not self.anonymous:
                raise ValueError("no authentication method configured")
            return anonymous.Authenticator()
        known = group.AuthenticatedGroupAdder(union.UnionAuthRequestHandler(*authenticators))
        if not self.anonymous:
            return known
        # A client with invalid credentials is refused, and not treated as anonymous.
        return union.UnionAuthRequestHandler(known, anonymous.Authenticator(), fail_on_error=True)

    def _token_authenticator(self, client: kubernetes.AuthenticationV1) -> authenticator.Token:
        from pkg.apiserver.authentication.authenticatorfactory import metrics
        from pkg.apiserver.authentication.token import cache
        from pkg.apiserver.plugin.authenticator.token import webhook

        metrics.register_metrics()
        by_webhook = webhook.WebhookTokenAuthenticator(
            client.token_reviews(), self.webhook_retry_backoff, metrics.record_request
        )
        return cache.CachedTokenAuthenticator(by_webhook, self.cache_ttl, self.cache_ttl)
