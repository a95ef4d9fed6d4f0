"""Authenticate tokens with a TokenReview by the API server.

Go: k8s.io/apiserver/plugin/pkg/authenticator/token/webhook/webhook.go
"""

from __future__ import annotations

from pkg import golang, klog
from pkg.api.authentication import v1 as authenticationv1
from pkg.apimachinery.util import wait
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication import user as userinfo
from pkg.apiserver.util import webhook
from pkg.client_go import kubernetes


class WebhookTokenAuthenticator:
    """Ask the API server for each token.

    All methods are thread-safe. Callers should use a cache in front of it.
    """

    def __init__(
        self,
        token_review: kubernetes.ResourceClient[authenticationv1.TokenReview],
        retry_backoff: wait.Backoff,
        record_request: webhook.RecordRequest,
    ) -> None:
        self._token_review = token_review
        self._retry_backoff = retry_backoff
        self._record_request = record_request

    def authenticate_token(self, ctx: golang.Context, token: str) -> authenticator.Response | None:
        review = authenticationv1.TokenReview(spec=authenticationv1.TokenReviewSpec(token=token))
        try:
            answer = webhook.with_exponential_backoff(ctx, self._retry_backoff, lambda: self._create(ctx, review))
        except webhook.REQUEST_ERRORS as err:
            # The administrator must learn of this failure, because the configuration is wrong or the API server is
            # down.
            klog.error_s(err, "Failed to make webhook authenticator request")
            raise authenticator.AuthenticationError(str(err)) from err
        status = answer.status
        if not status.authenticated:
            if status.error:
                raise authenticator.AuthenticationError(status.error)
            return None
        user = status.user
        return authenticator.Response(userinfo.Info(user.username, user.uid, tuple(user.groups), user.extra))

    def _create(self, ctx: golang.Context, review: authenticationv1.TokenReview) -> authenticationv1.TokenReview:
        return webhook.timed(lambda: self._token_review.create(ctx, review), self._record_request)
