"""An authenticator of tokens that remembers for a while what another one said.

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

# Seconds that a look-up has, which may be for several who ask.
_SHARED_LOOKUP_TIMEOUT = 30.0

# DIVERGES (safer): with more answers than these, the one that was used least recently is forgotten.
# Go: k8s.io/apiserver/pkg/authentication/token/cache/cached_token_authenticator.go, newWithClock: has no bound; an
# answer is kept for its time.
# Why: whoever may connect could fill the memory with wrong tokens.
# Test: cached_token_authenticator_test.py:test_answer_used_least_recently_makes_way
_MAX_ENTRIES = 32768


@dataclass(frozen=True, slots=True)
class _Record:
    response: authenticator.Response | None


class CachedTokenAuthenticator:
    """Errors are not remembered. A lifetime of 0 seconds remembers nothing. Thread-safe.

    DIVERGES (safer): a look-up ends when the client that began it has gone.
    Go: k8s.io/apiserver/pkg/authentication/token/cache/cached_token_authenticator.go,
    (*cachedTokenAuthenticator).doAuthenticateToken: the look-up goes on for up to 30 s.
    Why: it has the thread of the connection: a client that shows wrong tokens on one connection after the other would
    leave no threads for others.
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
        """Raises as authenticator.Token, and golang.ContextError when ctx ends first."""
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
                # The client that asked first has gone; others that show the same token have not.

    def _fetch(self, ctx: golang.Context, key: bytes, token: str) -> _Record:
        """Raises golang.ContextError when ctx has ended."""
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
        """Keyed with a secret of this process: tokens are not kept, and nobody can make two of them collide."""
        return hmac.digest(self._secret, token.encode(errors="surrogateescape"), "sha256")
