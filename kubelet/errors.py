"""Define the errors that several files of the kubelet check for.

Go: pkg/kubelet/errors.go
"""

# The message of a NetworkNotReadyError begins with this text.
NETWORK_NOT_READY_ERROR_MSG = "network is not ready"


class NotReadyError(Exception):
    """Signal that the node is not ready, or cannot sync pods now."""


class NetworkUnknownError(NotReadyError):
    """Signal that the runtime has not reported the state of its network yet."""

    def __init__(self) -> None:
        super().__init__("network state unknown")


class NodeStatusError(Exception):
    """Signal that the node could not be read or its status not written; the kubelet tries again."""


class PodStepError(Exception):
    """Signal that a step of a pod could not be finished; the pod's worker tries again."""


class PodNotAdmittedError(PodStepError):
    """Signal that the pod still waits for a decision about its admission."""


class PodCgroupError(PodStepError):
    """Signal that the pod's cgroup cannot be created, at least not now."""


class StillRunningError(PodStepError):
    """Signal that containers still run after the runtime reported that it stopped them."""


class NetworkNotReadyError(PodStepError):
    """Signal that the runtime reports no working network.

    The worker retries this step sooner than others, because the network may be ready soon.
    """

    def __init__(self, reason: object) -> None:
        super().__init__(f"{NETWORK_NOT_READY_ERROR_MSG}: {reason}")
