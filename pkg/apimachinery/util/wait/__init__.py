"""Doing something again and again until told to stop, and waiting until something is so.

Go: k8s.io/apimachinery/pkg/util/wait
"""

from pkg.apimachinery.util.wait.backoff import Backoff, exponential_backoff
from pkg.apimachinery.util.wait.poll import poll_until, poll_until_context_cancel, poll_until_context_timeout
from pkg.apimachinery.util.wait.wait import (
    NEVER_STOP,
    Interrupted,
    forever,
    interrupted,
    jitter,
    jitter_until,
    until,
)

__all__ = [
    "NEVER_STOP",
    "Backoff",
    "Interrupted",
    "exponential_backoff",
    "forever",
    "interrupted",
    "jitter",
    "jitter_until",
    "poll_until",
    "poll_until_context_cancel",
    "poll_until_context_timeout",
    "until",
]
