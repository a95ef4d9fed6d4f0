"""Set the parts of a node's status.

Go: pkg/kubelet/nodestatus
"""

from kubelet.nodestatus.setters import (
    ANNOTATION_ALPHA_PROVIDED_IP_ADDR,
    GOOS,
    MAX_NAMES_PER_IMAGE_IN_NODE_STATUS,
    Setter,
    daemon_endpoints,
    disk_pressure_condition,
    go_runtime,
    goarch,
    images,
    machine_info,
    memory_pressure_condition,
    node_address,
    node_features,
    pid_pressure_condition,
    ready_condition,
    runtime_handlers,
    version_info,
    volumes_in_use,
)

__all__ = [
    "ANNOTATION_ALPHA_PROVIDED_IP_ADDR",
    "GOOS",
    "MAX_NAMES_PER_IMAGE_IN_NODE_STATUS",
    "Setter",
    "daemon_endpoints",
    "disk_pressure_condition",
    "go_runtime",
    "goarch",
    "images",
    "machine_info",
    "memory_pressure_condition",
    "node_address",
    "node_features",
    "pid_pressure_condition",
    "ready_condition",
    "runtime_handlers",
    "version_info",
    "volumes_in_use",
]
