"""Control the memory management of the process and inspect its threads.

Go: runtime/debug
"""

from __future__ import annotations

import gc
import sys
import threading
from types import FrameType

# These are parameters of glibc's mallopt, and the values that the kubelet sets.
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE_BLOCK = 64 << 10
_ARENAS = 2
# A thread keeps running for this many seconds while others want to run Python. Python's default is 5 ms.
_TURN = 0.0005

# A thread holds this lock while garbage collection is off, so that only one thread at a time sees it on and restores
# it.
_frames_lock = threading.Lock()


def frames_of_others() -> dict[int, FrameType]:
    """Return the innermost frame of each thread except the caller's, by the thread's ident.

    Any thread may call this function. If the result contained the caller's frame, the frames would refer to themselves
    through the caller's variable, and all local variables of all threads would stay in memory until the garbage
    collector runs.

    Python before 3.11.9 holds its lock of the thread list during the call. If the garbage collector then runs another
    thread, and that thread is about to end, the thread waits for the lock while it holds the interpreter: the process
    hangs forever. So this function switches the garbage collector off.
    """
    with _frames_lock:
        collects = gc.isenabled()
        gc.disable()
        try:
            frames = sys._current_frames()
            del frames[threading.get_ident()]
            return frames
        finally:
            if collects:
                gc.enable()


def free_os_memory() -> None:
    """Return freed memory to the operating system.

    After a burst, glibc keeps such memory between blocks that are in use.

    The call takes milliseconds, during which other threads run. Another libc may not support it; then nothing happens.
    Go: FreeOSMemory
    """
    import ctypes  # Few callers of this module need ctypes.

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def give_back_large_blocks() -> None:
    """Make malloc return each block of 64 KiB and more to the system as soon as it is freed.

    Call this function once, at the start. By default, glibc serves larger and larger blocks from arenas, creates up to
    eight arenas for each processor, and keeps freed memory in each arena. One request of 1 MiB in each of many threads
    would then hold many MiB permanently. Since one thread at a time runs Python, more than two arenas make nothing
    faster. Go's runtime has no need for this.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_M_ARENA_MAX, _ARENAS)


def take_short_turns() -> None:
    """Make threads yield to each other ten times as often as by default. Call this once, at the start.

    A thread that becomes ready runs after all threads that are already ready. If two hundred threads serve clients,
    that would take a second, and the sync loop needs several turns for one of its steps.
    """
    sys.setswitchinterval(_TURN)


def spare_what_stays() -> None:
    """Exclude all objects that exist now from future garbage collections. Call this once, when everything has started.

    A full collection stops every thread while it visits each object. Most objects belong to the program itself: its
    modules, classes and functions, which stay until the end. Go's collector runs concurrently.

    Up to version 3.13, Python delays a full collection until the number of objects that have become old exceeds a
    quarter of those that survived the last full collection. The excluded objects would still count as survivors. The
    garbage of failures would then stay until it has more than ten thousand objects, each perhaps 1 MiB large. So this
    function collects once more, when hardly any object is left to survive.
    """
    gc.collect()
    gc.freeze()
    gc.collect()
