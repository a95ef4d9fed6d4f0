"""What a program may tell its memory management, and ask of its threads.

Go: runtime/debug
"""

from __future__ import annotations

import gc
import sys
import threading
from types import FrameType

# Of glibc's mallopt: which of its parameters, and the values that we give them.
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE_BLOCK = 64 << 10
_ARENAS = 2
# Seconds for which a thread goes on while others want to run Python; 5 ms by default.
_TURN = 0.0005

# Held while garbage is not collected for a moment, so that only one thread sees that it was collected before.
_frames_lock = threading.Lock()


def frames_of_others() -> dict[int, FrameType]:
    """The innermost frame of each thread but the caller's, by the thread's ident. From any thread.

    With the caller's among them, the frames would refer to themselves by the variable that they are in, and all that
    the threads had at hand would stay until garbage is collected.

    Python before 3.11.9 holds its lock of the list of threads meanwhile. If a collection of garbage lets another thread
    run, and that one is about to end, it waits for the lock with the interpreter in its hands: nothing of the process
    ever runs again. So nothing is collected here.
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
    """Give back to the system what was freed: after a burst glibc keeps it, in holes between what is in use.

    Takes milliseconds, during which other threads run. Another libc may not be able to; then nothing happens.
    Go: FreeOSMemory
    """
    import ctypes  # few who serve connections ever come here

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def give_back_large_blocks() -> None:
    """Have every block of 64 KiB and more go back to the system as soon as it is freed. Call it once, at the start.

    By itself glibc takes larger and larger blocks out of arenas, of which it makes eight for each processor, and each
    keeps what it once had. One request of a mebibyte in each of many threads would stay as many times that. Since one
    thread at a time runs Python, more than two arenas make nothing faster. Go's runtime needs no such thing.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_M_ARENA_MAX, _ARENAS)


def take_short_turns() -> None:
    """Have threads make way for each other ten times as often as by default. Call it once, at the start.

    A thread that becomes ready has its turn after all that are ready already. Where that is two hundred of a server's
    clients, it would take a second, and the sync loop needs several turns for one of its own steps.
    """
    sys.setswitchinterval(_TURN)


def spare_what_stays() -> None:
    """Have the garbage collector leave alone, from now on, all that there is now. Call it once, when all is started.

    A full collection stops every thread for as long as it takes to look at each object that there is. Most are the
    program itself: its modules, classes and functions, which stay to the end. Go collects while its threads go on.

    Until 3.13 Python puts a full collection off until a quarter as much has grown old as the last one left. It would
    count what is spared by now, and what failures have left would stay until there are more than ten thousand objects
    of it, be they of a mebibyte each. So it collects once more, when hardly anything is left.
    """
    gc.collect()
    gc.freeze()
    gc.collect()
