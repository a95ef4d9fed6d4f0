"""Run the controllers that turn an API server into a cluster, as far as a kubelet needs them.

Each controller watches the store, does its work in its own threads, and ends them in `stop`.
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
