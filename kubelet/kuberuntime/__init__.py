"""Convert pod specs to calls of a container runtime, and the runtime's state to pod statuses.

A good reading order is: kuberuntime_manager.py decides what a pod needs and does it; kuberuntime_container.py and
kuberuntime_sandbox.py carry out the single steps; kuberuntime_gc.py removes leftovers; and kuberuntime_build.py puts
all parts together.

Go: pkg/kubelet/kuberuntime
"""

from kubelet.kuberuntime.convert import to_kube_container_image_spec, to_runtime_api_image_spec
from kubelet.kuberuntime.helpers import (
    build_container_logs_directory,
    build_pod_logs_directory,
    get_backoff_key,
)
from kubelet.kuberuntime.kuberuntime_build import (
    ACTUATED_PODS_STATE_FILE,
    RuntimeManagerOptions,
    new_kube_generic_runtime_manager,
)
from kubelet.kuberuntime.kuberuntime_container import (
    REASON_LIVENESS_PROBE,
    REASON_STARTUP_PROBE,
    ErrCreateContainer,
    ErrCreateContainerConfig,
    ErrPostStartHook,
    ErrPreCreateHook,
    ErrPreStartHook,
    PodStateProvider,
    has_any_regular_container_created,
)
from kubelet.kuberuntime.kuberuntime_container_linux import get_hugepage_limits_from_resources
from kubelet.kuberuntime.kuberuntime_manager import (
    ErrVersionNotSupported,
    KubeGenericRuntimeManager,
    PodInitContainerTimeRecorder,
)
from kubelet.kuberuntime.legacy import LEGACY_CONTAINER_LOGS_DIR
from kubelet.kuberuntime.pod_actions import PodActions

__all__ = [
    "ACTUATED_PODS_STATE_FILE",
    "LEGACY_CONTAINER_LOGS_DIR",
    "REASON_LIVENESS_PROBE",
    "REASON_STARTUP_PROBE",
    "ErrCreateContainer",
    "ErrCreateContainerConfig",
    "ErrPostStartHook",
    "ErrPreCreateHook",
    "ErrPreStartHook",
    "ErrVersionNotSupported",
    "KubeGenericRuntimeManager",
    "PodActions",
    "PodInitContainerTimeRecorder",
    "PodStateProvider",
    "RuntimeManagerOptions",
    "build_container_logs_directory",
    "build_pod_logs_directory",
    "get_backoff_key",
    "get_hugepage_limits_from_resources",
    "has_any_regular_container_created",
    "new_kube_generic_runtime_manager",
    "to_kube_container_image_spec",
    "to_runtime_api_image_spec",
]
