"""Errors that more than one file of the kubelet compares with.

Go: pkg/kubelet/errors.go
"""

# Starts the message of a NetworkNotReadyError.
NETWORK_NOT_READY_ERROR_MSG = "network is not ready"


class NotReadyError(Exception):
    """Why the node is not ready, or cannot sync pods now."""


class NetworkUnknownError(NotReadyError):
    """The runtime has not reported its network's state yet."""

    def __init__(self) -> None:
        super().__init__("network state unknown")


class NodeStatusError(Exception):
    """The node could not be read, or its status not be written; it is tried again."""


class PodStepError(Exception):
    """A step of a pod could not be finished; the pod's worker tries it again."""


class PodNotAdmittedError(PodStepError):
    """Nobody has found out yet whether the pod may run."""


class PodCgroupError(PodStepError):
    """The pod's cgroup cannot be made, or not yet."""


class StillRunningError(PodStepError):
    """The runtime has containers that run after it said that it stopped them."""


class NetworkNotReadyError(PodStepError):
    """The runtime reports no working network. The step is tried again sooner than others, for that may pass soon."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"{NETWORK_NOT_READY_ERROR_MSG}: {reason}")
