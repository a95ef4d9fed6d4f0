"""What runs beside an API server and makes a cluster of it: as small as a kubelet can do with.

Each watches the store, does its work in threads of its own and ends them when it is told to stop.
"""

from .attach_detach import AttachDetach
from .disruption import Disruption
from .ephemeral_claims import EphemeralClaims
from .garbage import GarbageCollector
from .namespaces import Namespaces
from .node_lifecycle import NodeLifecycle
from .pod_garbage import PodGarbageCollector
from .scheduler import Scheduler
from .signing import Policy, Signing
from .volume_binder import VolumeBinder

__all__ = [
    "AttachDetach",
    "Disruption",
    "EphemeralClaims",
    "GarbageCollector",
    "Namespaces",
    "NodeLifecycle",
    "PodGarbageCollector",
    "Policy",
    "Scheduler",
    "Signing",
    "VolumeBinder",
]
