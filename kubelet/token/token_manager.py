"""Gets tokens of service accounts from the API server, and keeps them until they are due for renewal.

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
    """There is no token to be had."""


class Manager:
    """Thread-safe; the calling thread makes the request.

    Go drops expired tokens once a minute in a goroutine; here whoever asks for a token does it, so that nothing wakes
    up where nobody asks.
    """

    def __init__(self, client: kubernetes.Interface | None, clock: clock.Clock) -> None:
        """Without a client every request fails."""
        self._get_token: _GetToken = _token_getter(client)
        self._clock = clock
        # Guards the two below.
        self._lock = threading.Lock()
        self._cache: dict[_Key, authenticationv1.TokenRequest] = {}
        self._next_cleanup = 0.0

    def get_service_account_token(
        self, namespace: str, name: str, request: authenticationv1.TokenRequest
    ) -> authenticationv1.TokenRequest:
        """The request with a token that is good for a while. Raises TokenError."""
        key = _key(name, namespace, request)
        with self._lock:
            self._cleanup_locked()
            current = self._cache.get(key)
        if current is not None and not self._requires_refresh(current):
            return current
        try:
            fresh = self._get_token(name, namespace, request)
        except Exception as err:  # Whatever went wrong, a token that is still good does.
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
        """Forgets the tokens that are bound to a pod."""
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
        """Past 80 % of its life, or a day old; a little earlier at random, so that not all ask at once."""
        expires = request.status.expiration_timestamp
        seconds = request.spec.expiration_seconds
        if expires is None or seconds is None:
            klog.error_s(None, "Expiration seconds was nil for token request", audiences=request.spec.audiences)
            return False
        # In seconds since 1970, for the server may say any number: a datetime ends with the year 9999.
        now, end = self._clock.now().timestamp(), expires.timestamp()
        now += random.random() * _MAX_JITTER
        return now > end - seconds + _MAX_TTL or now > end - seconds * 20 // 100


def _token_getter(client: kubernetes.Interface | None) -> _GetToken:
    def get_token(name: str, namespace: str, request: authenticationv1.TokenRequest) -> authenticationv1.TokenRequest:
        if client is None:
            raise TokenError("cannot use TokenManager when kubelet is in standalone mode")
        # For what is not found Go asks whether the API server gives tokens at all; all of today's do.
        answer = client.core_v1.service_accounts(namespace).create_token(golang.background(), name, request)
        # DIVERGES (safer): an answer without a service account token, or the time of its end, is a failure.
        # Go: pkg/kubelet/token/token_manager.go, (*Manager).GetServiceAccountToken: keeps it, and the pod gets it.
        # Why: the pod would have an empty token in place of the one before, which may still be good.
        # Test: token_manager_test.py:test_answer_without_a_token
        if not answer.status.token or answer.status.expiration_timestamp is None:
            raise TokenError("the API server has answered without a token or without the time of its end")
        return answer

    return get_token


def _key(name: str, namespace: str, request: authenticationv1.TokenRequest) -> _Key:
    """Nothing secret is in it, so it may be logged."""
    bound = request.spec.bound_object_ref or authenticationv1.BoundObjectReference()
    reference = (bound.api_version, bound.kind, bound.name, bound.uid)
    audiences = tuple(request.spec.audiences)
    return name, namespace, audiences, request.spec.expiration_seconds or 0, reference, request.metadata.uid
