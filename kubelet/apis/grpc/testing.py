"""Provide misbehaving clients of the kubelet's gRPC services."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

_DEADLINE = 30.0


@contextmanager
def silent_calls(address: str, method: str, count: int) -> Iterator[list[Any]]:
    """Make `count` calls of a client that sends no request, until the end of the block."""
    over = threading.Event()

    def nothing() -> Iterator[bytes]:
        over.wait(_DEADLINE)
        yield from ()

    with grpc.insecure_channel(address) as channel:
        calls: Any = channel.stream_unary(method)
        try:
            yield [calls.future(nothing(), timeout=_DEADLINE) for _ in range(count)]
        finally:
            over.set()
