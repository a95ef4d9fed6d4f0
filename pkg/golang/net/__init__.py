"""Names, addresses and connections to them, for all that the kubelet connects to by TCP.

Go: net
"""

from pkg.golang.net.dial import dial_parallel, hang_up
from pkg.golang.net.lookup import IO_TIMEOUT, Address, lookup_host, with_owner
from pkg.golang.net.url import redacted

__all__ = ["IO_TIMEOUT", "Address", "dial_parallel", "hang_up", "lookup_host", "redacted", "with_owner"]
