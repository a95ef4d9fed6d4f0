"""Ask the API server whether a user may do something.

Go: k8s.io/apiserver/pkg/authorization/authorizerfactory/delegating.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkg.apimachinery.util import wait
from pkg.apiserver.authorization import authorizer

if TYPE_CHECKING:
    from pkg.client_go import kubernetes


@dataclass(frozen=True, slots=True)
class DelegatingAuthorizerConfig:
    subject_access_review_client: kubernetes.AuthorizationV1
    # A positive and a negative decision stay valid for these times, in seconds.
    allow_cache_ttl: float
    deny_cache_ttl: float
    webhook_retry_backoff: wait.Backoff

    def new(self) -> authorizer.Authorizer:
        # The imports are lazy because a kubelet that allows everything does not need these modules.
        from pkg.apiserver.authorization.authorizerfactory import metrics
        from pkg.apiserver.plugin.authorizer import webhook

        metrics.register_metrics()
        return webhook.WebhookAuthorizer(
            self.subject_access_review_client.subject_access_reviews(),
            self.allow_cache_ttl,
            self.deny_cache_ttl,
            self.webhook_retry_backoff,
            metrics.record_request,
        )
