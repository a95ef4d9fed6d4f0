"""Asking somebody else, again if the answer is likely to be better next time.

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

# All that a request to the API server raises.
REQUEST_ERRORS = (apierrors.StatusError, OSError, golang.ContextError, codec.DecodeError)

# The code of a request that got no answer.
_NO_ANSWER = "<error>"

# Is told the status code of the answer and the seconds it took.
RecordRequest = Callable[[str, float], None]


def default_should_retry(err: Exception) -> bool:
    """Whether the fault may pass: the connection was cut, or the server has trouble or says when to come back."""
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
    """What webhook_fn returns, after at most as many attempts as the backoff has steps.

    Raises what the last attempt raised: also when ctx ends in between.
    """
    backoff = dataclasses.replace(retry_backoff)
    while True:
        try:
            return webhook_fn()
        except Exception as err:  # not handled here: the caller gets it unless another attempt comes first
            if not should_retry(err) or backoff.steps <= 1 or ctx.wait(backoff.step()):
                raise


def timed(create: Callable[[], T], record_request: RecordRequest) -> T:
    """What it returns or raises, recorded."""
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
