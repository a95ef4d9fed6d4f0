"""Sample all threads periodically, and charge each with the processor time that it used since the last sample.

Go: runtime/pprof/pprof.go (StartCPUProfile)
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from types import FrameType

from pkg import golang
from pkg.golang import debug
from pkg.golang.pprof.encoding import Frame, Profile, Stack, ValueType

# The threads are sampled at this interval, in nanoseconds.
_PERIOD = 10_000_000
_MAX_DEPTH = 128
# A profile holds this many distinct stacks. A stack includes the thread's name, so a longer profile has more stacks.
MAX_STACKS = 10_000

_SAMPLES = ValueType("samples", "count")
_CPU = ValueType("cpu", "nanoseconds")
# This stack replaces all stacks beyond MAX_STACKS.
_OTHERS: Stack = (Frame("others", "", 0),)


def stack_of(frame: FrameType | None) -> Stack:
    stack: list[Frame] = []
    while frame is not None and len(stack) < _MAX_DEPTH:
        code = frame.f_code
        stack.append(Frame(code.co_qualname, code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(stack)


class _ThreadClocks:
    """Read the processor time of the process's threads. The class is not thread-safe."""

    def __init__(self) -> None:
        # The dict holds, by native thread id, the open file and the nanoseconds that were last read from it.
        self._files: dict[int, tuple[int, int]] = {}

    def spent(self, thread: int) -> int:
        """Return the nanoseconds that the thread ran since the last call.

        The result is 0 at the first call, and for a thread that has ended.
        """
        try:
            if thread not in self._files:
                file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                # The file is registered before it is read, so that _forget closes it if the thread has ended.
                self._files[thread] = file, 0
                self._files[thread] = file, _read(file)
                return 0
            file, before = self._files[thread]
            now = _read(file)
        except OSError:  # The thread has ended.
            self._forget(thread)
            return 0
        self._files[thread] = file, now
        return now - before

    def keep(self, threads: set[int]) -> None:
        """Close the files of all other threads. They have ended, and in a long profile there may be many."""
        for thread in self._files.keys() - threads:
            self._forget(thread)

    def close(self) -> None:
        self.keep(set())

    def _forget(self, thread: int) -> None:
        file, _ = self._files.pop(thread, (-1, 0))
        if file >= 0:
            os.close(file)


def _read(file: int) -> int:
    return int(os.pread(file, 64, 0).split(b" ", 1)[0])


def cpu_profile(ctx: golang.Context, seconds: float) -> Profile:
    """Sample for `seconds`, or until ctx ends, and return the profile without the sampling thread."""
    started, end = time.time_ns(), time.monotonic_ns() + int(seconds * 1e9)
    clocks = _ThreadClocks()
    counts: Counter[Stack] = Counter()
    nanoseconds: Counter[Stack] = Counter()
    try:
        while not ctx.wait(_PERIOD / 1e9) and time.monotonic_ns() < end:
            _look(clocks, counts, nanoseconds)
    finally:
        clocks.close()
    return Profile(
        value_types=(_SAMPLES, _CPU),
        samples={stack: (counts[stack], spent) for stack, spent in nanoseconds.items()},
        time=started,
        duration=time.time_ns() - started,
        period_type=_CPU,
        period=_PERIOD,
    )


def _look(clocks: _ThreadClocks, counts: Counter[Stack], nanoseconds: Counter[Stack]) -> None:
    frames = debug.frames_of_others()
    own = threading.get_ident()
    threads = threading.enumerate()
    clocks.keep({thread.native_id for thread in threads if thread.native_id is not None})
    for thread in threads:
        if thread.ident is None or thread.native_id is None or thread.ident == own:
            continue
        if (spent := clocks.spent(thread.native_id)) and (frame := frames.get(thread.ident)) is not None:
            stack = (*stack_of(frame), Frame(thread.name, "", 0))
            if stack not in counts and len(counts) >= MAX_STACKS:
                stack = _OTHERS
            counts[stack] += 1
            nanoseconds[stack] += spent
