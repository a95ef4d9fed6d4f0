"""Errors that more than one file of the kubelet compares with.

Go: pkg/kubelet/errors.go
"""

# Starts the message of a sync that failed because the runtime reports no working network. Pod workers look
# for it, because such a sync is worth retrying sooner than others.
NETWORK_NOT_READY_ERROR_MSG = "network is not ready"


class NetworkUnknownError(Exception):
    """The runtime has not reported its network's state yet."""

    def __init__(self) -> None:
        super().__init__("network state unknown")
