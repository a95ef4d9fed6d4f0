"""Provide the parts of Go's language and standard library that the kubelet's design relies on.

The main parts are channels, select, tickers, contexts and threads.

Read the files in this order: channel.py (channels and select), mutex.py, ticker.py, context.py, thread.py.
"""

from pkg.golang.channel import Case, Channel, ClosedChannelError, Selected, Send, seed, select
from pkg.golang.context import (
    MAX_REMAINING,
    Canceled,
    Context,
    ContextError,
    DeadlineExceeded,
    after_func,
    background,
    with_cancel,
    with_deadline,
    with_timeout,
    with_value,
    without_cancel,
)
from pkg.golang.frames import without_frames
from pkg.golang.mutex import Mutex
from pkg.golang.stand_in import StandIn
from pkg.golang.thread import Thread, ThreadError, ThreadGroup, go, install_crash_handler
from pkg.golang.ticker import Ticker, Timer, TimerChannel, TimerSource, after
from pkg.golang.time import parse_rfc3339
from pkg.golang.utf8 import encode_valid_utf8, printable, to_valid_utf8

__all__ = [
    "MAX_REMAINING",
    "Canceled",
    "Case",
    "Channel",
    "ClosedChannelError",
    "Context",
    "ContextError",
    "DeadlineExceeded",
    "Mutex",
    "Selected",
    "Send",
    "StandIn",
    "Thread",
    "ThreadError",
    "ThreadGroup",
    "Ticker",
    "Timer",
    "TimerChannel",
    "TimerSource",
    "after",
    "after_func",
    "background",
    "encode_valid_utf8",
    "go",
    "install_crash_handler",
    "parse_rfc3339",
    "printable",
    "seed",
    "select",
    "to_valid_utf8",
    "with_cancel",
    "with_deadline",
    "with_timeout",
    "with_value",
    "without_cancel",
    "without_frames",
]
