"""Authorize requests with a SubjectAccessReview by the API server.

Go: k8s.io/apiserver/plugin/pkg/authorizer/webhook/webhook.go
"""

from __future__ import annotations

from pkg import golang, klog
from pkg.api.authorization import v1 as authorizationv1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import cache, wait
from pkg.apiserver.authorization import authorizer
from pkg.apiserver.util import webhook
from pkg.client_go import kubernetes

_MAX_CACHED_DECISIONS = 8192
# `_MAX_CONTROLLED_ATTR_CACHE_SIZE` is the limit, in characters, for the attributes that the client chose. The decision
# about longer ones is not cached, because such a request may be meant to fill the memory.
_MAX_CONTROLLED_ATTR_CACHE_SIZE = 10000


class WebhookAuthorizer:
    """Cache decisions for a limited time, but not errors.

    All methods are thread-safe.
    """

    def __init__(
        self,
        subject_access_review: kubernetes.ResourceClient[authorizationv1.SubjectAccessReview],
        authorized_ttl: float,
        unauthorized_ttl: float,
        retry_backoff: wait.Backoff,
        record_request: webhook.RecordRequest,
        clock: clocklib.Clock | None = None,
    ) -> None:
        self._subject_access_review = subject_access_review
        self._authorized_ttl = authorized_ttl
        self._unauthorized_ttl = unauthorized_ttl
        self._retry_backoff = retry_backoff
        self._record_request = record_request
        self._response_cache: cache.LRUExpireCache[authorizationv1.SubjectAccessReviewStatus] = cache.LRUExpireCache(
            _MAX_CACHED_DECISIONS, clock
        )

    def authorize(self, ctx: golang.Context, attributes: authorizer.Attributes) -> tuple[authorizer.Decision, str]:
        status = self._review(ctx, attributes)
        match status.denied, status.allowed:
            case True, True:
                raise authorizer.AuthorizationError(
                    "webhook subject access review returned both allow and deny response"
                )
            case True, False:
                return authorizer.Decision.DENY, status.reason
            case False, True:
                return authorizer.Decision.ALLOW, status.reason
        return authorizer.Decision.NO_OPINION, status.reason

    def _review(
        self, ctx: golang.Context, attributes: authorizer.Attributes
    ) -> authorizationv1.SubjectAccessReviewStatus:
        spec = _spec(attributes)
        key = codec.encode_json(spec)
        if (status := self._response_cache.get(key)) is not None:
            return status
        review = authorizationv1.SubjectAccessReview(spec=spec)
        try:
            answer = webhook.with_exponential_backoff(ctx, self._retry_backoff, lambda: self._create(ctx, review))
        except webhook.REQUEST_ERRORS as err:
            klog.error_s(err, "Failed to make webhook authorizer request")
            raise authorizer.AuthorizationError(str(err)) from err
        status = answer.status
        if _should_cache(attributes):
            ttl = self._authorized_ttl if status.allowed else self._unauthorized_ttl
            self._response_cache.add(key, status, ttl)
        return status

    def _create(
        self, ctx: golang.Context, review: authorizationv1.SubjectAccessReview
    ) -> authorizationv1.SubjectAccessReview:
        return webhook.timed(lambda: self._subject_access_review.create(ctx, review), self._record_request)


def _spec(attributes: authorizer.Attributes) -> authorizationv1.SubjectAccessReviewSpec:
    user = attributes.user
    spec = authorizationv1.SubjectAccessReviewSpec(
        user=user.name,
        uid=user.uid,
        groups=list(user.groups),
        extra={key: list(values) for key, values in user.extra.items()},
    )
    if attributes.resource_request:
        spec.resource_attributes = authorizationv1.ResourceAttributes(
            namespace=attributes.namespace,
            verb=attributes.verb,
            group=attributes.api_group,
            version=attributes.api_version,
            resource=attributes.resource,
            subresource=attributes.subresource,
            name=attributes.name,
        )
    else:
        spec.non_resource_attributes = authorizationv1.NonResourceAttributes(path=attributes.path, verb=attributes.verb)
    return spec


def _should_cache(attributes: authorizer.Attributes) -> bool:
    controlled = (
        attributes.namespace,
        attributes.verb,
        attributes.api_group,
        attributes.api_version,
        attributes.resource,
        attributes.subresource,
        attributes.name,
        attributes.path,
    )
    return sum(map(len, controlled)) < _MAX_CONTROLLED_ATTR_CACHE_SIZE
