"""What kind of failure of a connection an error is.

Go: k8s.io/apimachinery/pkg/util/net/util.go
"""

from __future__ import annotations

import errno
from collections.abc import Iterator


def is_connection_refused(err: BaseException) -> bool:
    """Whether nobody listens at the other end."""
    return _has_errno(err, errno.ECONNREFUSED)


def is_connection_reset(err: BaseException) -> bool:
    """Whether the other end dropped the connection."""
    return _has_errno(err, errno.ECONNRESET)


def _has_errno(err: BaseException, number: int) -> bool:
    return any(isinstance(cause, OSError) and cause.errno == number for cause in _chain(err))


def _chain(err: BaseException) -> Iterator[BaseException]:
    """The error and what it came of."""
    seen: set[int] = set()
    current: BaseException | None = err
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
