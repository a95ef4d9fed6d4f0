"""Take profiles of the current state.

Go: runtime/pprof/pprof.go
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter

from pkg.golang import debug
from pkg.golang.pprof.encoding import Frame, Profile, Stack, ValueType
from pkg.golang.pprof.sampler import stack_of


class NotKeptError(Exception):
    """Signal that Python does not record this."""


def thread_profile() -> Profile:
    """Return the number of threads at each stack."""
    counts: Counter[Stack] = Counter(stack_of(frame) for frame in debug.frames_of_others().values())
    counts[stack_of(sys._getframe())] += 1
    return Profile((ValueType("threads", "count"),), {stack: (count,) for stack, count in counts.items()})


def thread_stacks() -> str:
    """Return each thread's name and stack, with the innermost call last as usual in Python."""
    names = {thread.ident: thread for thread in threading.enumerate()}
    own = f"thread {threading.get_native_id()} [{threading.current_thread().name}]"
    parts = [f"{own}:\n{''.join(traceback.format_stack())}"]
    for ident, frame in debug.frames_of_others().items():
        thread = names.get(ident)
        name, native_id = (thread.name, thread.native_id) if thread is not None else ("not a Python thread", None)
        parts.append(f"thread {native_id} [{name}]:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


def heap_profile() -> Profile:
    """Return the memory in use by the place of allocation.

    Raise NotKeptError unless the process was started with tracemalloc on.
    """
    import tracemalloc

    if not tracemalloc.is_tracing():
        raise NotKeptError(
            "Python records where memory was allocated only if it is started with the environment variable "
            "PYTHONTRACEMALLOC, as in PYTHONTRACEMALLOC=10 for ten frames"
        )
    samples: Counter[Stack] = Counter()
    objects: Counter[Stack] = Counter()
    for trace in tracemalloc.take_snapshot().traces:
        stack = tuple(Frame("", frame.filename, frame.lineno) for frame in reversed(trace.traceback))
        samples[stack] += trace.size
        objects[stack] += 1
    types = (ValueType("inuse_objects", "count"), ValueType("inuse_space", "bytes"))
    return Profile(types, {stack: (objects[stack], size) for stack, size in samples.items()})


def text(name: str, profile: Profile) -> str:
    """Return the stacks as text, those with the greatest values first."""
    total = sum(values[-1] for values in profile.samples.values())
    parts = [f"{name} profile: total {total}"]
    for stack, values in sorted(profile.samples.items(), key=lambda item: -item[1][-1]):
        parts.append(" ".join(map(str, values)) + " @")
        parts += [f"#\t{frame.function or '?'}\t{frame.file}:{frame.line}" for frame in stack]
        parts.append("")
    return "\n".join(parts) + "\n"
