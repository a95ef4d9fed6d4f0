"""Fill the desired state with the volumes that pods need.

Go: pkg/kubelet/volumemanager/populator
"""

from kubelet.volumemanager.populator.desired_state_of_world_populator import (
    APIServerClaims,
    Claims,
    DesiredStateOfWorldPopulator,
    PodManager,
    PodStateProvider,
)

__all__ = ["APIServerClaims", "Claims", "DesiredStateOfWorldPopulator", "PodManager", "PodStateProvider"]
