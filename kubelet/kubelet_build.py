"""Build a kubelet from its parts, in the order in which the parts depend on each other.

Go: pkg/kubelet/kubelet.go (NewMainKubelet and what it calls)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kubelet import (
    allocation,
    clustertrustbundle,
    config,
    eviction,
    images,
    kuberuntime,
    lifecycle,
    logs,
    nodeshutdown,
    preemption,
    prober,
    runtimeclass,
    server,
    standalone,
    stats,
    status,
    sysctl,
    userns,
    util,
)
from kubelet import container as kubecontainer
from kubelet import pleg as kubepleg
from kubelet import pod as kubepod
from kubelet import types as kubetypes
from kubelet.active_deadline import ActiveDeadlineHandler
from kubelet.apis import config as kubeletconfig
from kubelet.apis.pluginregistration import v1 as pluginregistration
from kubelet.kubelet import HOUSEKEEPING_PERIOD, HOUSEKEEPING_WARNING_DURATION, Kubelet
from kubelet.kubelet_dependencies import Dependencies
from kubelet.kubelet_getters import KubeletDirectories, KubeletGetters
from kubelet.kubelet_mounts import get_etc_hosts_path
from kubelet.kubelet_node_declared_features import discover_node_declared_features
from kubelet.network import dns
from kubelet.orphan_removal import OrphanRemoval
from kubelet.pluginmanager import PluginManager
from kubelet.pod_container_deletor import PodContainerDeletor
from kubelet.pod_workers import PodWorkers, kill_pod_now
from kubelet.prober import results as proberesults
from kubelet.reason_cache import ReasonCache
from kubelet.runtime import RuntimeState
from kubelet.server import stats as serverstats
from kubelet.util import queue
from kubelet.util.pod_startup_latency_tracker import BasicPodStartupLatencyTracker
from kubelet.volume_host import KubeletVolumeHost, follow_csi_drivers
from kubelet.volumemanager import VolumeManager, populator
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.apimachinery import types
from pkg.apimachinery.util import net as utilnet
from pkg.apimachinery.util import version as utilversion
from pkg.client_go.util import flowcontrol
from pkg.component_base import version
from pkg.component_helpers import nodedeclaredfeatures
from pkg.security import apparmor
from pkg.volume import csi
from pkg.volume.util import operationexecutor, volumepathhandler

if TYPE_CHECKING:
    from kubelet import configmap, secret, token
    from kubelet.certificate import KubeletServerCertificateDynamicFileManager
    from pkg import volume as pkgvolume
    from pkg.client_go import kubernetes
    from pkg.client_go.informers.internalinterfaces import TweakListOptionsFunc
    from pkg.client_go.util import certificate
    from pkg.component_helpers.apimachinery import lease

# All times in this module are in seconds.
MAX_WAIT_FOR_CONTAINER_RUNTIME = 30.0
# The node renews its lease after this fraction of the lease's duration.
NODE_LEASE_RENEW_INTERVAL_FRACTION = 0.25
RUNTIME_CACHE_REFRESH_PERIOD = HOUSEKEEPING_PERIOD + HOUSEKEEPING_WARNING_DURATION

BACK_OFF_PERIOD = 10.0
INITIAL_CRASH_LOOP_BACK_OFF = 10.0
MAX_CRASH_LOOP_BACK_OFF = 300.0
# These values apply with the feature gate ReduceDefaultCrashLoopBackOffDecay.
REDUCED_INITIAL_CRASH_LOOP_BACK_OFF = 1.0
REDUCED_MAX_CRASH_LOOP_BACK_OFF = 60.0
# After a container has run for this time, the backoff of its restarts starts again.
CRASH_LOOP_BACK_OFF_EXPIRY = 600.0
MAX_IMAGE_BACK_OFF = 300.0

INSTRUMENTATION_SCOPE = "k8s.io/kubernetes/pkg/kubelet"
PLEG_CHANNEL_CAPACITY = 1000
GENERIC_PLEG_RELIST_PERIOD = 1.0
GENERIC_PLEG_RELIST_THRESHOLD = 180.0
EVENTED_PLEG_RELIST_PERIOD = 300.0
EVENTED_PLEG_RELIST_THRESHOLD = 600.0
EVENTED_PLEG_MAX_STREAM_RETRIES = 5

MIN_DEAD_CONTAINER_IN_POD = 1
# With this value of --cloud-provider, another program provides the node's addresses.
EXTERNAL_CLOUD_PROVIDER = "external"


@dataclass(kw_only=True, slots=True)
class KubeletOptions:
    """Hold the settings that come from flags instead of the configuration file. Times are in seconds."""

    hostname: str
    node_name: str
    node_ips: list[utilnet.IPAddress]
    root_directory: str
    node_labels: dict[str, str] = field(default_factory=dict)
    minimum_gc_age: float = 0.0
    max_per_pod_container_count: int = 1
    max_container_count: int = -1
    seccomp_default: bool = False
    # If this flag is set, pods may together use what the hard eviction thresholds reserve.
    ignore_eviction_threshold: bool = False
    keep_terminated_pod_volumes: bool = False
    cloud_provider: str = ""
    cert_directory: str = ""
    image_credential_provider_config_path: str = ""
    image_credential_provider_bin_dir: str = ""
    pull_critical_images_first: bool = False
    read_rotated_logs: bool = False


@dataclass(kw_only=True, slots=True)
class APIObjects:
    """Hold the API objects other than pods that the kubelet watches; the defaults stand for none."""

    node_lister: kubepod.NodeGetter | None = None
    node_has_synced: Callable[[], bool] = lambda: True
    service_lister: Callable[[], list[v1.Service]] | None = None
    service_has_synced: Callable[[], bool] = lambda: True
    # `on_volumes_attached_change` registers a callback for changes of the set of volumes attached to the node.
    on_volumes_attached_change: Callable[[Callable[[], None]], None] = lambda func: None


# The classes below are results of the builder's methods. Each field becomes the kubelet's field of the same name.


@dataclass(frozen=True, kw_only=True)
class ObjectManagers:
    """Hold the managers of the secrets and config maps to which pods refer."""

    secret_manager: secret.Manager | None = None
    config_map_manager: configmap.Manager | None = None


@dataclass(frozen=True, kw_only=True)
class PodState:
    """Hold the parts that know the state of pods: specs, statuses, probe results, and the runtime's view."""

    liveness_manager: proberesults.Manager
    readiness_manager: proberesults.Manager
    startup_manager: proberesults.Manager
    pod_cache: kubecontainer.Cache
    pod_manager: kubepod.Manager
    mirror_pod_client: kubepod.MirrorClient
    status_manager: status.Manager
    allocation_manager: allocation.Manager
    reason_cache: ReasonCache


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Hold the pod workers and their queue."""

    work_queue: queue.WorkQueue
    pod_workers: PodWorkers


@dataclass(frozen=True, kw_only=True)
class RuntimeParts:
    """Hold the container runtime and the parts that work directly on it: logs, caches and images."""

    runtime_class_manager: runtimeclass.Manager | None
    container_log_manager: logs.ContainerLogManager
    container_runtime: kubecontainer.Runtime
    streaming_runtime: kubecontainer.StreamingRuntime
    runner: kubecontainer.CommandRunner
    runtime_cache: kubecontainer.RuntimeCache
    image_manager: images.ImageGCManager
    image_back_off: flowcontrol.Backoff


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Hold the parts that provide statistics."""

    resource_analyzer: serverstats.ResourceAnalyzer
    host_stats_provider: stats.HostStatsProvider
    stats_provider: stats.Provider


@dataclass(frozen=True, kw_only=True)
class EventGenerators:
    """Hold the parts that detect changes of containers."""

    pleg: kubepleg.PodLifecycleEventGenerator
    evented_pleg: kubepleg.EventedPLEG | None = None


@dataclass(frozen=True, kw_only=True)
class GarbageCollectors:
    """Hold the parts that remove the remains of pods."""

    container_gc: kubecontainer.GC
    container_deletor: PodContainerDeletor
    orphan_removal: OrphanRemoval


@dataclass(frozen=True, kw_only=True)
class VolumeParts:
    """Hold the parts that manage volumes and find their plugins."""

    volume_manager: VolumeManager
    plugin_manager: PluginManager


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Hold the server's certificate manager and TLS settings; both are None without a server."""

    server_certificate_manager: certificate.Manager | KubeletServerCertificateDynamicFileManager | None = None
    tls_config: server.TLSConfig | None = None


def new_main_kubelet(
    ctx: golang.Context,
    kube_cfg: kubeletconfig.KubeletConfiguration,
    kube_deps: Dependencies,
    options: KubeletOptions,
    new_builder: Callable[..., PartsBuilder] | None = None,
) -> Kubelet:
    """Return a kubelet that the given builder, or the default one, has built.

    The threads of the sources start here, all others start in `run`; all of them end with ctx.

    Raise ValueError for an inconsistent configuration. Raise the runtime's error if the runtime is unreachable or has
    an incompatible version.
    """
    return (new_builder or PartsBuilder)(ctx, kube_cfg, kube_deps, options).build()


class PartsBuilder:
    """Build the parts of a kubelet, each in its own method, and assemble them.

    A method builds its parts from its arguments and from what all methods share: the context, the configuration, the
    dependencies and the options. A part that has to call the kubelet later gets `klet`. A test replaces parts with a
    subclass.
    """

    # A failed pod is synced again after `back_off_period` seconds, and `relist_period` seconds pass between two
    # relists.
    back_off_period = BACK_OFF_PERIOD
    relist_period = GENERIC_PLEG_RELIST_PERIOD

    def __init__(
        self,
        ctx: golang.Context,
        kube_cfg: kubeletconfig.KubeletConfiguration,
        kube_deps: Dependencies,
        options: KubeletOptions,
    ) -> None:
        """Check the configuration. Raise ValueError if it is invalid."""
        if not options.root_directory:
            raise ValueError(f'invalid root directory "{options.root_directory}"')
        if kube_cfg.sync_frequency <= 0:
            raise ValueError(f"invalid sync frequency {kube_cfg.sync_frequency}")
        self.ctx, self.kube_cfg, self.kube_deps, self.options = ctx, kube_cfg, kube_deps, options
        self.clock, self.recorder, self.client = kube_deps.clock, kube_deps.recorder, kube_deps.kube_client
        self.node_ref = v1.ObjectReference(api_version="v1", kind="Node", name=options.node_name)
        assert kube_deps.container_manager is not None
        self.container_manager = kube_deps.container_manager
        # The volume manager sends here when the set of volumes in use has changed.
        self.volumes_in_use_changed: golang.Channel[None] = golang.Channel(1)
        self.directories = KubeletDirectories(root_directory=os.path.normpath(options.root_directory))
        self.startup_tracker = BasicPodStartupLatencyTracker()
        self._stand_in = golang.StandIn(Kubelet)
        self.klet = self._stand_in.cast()

    def build(self) -> Kubelet:
        """Build the kubelet as new_main_kubelet describes.

        Go: NewMainKubelet
        """
        # The object store holds the objects other than pods in the manifest directory of a node without an API server.
        object_store = standalone.ObjectStore() if self.client is None else None
        api_objects = self.watch_api_objects()
        pod_config = self.new_pod_config(api_objects, object_store)
        sources_ready = config.SourcesImpl(pod_config.seen_all_sources)
        pods = self.new_pod_state(api_objects, sources_ready)
        objects = self.new_object_managers(pods.pod_manager, object_store)
        tokens = self.new_token_manager()
        workers = self.new_workers(pods)
        runtime_state = RuntimeState(MAX_WAIT_FOR_CONTAINER_RUNTIME, self.clock)
        figures = self.new_figures()
        runtime = self.new_runtime(pods, workers.pod_workers, tokens, figures.stats_provider)
        generators = self.new_pleg(runtime.container_runtime, pods.pod_cache, runtime_state)
        garbage = self.new_garbage_collection(runtime.container_runtime, sources_ready)
        serving = self.new_serving()
        host = self.new_volume_host(objects, tokens, runtime_state, pods.allocation_manager)
        volumes = self.new_volumes(host, pods.pod_manager, workers.pod_workers, api_objects, object_store)
        evictions = self.new_eviction_manager(
            workers.pod_workers, runtime.image_manager, garbage.container_gc, figures.resource_analyzer
        )
        shutdown = self.new_shutdown_manager(workers.pod_workers, volumes.volume_manager)
        deadline = ActiveDeadlineHandler(pods.status_manager, self.recorder, self.clock)
        pods.allocation_manager.add_pod_admit_handlers(
            self.new_admit_handlers(
                pods, workers.pod_workers, runtime.container_runtime, runtime_state, evictions, shutdown
            )
        )
        kubelet = self.put_together(
            api_objects,
            pod_config,
            sources_ready=sources_ready,
            runtime_state=runtime_state,
            probe_manager=self.new_probe_manager(pods, runtime.runner),
            eviction_manager=evictions,
            shutdown_manager=shutdown,
            pod_sync_loop_handlers=[deadline],
            pod_sync_handlers=[deadline],
            userns_manager=self.new_userns_manager(pods, runtime, runtime_state, volumes.volume_manager),
            **_named(objects, pods, workers, runtime, figures, generators, garbage, serving, volumes),
        )
        self._stand_in.become(kubelet)
        return kubelet

    def put_together(self, api_objects: APIObjects, pod_config: config.PodConfig, **parts: Any) -> Kubelet:
        """Assemble the kubelet from its parts, which have the names of its fields, and from what all parts share."""
        kube_cfg, kube_deps, options = self.kube_cfg, self.kube_deps, self.options
        oom_watcher = kube_deps.new_oom_watcher(self.recorder) if kube_deps.new_oom_watcher is not None else None
        return Kubelet(
            kubelet_configuration=kube_cfg,
            hostname=options.hostname,
            node_name=options.node_name,
            node_ips=options.node_ips,
            node_ref=self.node_ref,
            node_labels=options.node_labels,
            root_directory=self.directories.get_root_dir(),
            pod_logs_directory=kube_cfg.pod_logs_dir,
            clock=self.clock,
            recorder=self.recorder,
            kube_client=self.client,
            heartbeat_client=kube_deps.heartbeat_client,
            on_repeated_heartbeat_failure=kube_deps.on_heartbeat_failure,
            node_lister=api_objects.node_lister,
            node_has_synced=api_objects.node_has_synced,
            service_lister=api_objects.service_lister,
            service_has_synced=api_objects.service_has_synced,
            node_status_update_frequency=kube_cfg.node_status_update_frequency,
            node_status_report_frequency=kube_cfg.node_status_report_frequency,
            node_lease_controller=self.new_node_lease_controller(),
            external_cloud_provider=options.cloud_provider == EXTERNAL_CLOUD_PROVIDER,
            failed=kube_deps.failed,
            health_checker=kube_deps.health_checker,
            runtime_service=kube_deps.remote_runtime_service,
            cadvisor=kube_deps.cadvisor_interface,
            oom_watcher=oom_watcher,
            os=kube_deps.os_interface,
            mounter=kube_deps.mounter,
            hostutil=kube_deps.hostutil,
            subpather=kube_deps.subpather,
            container_manager=self.container_manager,
            dns_configurer=self.new_dns_configurer(),
            new_iptables=kube_deps.new_iptables if kube_cfg.make_iptables_util_chains else None,
            tracer=kube_deps.tracer_provider.tracer(INSTRUMENTATION_SCOPE),
            observers=kube_deps.observers,
            crash_loop_back_off=self.new_crash_loop_back_off(),
            pod_config=pod_config,
            resync_interval=kube_cfg.sync_frequency,
            cgroups_per_qos=self.container_manager.get_node_config().cgroups_per_qos,
            max_pods=kube_cfg.max_pods,
            keep_terminated_pod_volumes=options.keep_terminated_pod_volumes,
            volumes_in_use_changed=self.volumes_in_use_changed,
            **parts,
        )

    # ---- Parts ----

    def watch_api_objects(self) -> APIObjects:
        """Watch this node's object, and the services whose variables pods get, until ctx ends."""
        if self.client is None:
            klog.info_s("Kubelet is running in standalone mode, will skip API server sync")
            return APIObjects()
        return _watch_api_objects(self.ctx, self.client, self.options.node_name)

    def new_pod_config(self, api_objects: APIObjects, object_store: standalone.ObjectStore | None) -> config.PodConfig:
        """Return the given pod config, or start the sources that the configuration lists."""
        return self.kube_deps.pod_config or make_pod_source_config(
            self.ctx,
            self.kube_cfg,
            self.kube_deps,
            self.options.node_name,
            api_objects.node_has_synced,
            self.startup_tracker,
            object_store,
        )

    def new_pod_state(self, api_objects: APIObjects, sources_ready: config.SourcesReady) -> PodState:
        klet = self.klet
        pod_manager = kubepod.BasicManager()
        status_manager = status.Manager(self.client, pod_manager, klet, self.startup_tracker)
        return PodState(
            liveness_manager=proberesults.Manager(),
            readiness_manager=proberesults.Manager(),
            startup_manager=proberesults.Manager(),
            pod_cache=kubecontainer.CacheImpl(),
            pod_manager=pod_manager,
            mirror_pod_client=kubepod.BasicMirrorClient(self.client, self.options.node_name, api_objects.node_lister),
            status_manager=status_manager,
            allocation_manager=allocation.Manager(
                self.directories.get_root_dir(),
                status_manager,
                lambda pod: klet.sync_pod_now(pod),
                lambda: klet.get_active_pods(),
                pod_manager.get_pod_by_uid,
                sources_ready,
                self.recorder,
                self.clock,
            ),
            reason_cache=ReasonCache(),
        )

    def new_object_managers(
        self, pod_manager: kubepod.Manager, object_store: standalone.ObjectStore | None
    ) -> ObjectManagers:
        """Return the managers of secrets and config maps. Raise ValueError for an unknown change detection strategy."""
        if object_store is not None:
            return new_standalone_objects(object_store, pod_manager, lambda pod: self.klet.retry_pod_now(pod))
        if self.client is None:
            return ObjectManagers()
        return new_change_detection(self.ctx, self.client, self.kube_cfg, self.clock, pod_manager, self.klet)

    def new_token_manager(self) -> token.Manager | None:
        if self.client is None:
            return None
        # This import is lazy because only a kubelet with an API server needs it.
        from kubelet import token

        return token.Manager(self.client, self.clock)

    def new_crash_loop_back_off(self) -> flowcontrol.Backoff:
        return crash_loop_back_off(self.kube_cfg, self.clock)

    def new_image_back_off(self) -> flowcontrol.Backoff:
        return flowcontrol.Backoff(BACK_OFF_PERIOD, MAX_IMAGE_BACK_OFF, clock=self.clock)

    def new_workers(self, pods: PodState) -> Workers:
        work_queue = queue.BasicWorkQueue(self.clock)
        pod_workers = PodWorkers(
            self.klet,
            self.recorder,
            work_queue,
            self.kube_cfg.sync_frequency,
            self.back_off_period,
            pods.pod_cache,
            pods.allocation_manager,
            self.clock,
        )
        return Workers(work_queue=work_queue, pod_workers=pod_workers)

    def new_runtime(
        self, pods: PodState, pod_workers: PodWorkers, tokens: token.Manager | None, figures: stats.Provider
    ) -> RuntimeParts:
        kube_cfg, kube_deps = self.kube_cfg, self.kube_deps
        image_back_off = self.new_image_back_off()
        runtime_class_manager = runtimeclass.Manager(self.client) if self.client is not None else None
        container_log_manager = logs.new_container_log_manager(
            kube_deps.remote_runtime_service,
            kube_deps.os_interface,
            kube_cfg.container_log_max_size,
            kube_cfg.container_log_max_files,
            kube_cfg.container_log_max_workers,
            kube_cfg.container_log_monitor_interval,
            self.clock,
        )
        options = self.runtime_manager_options(
            pods, pod_workers, tokens, image_back_off, container_log_manager, runtime_class_manager
        )
        runtime, image_gc_hooks = kuberuntime.new_kube_generic_runtime_manager(self.ctx, options)
        return RuntimeParts(
            runtime_class_manager=runtime_class_manager,
            container_log_manager=container_log_manager,
            container_runtime=runtime,
            streaming_runtime=runtime,
            runner=runtime,
            runtime_cache=kubecontainer.RuntimeCacheImpl(runtime, RUNTIME_CACHE_REFRESH_PERIOD, self.clock),
            image_manager=self.new_image_manager(runtime, image_gc_hooks, figures),
            image_back_off=image_back_off,
        )

    def runtime_manager_options(
        self,
        pods: PodState,
        pod_workers: PodWorkers,
        tokens: token.Manager | None,
        image_back_off: flowcontrol.Backoff,
        log_manager: logs.ContainerLogManager,
        runtime_class_manager: runtimeclass.Manager | None,
    ) -> kuberuntime.RuntimeManagerOptions:
        kube_cfg, kube_deps, options = self.kube_cfg, self.kube_deps, self.options
        return kuberuntime.RuntimeManagerOptions(
            recorder=kubecontainer.filter_event_recorder(self.recorder),
            liveness_manager=pods.liveness_manager,
            startup_manager=pods.startup_manager,
            root_directory=self.directories.get_root_dir(),
            pod_logs_directory=kube_cfg.pod_logs_dir,
            machine_info=kube_deps.cadvisor_interface.machine_info(),
            pod_state_provider=pod_workers,
            os_interface=kube_deps.os_interface,
            runtime_helper=self.klet,
            insecure_container_lifecycle_http_client=lifecycle.HTTPClient(),
            image_back_off=image_back_off,
            serialize_image_pulls=kube_cfg.serialize_image_pulls,
            max_parallel_image_pulls=kube_cfg.max_parallel_image_pulls,
            pull_critical_images_first=options.pull_critical_images_first,
            image_pull_qps=kube_cfg.registry_pull_qps,
            image_pull_burst=kube_cfg.registry_burst,
            image_pulls_credential_verification_policy=kube_cfg.image_pull_credentials_verification_policy,
            preloaded_images_credential_verification_whitelist=kube_cfg.preloaded_images_verification_allowlist,
            external_credentials=register_credential_providers(self.ctx, self.client, tokens, options, self.clock),
            single_process_oom_kill=single_process_oom_kill(kube_cfg),
            cpu_cfs_quota=kube_cfg.cpu_cfs_quota,
            cpu_cfs_quota_period=kube_cfg.cpu_cfs_quota_period,
            runtime_service=kube_deps.remote_runtime_service,
            image_service=kube_deps.remote_image_service,
            container_manager=self.container_manager,
            log_manager=log_manager,
            runtime_class_manager=runtime_class_manager,
            seccomp_default=options.seccomp_default,
            read_rotated_logs=options.read_rotated_logs,
            memory_swap_behavior=kube_cfg.memory_swap.swap_behavior,
            get_node_allocatable=lambda: self.klet.get_node_any_way(self.ctx).status.allocatable,
            memory_throttling_factor=kube_cfg.memory_throttling_factor or 0.0,
            memory_reservation_policy=kube_cfg.memory_reservation_policy,
            pod_pulling_time_recorder=self.startup_tracker,
            pod_init_container_time_recorder=self.startup_tracker,
            runtime_observer=kube_deps.observers.runtime,
            clock=self.clock,
            tracer_provider=kube_deps.tracer_provider,
        )

    def new_figures(self) -> Figures:
        kube_deps, cadvisor = self.kube_deps, self.kube_deps.cadvisor_interface
        resource_analyzer = serverstats.ResourceAnalyzer(
            self.klet, self.kube_cfg.volume_stats_agg_period, self.recorder, self.clock
        )
        host_stats_provider = stats.HostStatsProviderImpl(
            kube_deps.os_interface,
            lambda uid: get_etc_hosts_path(self.directories.get_pod_dir(uid)),
            self.kube_cfg.pod_logs_dir,
        )
        containers = stats.CRIStatsProvider(
            cadvisor,
            resource_analyzer,
            kube_deps.remote_runtime_service,
            kube_deps.remote_image_service,
            host_stats_provider,
            features.feature_gate.enabled(features.POD_AND_CONTAINER_STATS_FROM_CRI),
            stats.CadvisorStatsProvider(cadvisor, self.container_manager),
            self.clock,
        )
        return Figures(
            resource_analyzer=resource_analyzer,
            host_stats_provider=host_stats_provider,
            stats_provider=stats.Provider(cadvisor, containers),
        )

    def new_image_manager(
        self, runtime: kubecontainer.Runtime, post_gc_hooks: list[images.PostImageGCHook], figures: stats.Provider
    ) -> images.ImageGCManager:
        """Return the image garbage collector. Raise ValueError for inconsistent thresholds."""
        kube_cfg = self.kube_cfg
        return images.ImageGCManager(
            runtime,
            figures,
            post_gc_hooks,
            self.recorder,
            self.node_ref,
            images.ImageGCPolicy(
                high_threshold_percent=kube_cfg.image_gc_high_threshold_percent,
                low_threshold_percent=kube_cfg.image_gc_low_threshold_percent,
                min_age=kube_cfg.image_minimum_gc_age,
                max_age=kube_cfg.image_maximum_gc_age,
            ),
            self.clock,
            self.kube_deps.tracer_provider,
        )

    def new_pleg(
        self, runtime: kubecontainer.Runtime, pod_cache: kubecontainer.Cache, runtime_state: RuntimeState
    ) -> EventGenerators:
        """Return the PLEGs. With EventedPLEG the runtime reports changes, and rare relists find what it missed."""
        evented = features.feature_gate.enabled(features.EVENTED_PLEG)
        events_ch: golang.Channel[kubepleg.PodLifecycleEvent] = golang.Channel(PLEG_CHANNEL_CAPACITY)
        often = kubepleg.RelistDuration(self.relist_period, GENERIC_PLEG_RELIST_THRESHOLD)
        rarely = kubepleg.RelistDuration(EVENTED_PLEG_RELIST_PERIOD, EVENTED_PLEG_RELIST_THRESHOLD)
        duration = rarely if evented else often
        generic = kubepleg.GenericPLEG(
            runtime, events_ch, duration, pod_cache, self.clock, self.kube_deps.observers.relists
        )
        runtime_state.add_health_check("PLEG", generic.healthy)
        if not evented:
            return EventGenerators(pleg=generic)
        by_runtime = kubepleg.EventedPLEG(
            runtime,
            self.kube_deps.remote_runtime_service,
            events_ch,
            pod_cache,
            generic,
            EVENTED_PLEG_MAX_STREAM_RETRIES,
            often,
            self.clock,
        )
        runtime_state.add_health_check("EventedPLEG", by_runtime.healthy)
        return EventGenerators(pleg=generic, evented_pleg=by_runtime)

    def new_garbage_collection(
        self, runtime: kubecontainer.Runtime, sources_ready: config.SourcesReady
    ) -> GarbageCollectors:
        policy = kubecontainer.GCPolicy(
            min_age=self.options.minimum_gc_age,
            max_per_pod_container=self.options.max_per_pod_container_count,
            max_containers=self.options.max_container_count,
        )
        keep = max(policy.max_per_pod_container, MIN_DEAD_CONTAINER_IN_POD)
        return GarbageCollectors(
            container_gc=kubecontainer.RealContainerGC(runtime, policy, sources_ready),
            container_deletor=PodContainerDeletor(self.ctx, runtime, keep),
            orphan_removal=OrphanRemoval(
                self.clock,
                lambda uid: self.klet.remove_orphan(uid),
                lambda uid, reason: self.klet.tell_of_orphan(uid, reason),
            ),
        )

    def new_probe_manager(self, pods: PodState, runner: kubecontainer.CommandRunner) -> prober.Manager:
        return prober.Manager(
            pods.status_manager,
            pods.liveness_manager,
            pods.readiness_manager,
            pods.startup_manager,
            runner,
            self.recorder,
            self.clock,
        )

    def new_dns_configurer(self) -> dns.Configurer:
        return dns.Configurer(
            self.recorder,
            self.node_ref,
            self.options.node_ips,
            _cluster_dns(self.kube_cfg.cluster_dns),
            self.kube_cfg.cluster_domain,
            self.kube_cfg.resolver_config,
        )

    def new_volume_host(
        self,
        objects: ObjectManagers,
        tokens: token.Manager | None,
        runtime_state: RuntimeState,
        allocation_manager: allocation.Manager,
    ) -> KubeletVolumeHost:
        return KubeletVolumeHost(
            directories=self.directories,
            nodes=self.klet,
            runtime_state=runtime_state,
            allocation_manager=allocation_manager,
            kube_client=self.client,
            node_name=self.options.node_name,
            recorder=self.recorder,
            mounter=self.kube_deps.mounter,
            hostutil=self.kube_deps.hostutil,
            subpather=self.kube_deps.subpather,
            secret_manager=objects.secret_manager,
            config_map_manager=objects.config_map_manager,
            token_manager=tokens,
            cluster_trust_bundle_manager=_new_cluster_trust_bundle_manager(self.ctx, self.client),
            csi_driver_informer=follow_csi_drivers(self.ctx, self.client),
        )

    def new_volumes(
        self,
        host: KubeletVolumeHost,
        pod_manager: kubepod.Manager,
        pod_workers: PodWorkers,
        api_objects: APIObjects,
        object_store: standalone.ObjectStore | None,
    ) -> VolumeParts:
        """Return the parts that manage volumes. Raise ValueError if two volume plugins have the same name."""
        host.plugin_mgr.init_plugins(self.kube_deps.volume_plugins, host)
        manager = self.new_volume_manager(host.plugin_mgr, pod_manager, pod_workers, object_store)
        api_objects.on_volumes_attached_change(manager.node_changed)
        plugin_manager = PluginManager(self.directories.get_plugins_registration_dir(), self.clock)
        self._start_csi(host.plugin_mgr, plugin_manager)
        return VolumeParts(volume_manager=manager, plugin_manager=plugin_manager)

    def new_volume_manager(
        self,
        plugins: pkgvolume.VolumePluginMgr,
        pod_manager: kubepod.Manager,
        pod_workers: PodWorkers,
        object_store: standalone.ObjectStore | None,
    ) -> VolumeManager:
        claims: populator.Claims | None = None
        if self.client is not None:
            claims = populator.APIServerClaims(self.ctx, self.client)
        elif object_store is not None:
            claims = standalone.Volumes(object_store, self.directories.get_root_dir())
        return VolumeManager(
            # DIVERGES (fault of Go): without an API server the kubelet attaches volumes itself, whatever the
            # configuration says.
            # Go: pkg/kubelet/kubelet.go, NewMainKubelet: enableControllerAttachDetach decides, which is on by default.
            # Why: the controller that attaches volumes is part of a cluster, so pods would wait for it forever.
            # Test: kubelet_build_test.py:test_kubelet_without_an_api_server_attaches_volumes_itself
            self.kube_cfg.enable_controller_attach_detach and self.client is not None,
            self.options.node_name,
            pod_manager,
            pod_workers,
            self.client,
            plugins,
            self.kube_deps.hostutil,
            self.directories.get_pods_dir(),
            self.recorder,
            volumepathhandler.VolumePathHandler(self.kube_deps.mounter),
            claims,
            operationexecutor.StuckUnmounts(self.recorder, self.node_ref, pod_manager.get_pod_by_uid),
            lambda: self.volumes_in_use_changed.try_send(None),
            self.clock,
        )

    def _start_csi(self, plugins: pkgvolume.VolumePluginMgr, plugin_manager: PluginManager) -> None:
        """Let CSI drivers register, and announce them to the cluster.

        In standalone mode no driver may register, because without an API server no component knows which volumes the
        driver has.
        """
        if self.client is None:
            return
        plugin = plugins.find_plugin_by_name(csi.CSI_PLUGIN_NAME)
        assert isinstance(plugin, csi.CSIPlugin)
        plugin_manager.add_handler(pluginregistration.CSI_PLUGIN, csi.RegistrationHandler(plugin))
        plugin.start(self.ctx, self.clock)

    def new_eviction_manager(
        self,
        pod_workers: PodWorkers,
        image_manager: images.ImageGCManager,
        container_gc: kubecontainer.GC,
        resource_analyzer: serverstats.ResourceAnalyzer,
    ) -> eviction.ManagerImpl:
        """Return the manager that evicts pods when a resource runs short. Raise ValueError for invalid thresholds."""
        kube_cfg = self.kube_cfg
        return eviction.ManagerImpl(
            resource_analyzer,
            eviction.Config(
                pressure_transition_period=kube_cfg.eviction_pressure_transition_period,
                max_pod_grace_period_seconds=kube_cfg.eviction_max_pod_grace_period,
                thresholds=eviction.parse_threshold_config(
                    [] if self.options.ignore_eviction_threshold else kube_cfg.enforce_node_allocatable,
                    kube_cfg.eviction_hard,
                    kube_cfg.eviction_soft,
                    kube_cfg.eviction_soft_grace_period,
                    kube_cfg.eviction_minimum_reclaim,
                ),
                kernel_memcg_notification=kube_cfg.kernel_memcg_notification,
                pod_cgroup_root=self.container_manager.get_pod_cgroup_root(),
            ),
            kill_pod_now(self.ctx, pod_workers, self.recorder, eviction.LONGEST_WAIT_FOR_POD),
            image_manager,
            container_gc,
            self.recorder,
            self.node_ref,
            self.clock,
            kube_cfg.local_storage_capacity_isolation,
        )

    def new_admit_handlers(
        self,
        pods: PodState,
        pod_workers: PodWorkers,
        runtime: kubecontainer.Runtime,
        runtime_state: RuntimeState,
        eviction_manager: lifecycle.PodAdmitHandler,
        shutdown_manager: lifecycle.PodAdmitHandler,
    ) -> list[lifecycle.PodAdmitHandler]:
        """Return the handlers that may reject a pod, in the order in which the kubelet asks them."""
        container_manager, kube_cfg = self.container_manager, self.kube_cfg
        handlers: list[lifecycle.PodAdmitHandler] = [
            eviction_manager,
            allocation.PodResizesAdmitHandler(container_manager, runtime, pods.allocation_manager),
            sysctl.Allowlist([*sysctl.safe_sysctl_allowlist(), *kube_cfg.allowed_unsafe_sysctls]),
            container_manager.get_allocate_resources_pod_admit_handler(),
            lifecycle.PredicateAdmitHandler(
                lambda ctx, use_cache: self.klet.get_cached_node(ctx, use_cache),
                preemption.CriticalPodAdmissionHandler(
                    kill_pod_now(self.ctx, pod_workers, self.recorder, preemption.LONGEST_WAIT_FOR_VICTIM),
                    self.recorder,
                ),
                container_manager.update_plugin_resources,
            ),
            lifecycle.AppArmorAdmitHandler(apparmor.Validator()),
            lifecycle.PodFeaturesAdmitHandler(),
        ]
        if features.feature_gate.enabled(features.NODE_DECLARED_FEATURES):
            handlers.append(
                lifecycle.DeclaredFeaturesAdmitHandler(
                    nodedeclaredfeatures.DEFAULT_FRAMEWORK,
                    lambda: discover_node_declared_features(runtime_state.runtime_features()),
                    utilversion.parse(version.get().git_version),
                )
            )
        return [*handlers, shutdown_manager]

    def new_userns_manager(
        self, pods: PodState, runtime: RuntimeParts, runtime_state: RuntimeState, volume_manager: VolumeManager
    ) -> userns.UsernsManager:
        """Return the user namespace manager. Raise ValueError if the node's ID ranges are unreadable or too small."""
        settings = self.kube_cfg.user_namespaces
        getters = KubeletGetters(
            root_directory=self.directories.get_root_dir(),
            cadvisor=self.kube_deps.cadvisor_interface,
            mounter=self.kube_deps.mounter,
            container_manager=self.container_manager,
            max_pods=self.kube_cfg.max_pods,
            pod_manager=pods.pod_manager,
            runtime_cache=runtime.runtime_cache,
            runtime_state=runtime_state,
            container_runtime=runtime.container_runtime,
            status_manager=pods.status_manager,
            volume_manager=volume_manager,
        )
        try:
            return userns.UsernsManager(getters, settings.ids_per_pod if settings is not None else None)
        except (ValueError, OSError) as err:
            raise ValueError(f"create user namespace manager: {err}") from err

    def new_shutdown_manager(self, pod_workers: PodWorkers, volume_manager: VolumeManager) -> nodeshutdown.Manager:
        """Return the manager that terminates pods in time before the system shuts down, and rejects new ones."""
        kube_cfg, klet = self.kube_cfg, self.klet

        def sync_node_status(ctx: golang.Context) -> None:
            if klet.kube_client is not None:
                klet.sync_node_status(ctx)

        return nodeshutdown.new_manager(
            nodeshutdown.Config(
                volume_manager=volume_manager,
                recorder=self.recorder,
                node_ref=self.node_ref,
                get_pods_func=lambda: klet.get_active_pods(),
                kill_pod_func=kill_pod_now(self.ctx, pod_workers, self.recorder),
                sync_node_status_func=sync_node_status,
                shutdown_grace_period_requested=kube_cfg.shutdown_grace_period,
                shutdown_grace_period_critical_pods=kube_cfg.shutdown_grace_period_critical_pods,
                shutdown_grace_period_by_pod_priority=kube_cfg.shutdown_grace_period_by_pod_priority,
                state_directory=Path(self.directories.get_root_dir()),
                clock=self.clock,
            )
        )

    def new_node_lease_controller(self) -> lease.Controller | None:
        client = self.kube_deps.heartbeat_client
        if client is None:
            return None
        # These imports are lazy because only a kubelet with an API server needs them.
        from kubelet.util import nodelease
        from pkg.component_helpers.apimachinery import lease

        duration, node_name = self.kube_cfg.node_lease_duration_seconds, self.options.node_name
        return lease.Controller(
            self.clock,
            client,
            node_name,
            duration,
            self.kube_deps.on_heartbeat_failure,
            duration * NODE_LEASE_RENEW_INTERVAL_FRACTION,
            node_name,
            v1.NAMESPACE_NODE_LEASE,
            nodelease.set_node_owner_func(self.ctx, client, node_name),
        )

    def new_serving(self) -> Serving:
        tls_options, kube_cfg, auth = self.kube_deps.tls_options, self.kube_cfg, self.kube_deps.auth
        if tls_options is None:
            return Serving()
        # These imports are lazy because only a kubelet with a server needs them.
        from kubelet import certificate as kubeletcertificate
        from pkg.apiserver.server import dynamiccertificates

        manager: certificate.Manager | KubeletServerCertificateDynamicFileManager | None = None
        if kube_cfg.server_tls_bootstrap and features.feature_gate.enabled(features.ROTATE_KUBELET_SERVER_CERTIFICATE):
            manager = kubeletcertificate.new_kubelet_server_certificate_manager(
                self.client,
                kube_cfg,
                self.options.node_name,
                lambda: self.klet.get_last_observed_node_addresses(),
                self.options.cert_directory,
                expiry_warning=kubeletcertificate.ExpiryWarning("serving", self.node_ref, self.recorder),
                clock=self.clock,
            )
        elif tls_options.cert_file and tls_options.key_file:
            manager = kubeletcertificate.KubeletServerCertificateDynamicFileManager(
                tls_options.cert_file, tls_options.key_file
            )
        tls_config = server.TLSConfig(
            tls_options,
            manager.current if manager is not None else lambda: None,
            auth.client_ca_provider if auth is not None else dynamiccertificates.NoCAContent(),
        )
        return Serving(server_certificate_manager=manager, tls_config=tls_config)


def _named(*parts: object) -> dict[str, Any]:
    """Return the fields of all given parts, by name."""
    return {name: part for several in parts for name, part in vars(several).items()}


def new_change_detection(
    ctx: golang.Context,
    client: kubernetes.Interface,
    kube_cfg: kubeletconfig.KubeletConfiguration,
    clock: clock_.Clock,
    pod_manager: kubepod.Manager,
    klet: Kubelet,
) -> ObjectManagers:
    """Return managers that notice changes of secrets and config maps.

    Raise ValueError for an unknown change detection strategy.
    """
    # These imports are lazy because only a kubelet with an API server needs them.
    from kubelet import configmap, secret
    from kubelet.util import manager

    def appeared(pods: Collection[types.UID]) -> None:
        for uid in pods:
            if (pod := pod_manager.get_pod_by_uid(uid)) is not None:
                klet.retry_pod_now(pod)

    resync = kube_cfg.sync_frequency
    match kube_cfg.config_map_and_secret_change_detection_strategy:
        case kubeletconfig.WATCH_CHANGE_DETECTION_STRATEGY:
            return ObjectManagers(
                secret_manager=secret.new_watching_secret_manager(ctx, client, resync, clock, appeared),
                config_map_manager=configmap.new_watching_config_map_manager(ctx, client, resync, clock, appeared),
            )
        case kubeletconfig.TTL_CACHE_CHANGE_DETECTION_STRATEGY:
            get_ttl = manager.get_object_ttl_from_node_func(ctx, lambda ctx: klet.get_node(ctx))
            return ObjectManagers(
                secret_manager=secret.new_caching_secret_manager(ctx, client, get_ttl, clock),
                config_map_manager=configmap.new_caching_config_map_manager(ctx, client, get_ttl, clock),
            )
        case kubeletconfig.GET_CHANGE_DETECTION_STRATEGY:
            return ObjectManagers(
                secret_manager=secret.SimpleSecretManager(ctx, client),
                config_map_manager=configmap.SimpleConfigMapManager(ctx, client),
            )
        case other:
            raise ValueError(f"unknown configmap and secret manager mode: {other}")


def new_standalone_objects(
    objects: standalone.ObjectStore, pod_manager: kubepod.Manager, retry_pod: Callable[[v1.Pod], None]
) -> ObjectManagers:
    """Read secrets and config maps from the manifest directory; sync the pods that use one when it changes."""

    def sync_pods(changed: set[standalone.Changed]) -> None:
        for pod in pod_manager.get_pods():
            if standalone.refers_to(pod, changed):
                retry_pod(pod)

    objects.follow(sync_pods)
    return ObjectManagers(
        secret_manager=standalone.SecretManager(objects), config_map_manager=standalone.ConfigMapManager(objects)
    )


def register_credential_providers(
    ctx: golang.Context,
    client: kubernetes.Interface | None,
    tokens: token.Manager | None,
    options: KubeletOptions,
    clock: clock_.Clock,
) -> images.ExternalCredentials | None:
    """Return the credentials of the node's credential providers, or None if there are none.

    Raise ValueError or OSError if a provider cannot be registered. In Go the runtime manager registers them.
    """
    path, bin_dir = options.image_credential_provider_config_path, options.image_credential_provider_bin_dir
    if not path and not bin_dir:
        return None
    # These imports are lazy because few nodes use credential providers.
    from kubelet import token
    from pkg.credentialprovider import plugin

    def get_service_account(namespace: str, name: str) -> v1.ServiceAccount:
        if client is None:
            raise ValueError("cannot get ServiceAccount when kubelet is in standalone mode")
        return client.core_v1.service_accounts(namespace).get(ctx, name)

    tokens = tokens or token.Manager(client, clock)
    registered = plugin.register_credential_provider_plugins(
        path, bin_dir, tokens.get_service_account_token, get_service_account, clock
    )
    return plugin.Providers(registered).keyring


def _new_cluster_trust_bundle_manager(
    ctx: golang.Context, client: kubernetes.Interface | None
) -> clustertrustbundle.Manager:
    if client is None or not features.feature_gate.enabled(features.CLUSTER_TRUST_BUNDLE_PROJECTION):
        klog.info_s(
            "Not starting ClusterTrustBundle informer because we are in static kubelet mode or the "
            "ClusterTrustBundleProjection featuregate is disabled"
        )
        return clustertrustbundle.NoopManager()
    klog.info_s("ClusterTrustBundle informer will be started eventually once a trust bundle is requested")
    return clustertrustbundle.LazyInformerManager(ctx, client)


def make_pod_source_config(
    ctx: golang.Context,
    kube_cfg: kubeletconfig.KubeletConfiguration,
    kube_deps: Dependencies,
    node_name: str,
    node_has_synced: Callable[[], bool],
    startup_tracker: config.PodStartupSLIObserver,
    object_store: config.ObjectStore | None = None,
) -> config.PodConfig:
    """Start the sources that the configuration lists, and the API server's if there is a client.

    Without a client the other objects of the manifest directory go to `object_store`.
    """
    pod_config = config.PodConfig(config.POD_CONFIG_NOTIFICATION_INCREMENTAL, kube_deps.recorder, startup_tracker)
    if kube_cfg.static_pod_path:
        klog.info_s("Adding static pod path", path=kube_cfg.static_pod_path)
        config.new_source_file(
            ctx,
            kube_cfg.static_pod_path,
            node_name,
            kube_cfg.file_check_frequency,
            pod_config.channel(ctx, kubetypes.FILE_SOURCE),
            kube_deps.recorder,
            object_store,
            pod_config.notes_of(kubetypes.FILE_SOURCE),
        )
    if kube_cfg.static_pod_url:
        klog.info_s("Adding pod URL with HTTP header", URL=kube_cfg.static_pod_url)
        config.new_source_url(
            ctx,
            kube_cfg.static_pod_url,
            kube_cfg.static_pod_url_header,
            node_name,
            kube_cfg.http_check_frequency,
            pod_config.channel(ctx, kubetypes.HTTP_SOURCE),
            kube_deps.recorder,
            pod_config.notes_of(kubetypes.HTTP_SOURCE),
        )
    if kube_deps.kube_client is not None:
        klog.info_s("Adding apiserver pod source")
        config.new_source_apiserver(
            ctx,
            kube_deps.kube_client,
            node_name,
            node_has_synced,
            pod_config.channel(ctx, kubetypes.APISERVER_SOURCE),
        )
    return pod_config


def _watch_api_objects(ctx: golang.Context, client: kubernetes.Interface, node_name: str) -> APIObjects:
    """Watch this node's object, and the services whose variables pods get, until ctx ends."""
    # These imports are lazy because only a kubelet with an API server needs them.
    from pkg.client_go import informers
    from pkg.client_go.tools import cache

    def only(field_selector: str) -> TweakListOptionsFunc:
        return lambda options: msgspec.structs.replace(options, field_selector=field_selector)

    node_informers = informers.SharedInformerFactory(client, 0, tweak_list_options=only(f"metadata.name={node_name}"))
    nodes = node_informers.core_v1.nodes()

    def on_volumes_attached_change(func: Callable[[], None]) -> None:
        def update(old: v1.Node, new: v1.Node) -> None:
            if old.status.volumes_attached != new.status.volumes_attached:
                func()

        nodes.informer().add_event_handler(cache.ResourceEventHandlerFuncs(lambda node: func(), update))

    node_has_synced = nodes.informer().has_synced
    node_informers.start(ctx)
    klog.info_s("Attempting to sync node with API server")
    # Headless services have no environment variables.
    service_informers = informers.SharedInformerFactory(client, 0, tweak_list_options=only("spec.clusterIP!=None"))
    services = service_informers.core_v1.services()
    service_has_synced = services.informer().has_synced
    service_informers.start(ctx)
    return APIObjects(
        node_lister=nodes.lister(),
        node_has_synced=node_has_synced,
        service_lister=services.lister().list,
        service_has_synced=service_has_synced,
        on_volumes_attached_change=on_volumes_attached_change,
    )


def _cluster_dns(addresses: list[str]) -> list[IPv4Address | IPv6Address]:
    """Return the addresses of the cluster's DNS servers. Log and skip an invalid address."""
    parsed = []
    for address in addresses:
        try:
            parsed.append(ip_address(address))
        except ValueError:
            klog.info_s("Invalid clusterDNS IP", IP=address)
    return parsed


def single_process_oom_kill(kube_cfg: kubeletconfig.KubeletConfiguration) -> bool:
    """Report whether the OOM killer kills single processes instead of whole containers.

    With cgroup v1 it always does; with cgroup v2 the configuration decides.
    """
    return not util.is_cgroup2_unified_mode() or bool(kube_cfg.single_process_oom_kill)


def crash_loop_back_off(kube_cfg: kubeletconfig.KubeletConfiguration, clock: clock_.Clock) -> flowcontrol.Backoff:
    """Return the backoff of container restarts."""
    first, longest = new_crash_loop_back_off(kube_cfg)
    back_off = flowcontrol.Backoff(first, longest, clock=clock)
    # The default of Backoff is twice the longest pause. If that pause is short, a slow start takes longer than the
    # default, and there would be no backoff at all.
    back_off.has_expired_func = lambda ended, last, _: (ended - last).total_seconds() > CRASH_LOOP_BACK_OFF_EXPIRY
    return back_off


def new_crash_loop_back_off(kube_cfg: kubeletconfig.KubeletConfiguration) -> tuple[float, float]:
    """Return the first and the longest pause between restarts, in seconds. A configured value takes precedence."""
    first, longest = INITIAL_CRASH_LOOP_BACK_OFF, MAX_CRASH_LOOP_BACK_OFF
    if features.feature_gate.enabled(features.REDUCE_DEFAULT_CRASH_LOOP_BACK_OFF_DECAY):
        first, longest = REDUCED_INITIAL_CRASH_LOOP_BACK_OFF, REDUCED_MAX_CRASH_LOOP_BACK_OFF
    if features.feature_gate.enabled(features.KUBELET_CRASH_LOOP_BACK_OFF_MAX):
        longest = kube_cfg.crash_loop_back_off.max_container_restart_period or longest
    return min(first, longest), longest
