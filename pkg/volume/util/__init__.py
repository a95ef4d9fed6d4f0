"""Names and little helpers of volumes.

Go: pkg/volume/util
"""

from pkg.volume.util.util import (
    CONTROLLER_MANAGED_ATTACH_ANNOTATION,
    get_path,
    get_pod_volume_names,
    get_unique_pod_name,
    get_unique_volume_name_from_spec_with_pod,
    is_ready,
    set_ready,
    validate_path_no_backsteps,
)

__all__ = [
    "CONTROLLER_MANAGED_ATTACH_ANNOTATION",
    "get_path",
    "get_pod_volume_names",
    "get_unique_pod_name",
    "get_unique_volume_name_from_spec_with_pod",
    "is_ready",
    "set_ready",
    "validate_path_no_backsteps",
]
