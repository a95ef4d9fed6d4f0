"""Define the values of settings that several packages use.

Go: pkg/kubelet/types/constants.go
"""

import enum

RESOLV_CONF_DEFAULT = "/etc/resolv.conf"

# enforceNodeAllocatable may have these values.
NODE_ALLOCATABLE_ENFORCEMENT_KEY = "pods"
SYSTEM_RESERVED_ENFORCEMENT_KEY = "system-reserved"
SYSTEM_RESERVED_COMPRESSIBLE_ENFORCEMENT_KEY = "system-reserved-compressible"
KUBE_RESERVED_ENFORCEMENT_KEY = "kube-reserved"
KUBE_RESERVED_COMPRESSIBLE_ENFORCEMENT_KEY = "kube-reserved-compressible"
NODE_ALLOCATABLE_NONE_KEY = "none"


class SwapBehavior(enum.StrEnum):
    """Define how containers may use swap."""

    LIMITED_SWAP = "LimitedSwap"
    NO_SWAP = "NoSwap"


LIMITED_SWAP = SwapBehavior.LIMITED_SWAP
NO_SWAP = SwapBehavior.NO_SWAP

# The status message of a rejected pod begins with this text. Go has it in kubelet.go, rejectPod.
REJECTED_POD_MESSAGE = "Pod was rejected: "
