"""What a program may tell its memory management.

Go: runtime/debug
"""

from __future__ import annotations


def free_os_memory() -> None:
    """Give back to the system what was freed: after a burst glibc keeps it, in holes between what is in use.

    Takes milliseconds, during which other threads run. Another libc may not be able to; then nothing happens.
    Go: FreeOSMemory
    """
    import ctypes  # few who serve connections ever come here

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
