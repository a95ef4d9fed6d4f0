"""Check for every test that it ends its threads, that no thread crashes, and that there are no warnings."""

from __future__ import annotations

import io
import threading
import traceback
import warnings
from collections.abc import Iterator
from time import monotonic

import pytest

from pkg import golang, klog

# Stopped threads must end within this time, in seconds.
_GRACE = 30.0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many cases of the tests named test_call_that_… passed; in each case a call of a client fails."""
    cases = [each for each in terminalreporter.stats.get("passed", []) if "::test_call_that_" in each.nodeid]
    if cases:
        terminalreporter.write_line(f"{len(cases)} cases of a failing call")


@pytest.fixture(autouse=True)
def _no_thread_crashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test if an exception ends a thread."""
    crashes: list[str] = []

    def note(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "unknown"
        trace = traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)
        crashes.append(f"thread {name} crashed:\n{''.join(trace)}")

    monkeypatch.setattr(threading, "excepthook", note)
    yield
    if crashes:
        pytest.fail("\n".join(crashes), pytrace=False)


@pytest.fixture(autouse=True)
def _no_leaked_threads(_no_thread_crashes: None) -> Iterator[None]:
    """Fail the test if it leaves a thread running: one started by golang.go, or any other non-daemon thread."""
    before = set(threading.enumerate())
    yield
    deadline = monotonic() + _GRACE
    for thread in _started_since(before):
        thread.join(max(deadline - monotonic(), 0.0))
    if leaked := _started_since(before):
        pytest.fail(f"threads still run: {sorted(thread.name for thread in leaked)}", pytrace=False)


@pytest.fixture
def ctx() -> Iterator[golang.Context]:
    """Provide a context that ends with the test."""
    ctx, cancel = golang.with_cancel(golang.background())
    yield ctx
    cancel()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Provide the log of the test."""
    out = io.StringIO()
    klog.set_output(out)
    yield out
    klog.set_output(None)


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    """Turn warnings into exceptions where they occur."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def _started_since(before: set[threading.Thread]) -> list[threading.Thread]:
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before
        and thread is not threading.current_thread()
        and (isinstance(thread, golang.Thread) or not thread.daemon)
    ]
