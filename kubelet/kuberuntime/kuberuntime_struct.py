"""The fields of the runtime manager, and what it is built from.

Go declares the struct in kuberuntime_manager.go and spreads its methods over several files. Here the methods
of each
file are a class over these fields, and each class inherits the one before it:
KubeRuntimeStruct → helpers → security context → container (Linux) → sandbox (Linux) → sandbox → images → logs
→
container → KubeGenericRuntimeManager.

Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go (type kubeGenericRuntimeManager)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from kubelet import cadvisor as cadvisorapi
from kubelet import cm, lifecycle, runtimeclass
from kubelet import container as kubecontainer
from kubelet import images as kubeimages
from kubelet.allocation import state
from kubelet.cri import apis as internalapi
from kubelet.kuberuntime.instrumented_services import (
    InstrumentedImageManagerService,
    InstrumentedRuntimeService,
    NullRuntimeObserver,
    RuntimeObserver,
)
from kubelet.logs import container_log_manager
from kubelet.prober import results as proberesults
from pkg.apimachinery import clock
from pkg.apimachinery.api import resource
from pkg.client_go.tools import record
from pkg.client_go.util import flowcontrol
from pkg.component_base import tracing
from pkg.component_base.logs import logreduction

# The file below the kubelet's root directory that says which resources are in force.
ACTUATED_PODS_STATE_FILE = "actuated_pods_state"

# How often the same error of one pod is logged, in seconds.
_IDENTICAL_ERROR_DELAY = 60.0


class PodStateProvider(Protocol):
    """Answers by pod workers about what of a pod may go."""

    def is_pod_termination_requested(self, uid: str) -> bool: ...

    def should_pod_content_be_removed(self, uid: str) -> bool: ...

    def should_pod_runtime_be_removed(self, uid: str) -> bool: ...


class PodInitContainerTimeRecorder(Protocol):
    """Told when init containers run, so that start-up latency can leave that out."""

    def record_init_container_started(self, pod_uid: str, started_at: datetime) -> None: ...

    def record_init_container_finished(self, pod_uid: str, finished_at: datetime) -> None: ...


@dataclass(kw_only=True, slots=True)
class RuntimeManagerOptions:
    """The parameters of Go's NewKubeGenericRuntimeManager, under their names."""

    recorder: record.EventRecorder
    liveness_manager: proberesults.Manager
    readiness_manager: proberesults.Manager
    startup_manager: proberesults.Manager
    root_directory: str
    pod_logs_directory: str
    machine_info: cadvisorapi.MachineInfo
    pod_state_provider: PodStateProvider
    os_interface: kubecontainer.OSInterface
    runtime_helper: kubecontainer.RuntimeHelper
    insecure_container_lifecycle_http_client: lifecycle.HTTPDoer
    image_back_off: flowcontrol.Backoff
    serialize_image_pulls: bool
    max_parallel_image_pulls: int | None
    pull_critical_images_first: bool
    image_pull_qps: float
    image_pull_burst: int
    image_pulls_credential_verification_policy: str
    preloaded_images_credential_verification_whitelist: list[str]
    # What the node's credential providers have for a pod; None without providers.
    external_credentials: kubeimages.ExternalCredentials | None
    # None means True: the kernel kills single processes. False has it kill whole containers.
    single_process_oom_kill: bool | None
    cpu_cfs_quota: bool
    # Seconds.
    cpu_cfs_quota_period: float
    runtime_service: internalapi.RuntimeService
    image_service: internalapi.ImageManagerService
    container_manager: cm.ContainerManager
    log_manager: container_log_manager.ContainerLogManager
    # None without an API server: there are no RuntimeClasses then.
    runtime_class_manager: runtimeclass.Manager | None
    seccomp_default: bool
    # Whether who reads a container's log gets what was rotated away, too.
    read_rotated_logs: bool
    memory_swap_behavior: str
    get_node_allocatable: Callable[[], Mapping[str, resource.Quantity]]
    memory_throttling_factor: float
    memory_reservation_policy: str
    pod_pulling_time_recorder: kubeimages.ImagePodPullingTimeRecorder
    pod_init_container_time_recorder: PodInitContainerTimeRecorder | None = None
    # Who is told what the runtime is asked to do; None for nobody.
    runtime_observer: RuntimeObserver | None = None
    clock: clock.Clock = field(default_factory=clock.RealClock)
    tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER


class KubeRuntimeStruct:
    """Everything is set once and read by any thread."""

    image_puller: kubeimages.ImageManager
    runner: kubecontainer.HandlerRunner
    # Whether the kernel can limit swap; looked up at the first use.
    get_swap_controller_available: Callable[[], bool]

    def __init__(self, options: RuntimeManagerOptions) -> None:
        self.recorder = options.recorder
        self.liveness_manager = options.liveness_manager
        self.readiness_manager = options.readiness_manager
        self.startup_manager = options.startup_manager
        self.seccomp_profile_root = os.path.join(options.root_directory, "seccomp")
        self.pod_logs_directory = options.pod_logs_directory
        self.machine_info = options.machine_info
        self.pod_state_provider = options.pod_state_provider
        self.os_interface = options.os_interface
        self.runtime_helper = options.runtime_helper
        self.single_process_oom_kill = options.single_process_oom_kill
        self.cpu_cfs_quota = options.cpu_cfs_quota
        self.cpu_cfs_quota_period = options.cpu_cfs_quota_period
        self.observer = options.runtime_observer if options.runtime_observer is not None else NullRuntimeObserver()
        self.runtime_service: internalapi.RuntimeService = InstrumentedRuntimeService(
            options.runtime_service, self.observer
        )
        self.image_service: internalapi.ImageManagerService = InstrumentedImageManagerService(
            options.image_service, self.observer
        )
        self.container_manager = options.container_manager
        # What is in force by all we know, over restarts too.
        self.actuated_state: state.State = state.StateCheckpoint(options.root_directory, ACTUATED_PODS_STATE_FILE)
        self.internal_lifecycle = options.container_manager.internal_container_lifecycle()
        self.log_manager = options.log_manager
        self.runtime_class_manager = options.runtime_class_manager
        self.seccomp_default = options.seccomp_default
        self.read_rotated_logs = options.read_rotated_logs
        self.memory_swap_behavior = options.memory_swap_behavior
        self.get_node_allocatable = options.get_node_allocatable
        self.memory_throttling_factor = options.memory_throttling_factor
        self.memory_reservation_policy = options.memory_reservation_policy
        self.pod_init_container_time_recorder = options.pod_init_container_time_recorder
        self.clock = options.clock
        self.log_reduction = logreduction.LogReduction(_IDENTICAL_ERROR_DELAY)
        # The runtime's name, which container ids begin with; known once it has answered.
        self.runtime_name = ""
