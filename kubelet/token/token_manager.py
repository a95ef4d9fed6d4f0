"""Request tokens of service accounts from the API server, and cache them until they are due for renewal.

Go: pkg/kubelet/token/token_manager.go
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from pkg import golang, klog
from pkg.api.authentication import v1 as authenticationv1
from pkg.apimachinery import clock, types
from pkg.client_go import kubernetes

_MAX_TTL = 24 * 3600.0
_GC_PERIOD = 60.0
_MAX_JITTER = 10.0

_Key = tuple[str, str, tuple[str, ...], int, tuple[str, str, str, str], str]
_GetToken = Callable[[str, str, authenticationv1.TokenRequest], authenticationv1.TokenRequest]


class TokenError(Exception):
    """Signal that no token is available."""


class Manager:
    """Cache tokens. This class is thread-safe, and the calling thread makes the request.

    Go drops expired tokens once a minute in a goroutine. Here the calls for tokens drop them, so that no thread has to
    wake up to drop tokens.
    """

    def __init__(self, client: kubernetes.Interface | None, clock: clock.Clock) -> None:
        """Create a manager. Without a client every request fails."""
        self._get_token: _GetToken = _token_getter(client)
        self._clock = clock
        # The lock guards the two fields below.
        self._lock = threading.Lock()
        self._cache: dict[_Key, authenticationv1.TokenRequest] = {}
        self._next_cleanup = 0.0

    def get_service_account_token(
        self, namespace: str, name: str, request: authenticationv1.TokenRequest
    ) -> authenticationv1.TokenRequest:
        """Return the request with a valid token, from the cache or a new one. Raise TokenError."""
        key = _key(name, namespace, request)
        with self._lock:
            self._cleanup_locked()
            current = self._cache.get(key)
        if current is not None and not self._requires_refresh(current):
            return current
        try:
            fresh = self._get_token(name, namespace, request)
        except Exception as err:  # After any error the old token is returned if it is still valid.
            if current is None:
                raise TokenError(f"failed to fetch token: {err}") from err
            if self._expired(current):
                raise TokenError(f"token {key} expired and refresh failed: {err}") from err
            klog.error_s(err, "Couldn't update token", cacheKey=key)
            return current
        with self._lock:
            self._cache[key] = fresh
        return fresh

    def delete_service_account_token(self, pod_uid: types.UID) -> None:
        """Drop the tokens that are bound to a pod."""
        with self._lock:
            for key, request in list(self._cache.items()):
                bound = request.spec.bound_object_ref
                if bound is not None and bound.uid == pod_uid:
                    del self._cache[key]

    def _cleanup_locked(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_cleanup:
            return
        self._next_cleanup = now + _GC_PERIOD
        self._cache = {key: request for key, request in self._cache.items() if not self._expired(request)}

    def _expired(self, request: authenticationv1.TokenRequest) -> bool:
        expires = request.status.expiration_timestamp
        return expires is None or self._clock.now() > expires

    def _requires_refresh(self, request: authenticationv1.TokenRequest) -> bool:
        """Report whether the token is past 80 % of its lifetime or a day old.

        A random offset makes it slightly earlier, so that not all pods refresh their tokens at the same time.
        """
        expires = request.status.expiration_timestamp
        seconds = request.spec.expiration_seconds
        if expires is None or seconds is None:
            klog.error_s(None, "Expiration seconds was nil for token request", audiences=request.spec.audiences)
            return False
        # The times are seconds since 1970, because the server may return any expiration and datetime ends with the year
        # 9999.
        now, end = self._clock.now().timestamp(), expires.timestamp()
        now += random.random() * _MAX_JITTER
        return now > end - seconds + _MAX_TTL or now > end - seconds * 20 // 100


def _token_getter(client: kubernetes.Interface | None) -> _GetToken:
    def get_token(name: str, namespace: str, request: authenticationv1.TokenRequest) -> authenticationv1.TokenRequest:
        if client is None:
            raise TokenError("cannot use TokenManager when kubelet is in standalone mode")
        # After a "not found" error Go asks whether the API server supports token requests; all current versions do.
        answer = client.core_v1.service_accounts(namespace).create_token(golang.background(), name, request)
        # DIVERGES (safer): a response without a token or without its expiration is a failure.
        # Go: pkg/kubelet/token/token_manager.go, (*Manager).GetServiceAccountToken: the Go kubelet caches the response,
        # and the pod gets it.
        # Why: the pod would get an empty token in place of its old one, which may still be valid.
        # Test: token_manager_test.py:test_answer_without_a_token
        if not answer.status.token or answer.status.expiration_timestamp is None:
            raise TokenError("the API server has responded without a token or without its expiration")
        return answer

    return get_token


def _key(name: str, namespace: str, request: authenticationv1.TokenRequest) -> _Key:
    """Return the cache key, which contains nothing confidential and may be logged.

    The UID of the service account is part of the key, so that an account that is deleted and created again with the
    same name does not get the old token.
    """
    bound = request.spec.bound_object_ref or authenticationv1.BoundObjectReference()
    reference = (bound.api_version, bound.kind, bound.name, bound.uid)
    audiences = tuple(request.spec.audiences)
    return name, namespace, audiences, request.spec.expiration_seconds or 0, reference, request.metadata.uid
