"""Repeat calls until a context is done, and wait until a condition is true.

Go: k8s.io/apimachinery/pkg/util/wait
"""

from pkg.apimachinery.util.wait.backoff import Backoff
from pkg.apimachinery.util.wait.poll import poll_until_context_cancel, poll_until_context_timeout
from pkg.apimachinery.util.wait.wait import go, jitter, jitter_until, pause, sleep, until

__all__ = [
    "Backoff",
    "go",
    "jitter",
    "jitter_until",
    "pause",
    "poll_until_context_cancel",
    "poll_until_context_timeout",
    "sleep",
    "until",
]
