"""Cache the results of another token authenticator for a limited time.

Go: k8s.io/apiserver/pkg/authentication/token/cache/cached_token_authenticator.go
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

from pkg import golang
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.util import cache
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication.token.cache import stats
from pkg.golang import singleflight

# `_SHARED_LOOKUP_TIMEOUT` is the time limit, in seconds, for one look-up, which several requests may share.
_SHARED_LOOKUP_TIMEOUT = 30.0

# DIVERGES (safer): the token cache drops the least recently used result when it has more results than this.
# Go: k8s.io/apiserver/pkg/authentication/token/cache/cached_token_authenticator.go, newWithClock: the Go kubelet has no
# bound, and keeps each result for its lifetime.
# Why: any client that may connect could fill the memory with invalid tokens.
# Test: cached_token_authenticator_test.py:test_answer_used_least_recently_makes_way
_MAX_ENTRIES = 32768


@dataclass(frozen=True, slots=True)
class _Record:
    response: authenticator.Response | None


class CachedTokenAuthenticator:
    """Cache results but not errors.

    All methods are thread-safe. A lifetime of 0 seconds turns the cache off.

    DIVERGES (safer): a token look-up ends when the client that started it disconnects.
    Go: k8s.io/apiserver/pkg/authentication/token/cache/cached_token_authenticator.go,
    (*cachedTokenAuthenticator).doAuthenticateToken: the look-up continues for up to 30 s.
    Why: the look-up occupies the connection's thread. A client that sends invalid tokens on one connection after the
    other would leave no threads for other clients.
    Test: cached_token_authenticator_test.py:test_client_that_goes_is_answered_no_more_and_others_are,
    cached_token_authenticator_test.py:test_connections_that_made_way_do_not_wait_for_their_tokens
    """

    def __init__(
        self,
        auth: authenticator.Token,
        success_ttl: float,
        failure_ttl: float,
        clock: clocklib.Clock | None = None,
    ) -> None:
        stats.register()
        self._auth = auth
        self._success_ttl = success_ttl
        self._failure_ttl = failure_ttl
        self._clock = clock or clocklib.RealClock()
        self._cache: cache.LRUExpireCache[_Record] = cache.LRUExpireCache(_MAX_ENTRIES, self._clock)
        self._group: singleflight.Group[_Record] = singleflight.Group()
        self._secret = secrets.token_bytes(32)

    def authenticate_token(self, ctx: golang.Context, token: str) -> authenticator.Response | None:
        """Return the token's user as authenticator.Token does; raise golang.ContextError when ctx ends first."""
        started = self._clock.monotonic()
        key = self._key(token)
        record = self._cache.get(key)
        status = stats.MISS if record is None else stats.HIT
        try:
            if record is None:
                with stats.ACTIVE_FETCH_COUNT.labels(stats.FETCH_BLOCKED).track_inprogress():
                    record = self._look_up(ctx, key, token)
        finally:
            stats.REQUEST_COUNT.labels(status).inc()
            stats.REQUEST_LATENCY.labels(status).observe(self._clock.monotonic() - started)
        return record.response

    def _look_up(self, ctx: golang.Context, key: bytes, token: str) -> _Record:
        while True:
            try:
                return self._group.do(key, lambda: self._fetch(ctx, key, token), ctx)
            except golang.ContextError:
                if ctx.err() is not None:
                    raise
                # The client that started the shared look-up has disconnected, but this client has not.

    def _fetch(self, ctx: golang.Context, key: bytes, token: str) -> _Record:
        """Look the token up, and store the result; raise golang.ContextError when ctx has ended."""
        if (record := self._cache.get(key)) is not None:
            return record
        limited, cancel = golang.with_timeout(ctx, _SHARED_LOOKUP_TIMEOUT)
        outcome = stats.FETCH_FAILED
        try:
            with stats.ACTIVE_FETCH_COUNT.labels(stats.FETCH_IN_FLIGHT).track_inprogress():
                record = _Record(self._auth.authenticate_token(limited, token))
            outcome = stats.FETCH_OK
        except authenticator.AuthenticationError:
            ctx.raise_if_done()
            raise
        finally:
            cancel()
            stats.FETCH_COUNT.labels(outcome).inc()
        ttl = self._failure_ttl if record.response is None else self._success_ttl
        if ttl > 0:
            self._cache.add(key, record, ttl)
        return record

    def _key(self, token: str) -> bytes:
        """Return the cache key for a token.

        The digest uses a secret of this process. The cache therefore holds no tokens, and a client cannot make two
        tokens collide.
        """
        return hmac.digest(self._secret, token.encode(errors="surrogateescape"), "sha256")
