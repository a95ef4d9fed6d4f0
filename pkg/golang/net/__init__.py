"""Resolve names and open the kubelet's TCP connections.

Go: net
"""

from pkg.golang.net.dial import dial_parallel, hang_up
from pkg.golang.net.lookup import IO_TIMEOUT, MAX_NAME_LENGTH, Address, DialTimeoutError, lookup_host, with_owner
from pkg.golang.net.url import join, redacted, split

__all__ = [
    "IO_TIMEOUT",
    "MAX_NAME_LENGTH",
    "Address",
    "DialTimeoutError",
    "dial_parallel",
    "hang_up",
    "join",
    "lookup_host",
    "redacted",
    "split",
    "with_owner",
]
