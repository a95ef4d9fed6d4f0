"""Build a runtime manager and all its parts, in the order of their dependencies.

Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go (NewKubeGenericRuntimeManager)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import cadvisor as cadvisorapi
from kubelet import cm, lifecycle, runtimeclass
from kubelet import container as kubecontainer
from kubelet import images as kubeimages
from kubelet.allocation import state
from kubelet.cri import apis as internalapi
from kubelet.images import pullmanager
from kubelet.kuberuntime.instrumented_services import (
    InstrumentedImageManagerService,
    InstrumentedRuntimeService,
    NullRuntimeObserver,
    RuntimeObserver,
)
from kubelet.kuberuntime.kuberuntime_container import PodStateProvider
from kubelet.kuberuntime.kuberuntime_container_linux import check_swap_controller_availability
from kubelet.kuberuntime.kuberuntime_gc import ContainerGC
from kubelet.kuberuntime.kuberuntime_image import ImageMethods
from kubelet.kuberuntime.kuberuntime_manager import (
    KUBE_RUNTIME_API_VERSION,
    ErrVersionNotSupported,
    KubeGenericRuntimeManager,
    PodInitContainerTimeRecorder,
    get_typed_version,
)
from kubelet.logs import container_log_manager
from kubelet.prober import results as proberesults
from kubelet.util import cache as objectcache
from pkg import credentialprovider, features, golang, klog
from pkg.apimachinery import clock
from pkg.apimachinery.api import resource
from pkg.client_go.tools import record
from pkg.client_go.util import flowcontrol
from pkg.component_base import tracing
from pkg.component_base.logs import logreduction

# This file, below the kubelet's root directory, holds the actuated resources.
ACTUATED_PODS_STATE_FILE = "actuated_pods_state"

_INSTRUMENTATION_SCOPE = "k8s.io/kubernetes/pkg/kubelet/kuberuntime"
# `_IDENTICAL_ERROR_DELAY` is the time, in seconds, in which the same error of one pod is logged only once.
_IDENTICAL_ERROR_DELAY = 60.0
# `_VERSION_CACHE_TTL` is the time, in seconds, for which the runtime's version is cached.
_VERSION_CACHE_TTL = 60.0

NewHandlerRunner = Callable[
    [lifecycle.HTTPDoer, kubecontainer.CommandRunner, lifecycle.PodStatusProvider, record.EventRecorder],
    kubecontainer.HandlerRunner,
]


@dataclass(kw_only=True, slots=True)
class RuntimeManagerOptions:
    """Hold the parameters of Go's NewKubeGenericRuntimeManager under the same names."""

    recorder: record.EventRecorder
    liveness_manager: proberesults.Manager
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
    # `external_credentials` finds a pod's credentials with the node's credential providers; it is None without
    # providers.
    external_credentials: kubeimages.ExternalCredentials | None
    # False makes the kernel kill all processes of a container together. True and None make it kill single processes.
    single_process_oom_kill: bool | None
    cpu_cfs_quota: bool
    # The unit is seconds.
    cpu_cfs_quota_period: float
    runtime_service: internalapi.RuntimeService
    image_service: internalapi.ImageManagerService
    container_manager: cm.ContainerManager
    log_manager: container_log_manager.ContainerLogManager
    # `runtime_class_manager` is None without an API server, because there are no RuntimeClasses then.
    runtime_class_manager: runtimeclass.Manager | None
    seccomp_default: bool
    # `read_rotated_logs` tells whether readers of a container's log also get the rotated files.
    read_rotated_logs: bool
    memory_swap_behavior: str
    get_node_allocatable: Callable[[], Mapping[str, resource.Quantity]]
    memory_throttling_factor: float
    memory_reservation_policy: str
    pod_pulling_time_recorder: kubeimages.ImagePodPullingTimeRecorder
    pod_init_container_time_recorder: PodInitContainerTimeRecorder | None = None
    # This function reports whether the kernel can limit swap. The check happens at the first call.
    get_swap_controller_available: Callable[[], bool] = field(
        default_factory=lambda: cache(check_swap_controller_availability)
    )
    # This factory makes the object that runs the hooks of containers.
    new_handler_runner: NewHandlerRunner = lifecycle.HandlerRunner
    # The observer receives a report on each call to the runtime; None means that there is no observer.
    runtime_observer: RuntimeObserver | None = None
    clock: clock.Clock = field(default_factory=clock.RealClock)
    tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER


def new_kube_generic_runtime_manager(
    ctx: golang.Context, options: RuntimeManagerOptions
) -> tuple[KubeGenericRuntimeManager, list[kubeimages.PostImageGCHook]]:
    """Build a runtime manager; return it with the hooks that must run after each image garbage collection.

    The function requests the runtime's version. The manager uses ctx for later requests of its own. Raise
    crierror.RemoteError, ErrVersionNotSupported, ValueError or OSError.
    """
    observer = options.runtime_observer if options.runtime_observer is not None else NullRuntimeObserver()
    runtime_service = InstrumentedRuntimeService(options.runtime_service, observer)
    image_service = InstrumentedImageManagerService(options.image_service, observer)
    actuated_state = state.StateCheckpoint(options.root_directory, ACTUATED_PODS_STATE_FILE)
    internal_lifecycle = options.container_manager.internal_container_lifecycle()
    runtime_name = _connect(ctx, runtime_service).runtime_name
    images = ImageMethods(image_service=image_service)
    pull_manager, image_gc_hooks = _new_image_pull_manager(ctx, options, images)
    # The hook runner and the garbage collector need the manager before it exists, but use it only later.
    stand_in = golang.StandIn(KubeGenericRuntimeManager)
    manager = stand_in.cast()
    runtime = KubeGenericRuntimeManager(
        runtime_name=runtime_name,
        runtime_service=runtime_service,
        image_service=image_service,
        recorder=options.recorder,
        observer=observer,
        liveness_manager=options.liveness_manager,
        startup_manager=options.startup_manager,
        seccomp_profile_root=os.path.join(options.root_directory, "seccomp"),
        pod_logs_directory=options.pod_logs_directory,
        machine_info=options.machine_info,
        pod_state_provider=options.pod_state_provider,
        os_interface=options.os_interface,
        runtime_helper=options.runtime_helper,
        single_process_oom_kill=options.single_process_oom_kill,
        cpu_cfs_quota=options.cpu_cfs_quota,
        cpu_cfs_quota_period=options.cpu_cfs_quota_period,
        container_manager=options.container_manager,
        actuated_state=actuated_state,
        internal_lifecycle=internal_lifecycle,
        log_manager=options.log_manager,
        runtime_class_manager=options.runtime_class_manager,
        seccomp_default=options.seccomp_default,
        read_rotated_logs=options.read_rotated_logs,
        memory_swap_behavior=options.memory_swap_behavior,
        get_node_allocatable=options.get_node_allocatable,
        get_swap_controller_available=options.get_swap_controller_available,
        memory_throttling_factor=options.memory_throttling_factor,
        memory_reservation_policy=options.memory_reservation_policy,
        pod_init_container_time_recorder=options.pod_init_container_time_recorder,
        clock=options.clock,
        log_reduction=logreduction.LogReduction(_IDENTICAL_ERROR_DELAY),
        image_puller=_new_image_manager(options, images, pull_manager),
        runner=options.new_handler_runner(
            options.insecure_container_lifecycle_http_client, manager, manager, options.recorder
        ),
        container_gc=_new_container_gc(options, runtime_service, runtime_name, manager),
        version_cache=objectcache.ObjectCache(
            lambda: get_typed_version(ctx, runtime_service), _VERSION_CACHE_TTL, options.clock
        ),
    )
    stand_in.become(runtime)
    return runtime, image_gc_hooks


def _connect(ctx: golang.Context, runtime_service: internalapi.RuntimeService) -> runtimeapi.VersionResponse:
    """Return the runtime's name and versions. Raise ErrVersionNotSupported and the errors of get_typed_version."""
    version = get_typed_version(ctx, runtime_service)
    if version.version != KUBE_RUNTIME_API_VERSION:
        klog.error_s(
            None,
            "This runtime api version is not supported",
            apiVersion=version.version,
            supportedAPIVersion=KUBE_RUNTIME_API_VERSION,
        )
        raise ErrVersionNotSupported
    klog.info_s(
        "Container runtime initialized",
        containerRuntime=version.runtime_name,
        version=version.runtime_version,
        apiVersion=version.runtime_api_version,
    )
    return version


def _new_image_pull_manager(
    ctx: golang.Context, options: RuntimeManagerOptions, images: kubecontainer.ImageService
) -> tuple[pullmanager.ImagePullManager, list[kubeimages.PostImageGCHook]]:
    """Return the image pull manager, and its hooks for the end of image garbage collection."""
    if not features.feature_gate.enabled(features.KUBELET_ENSURE_SECRET_PULLED_IMAGES):
        return pullmanager.NoopImagePullManager(), []
    manager = pullmanager.PullManager(
        ctx,
        pullmanager.FSPullRecordsAccessor(options.root_directory),
        pullmanager.image_pull_credential_verification_policy(
            options.image_pulls_credential_verification_policy,
            options.preloaded_images_credential_verification_whitelist,
        ),
        images,
        options.clock,
    )
    return manager, [manager.prune_unknown_records]


def _new_image_manager(
    options: RuntimeManagerOptions,
    images: kubecontainer.ImageService,
    pull_manager: pullmanager.ImagePullManager,
) -> kubeimages.ImageManager:
    return kubeimages.ImageManager(
        kubecontainer.filter_event_recorder(options.recorder),
        credentialprovider.default_docker_keyring(),
        images,
        pull_manager,
        options.image_back_off,
        options.serialize_image_pulls,
        options.max_parallel_image_pulls,
        options.image_pull_qps,
        options.image_pull_burst,
        options.pod_pulling_time_recorder,
        options.external_credentials,
        options.pull_critical_images_first,
    )


def _new_container_gc(
    options: RuntimeManagerOptions,
    runtime_service: internalapi.RuntimeService,
    runtime_name: str,
    manager: KubeGenericRuntimeManager,
) -> ContainerGC:
    return ContainerGC(
        runtime_service=runtime_service,
        manager=manager,
        pod_state_provider=options.pod_state_provider,
        os_interface=options.os_interface,
        runtime_name=runtime_name,
        pod_logs_directory=options.pod_logs_directory,
        clock=options.clock,
        tracer=options.tracer_provider.tracer(_INSTRUMENTATION_SCOPE),
    )
