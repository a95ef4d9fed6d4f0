"""Call another server, and retry after temporary errors.

Go: k8s.io/apiserver/pkg/util/webhook/webhook.go
"""

from __future__ import annotations

import dataclasses
import http
import time
from collections.abc import Callable
from typing import TypeVar

from pkg import golang
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.net import util as utilnet

T = TypeVar("T")

# `REQUEST_ERRORS` holds all exceptions that a request to the API server raises.
REQUEST_ERRORS = (apierrors.StatusError, OSError, golang.ContextError, codec.DecodeError)

# `_NO_ANSWER` is the code of a request without a response.
_NO_ANSWER = "<error>"

# The function receives the status code of the response and the duration in seconds.
RecordRequest = Callable[[str, float], None]


def default_should_retry(err: Exception) -> bool:
    """Report whether the error may be temporary.

    The connection was reset, the server has a problem, or it says when to retry.
    """
    return (
        utilnet.is_connection_reset(err)
        or apierrors.is_internal_error(err)
        or apierrors.is_timeout(err)
        or apierrors.is_too_many_requests(err)
        or apierrors.suggests_client_delay(err) is not None
    )


def with_exponential_backoff(
    ctx: golang.Context,
    retry_backoff: wait.Backoff,
    webhook_fn: Callable[[], T],
    should_retry: Callable[[Exception], bool] = default_should_retry,
) -> T:
    """Return the result of webhook_fn, after at most as many attempts as the backoff has steps.

    Raise the exception of the last attempt, also when ctx ends between two attempts.
    """
    backoff = dataclasses.replace(retry_backoff)
    while True:
        try:
            return webhook_fn()
        except Exception as err:  # The exception is raised to the caller, unless another attempt follows.
            if not should_retry(err) or backoff.steps <= 1 or ctx.wait(backoff.step()):
                raise


def timed(create: Callable[[], T], record_request: RecordRequest) -> T:
    """Call create, and record the status code and the duration."""
    started = time.monotonic()
    code = _NO_ANSWER
    try:
        created = create()
        code = str(http.HTTPStatus.CREATED.value)
        return created
    except apierrors.StatusError as err:
        code = str(err.code)
        raise
    finally:
        record_request(code, time.monotonic() - started)
