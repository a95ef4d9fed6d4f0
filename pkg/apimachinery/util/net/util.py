"""Classify connection errors.

Go: k8s.io/apimachinery/pkg/util/net/util.go
"""

from __future__ import annotations

import errno
from collections.abc import Iterator


def is_connection_refused(err: BaseException) -> bool:
    """Report whether the other end refused the connection because nothing listens there."""
    return _has_errno(err, errno.ECONNREFUSED)


def is_connection_reset(err: BaseException) -> bool:
    """Report whether the other end dropped the connection."""
    return _has_errno(err, errno.ECONNRESET)


def _has_errno(err: BaseException, number: int) -> bool:
    return any(isinstance(cause, OSError) and cause.errno == number for cause in _chain(err))


def _chain(err: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes."""
    seen: set[int] = set()
    current: BaseException | None = err
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
