"""What runs beside an API server and makes a cluster of it: as small as a kubelet can do with.

Each watches the store, does its work in threads of its own and ends them when it is told to stop.
"""

from framework.apiserver.controllers.garbage import GarbageCollector
from framework.apiserver.controllers.namespaces import Namespaces
from framework.apiserver.controllers.node_lifecycle import NodeLifecycle
from framework.apiserver.controllers.scheduler import Scheduler
from framework.apiserver.controllers.signing import Policy, Signing

__all__ = ["GarbageCollector", "Namespaces", "NodeLifecycle", "Policy", "Scheduler", "Signing"]
