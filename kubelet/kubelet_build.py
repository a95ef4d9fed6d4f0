"""Makes a kubelet: all its parts, in the order in which they need each other.

Go: pkg/kubelet/kubelet.go (NewMainKubelet and what it calls)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING

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
    pleg,
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
from kubelet import pod as kubepod
from kubelet import types as kubetypes
from kubelet.active_deadline import ActiveDeadlineHandler
from kubelet.apis import config as kubeletconfig
from kubelet.apis.pluginregistration import v1 as pluginregistration
from kubelet.kubelet import HOUSEKEEPING_PERIOD, HOUSEKEEPING_WARNING_DURATION, Kubelet
from kubelet.kubelet_mounts import get_etc_hosts_path
from kubelet.kubelet_node_declared_features import discover_node_declared_features
from kubelet.kubelet_struct import Dependencies
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
from kubelet.volume_host import new_initialized_volume_plugin_mgr
from kubelet.volumemanager import VolumeManager, populator
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.util import net as utilnet
from pkg.apimachinery.util import version as utilversion
from pkg.client_go.util import flowcontrol
from pkg.component_base import version
from pkg.component_helpers import nodedeclaredfeatures
from pkg.security import apparmor
from pkg.volume import csi
from pkg.volume.util import operationexecutor, volumepathhandler

if TYPE_CHECKING:
    from pkg.client_go import kubernetes
    from pkg.client_go.informers.internalinterfaces import TweakListOptionsFunc

# All times in seconds.
MAX_WAIT_FOR_CONTAINER_RUNTIME = 30.0
# The part of its duration after which the node's lease is renewed.
NODE_LEASE_RENEW_INTERVAL_FRACTION = 0.25
RUNTIME_CACHE_REFRESH_PERIOD = HOUSEKEEPING_PERIOD + HOUSEKEEPING_WARNING_DURATION

BACK_OFF_PERIOD = 10.0
INITIAL_CRASH_LOOP_BACK_OFF = 10.0
MAX_CRASH_LOOP_BACK_OFF = 300.0
# With the feature gate ReduceDefaultCrashLoopBackOffDecay.
REDUCED_INITIAL_CRASH_LOOP_BACK_OFF = 1.0
REDUCED_MAX_CRASH_LOOP_BACK_OFF = 60.0
# For how long a container has to run, for its next restart to be like its first.
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
# --cloud-provider of a node whose addresses another program knows.
EXTERNAL_CLOUD_PROVIDER = "external"


@dataclass(kw_only=True, slots=True)
class KubeletOptions:
    """What flags say beside the configuration. Times in seconds."""

    hostname: str
    node_name: str
    node_ips: list[utilnet.IPAddress]
    root_directory: str
    node_labels: dict[str, str] = field(default_factory=dict)
    minimum_gc_age: float = 0.0
    max_per_pod_container_count: int = 1
    max_container_count: int = -1
    seccomp_default: bool = False
    # Pods may then have together what hard eviction thresholds keep free.
    ignore_eviction_threshold: bool = False
    keep_terminated_pod_volumes: bool = False
    cloud_provider: str = ""
    cert_directory: str = ""
    image_credential_provider_config_path: str = ""
    image_credential_provider_bin_dir: str = ""
    pull_critical_images_first: bool = False
    read_rotated_logs: bool = False


def new_main_kubelet(
    ctx: golang.Context,
    kube_cfg: kubeletconfig.KubeletConfiguration,
    kube_deps: Dependencies,
    options: KubeletOptions,
) -> Kubelet:
    """A kubelet with all its parts. Threads of sources start here, all others with run; they end with ctx.

    Raises ValueError for a configuration that does not fit together, and what the runtime says when it cannot be
    reached or speaks another version.
    """
    if not options.root_directory:
        raise ValueError(f'invalid root directory "{options.root_directory}"')
    if kube_cfg.sync_frequency <= 0:
        raise ValueError(f"invalid sync frequency {kube_cfg.sync_frequency}")
    api_objects = _APIObjects()
    # What there is beside pods in the manifest folder of a node that has no API server.
    object_store = standalone.ObjectStore() if kube_deps.kube_client is None else None
    if kube_deps.kube_client is not None:
        api_objects = _watch_api_objects(ctx, kube_deps.kube_client, options.node_name)
    else:
        klog.info_s("Kubelet is running in standalone mode, will skip API server sync")
    startup_tracker = BasicPodStartupLatencyTracker()
    if kube_deps.pod_config is None:
        kube_deps.pod_config = make_pod_source_config(
            ctx, kube_cfg, kube_deps, options.node_name, api_objects.node_has_synced, startup_tracker, object_store
        )
    kubelet = _new_kubelet(kube_cfg, kube_deps, options, api_objects)
    build_change_detection(ctx, kubelet)
    _build_token_manager(kubelet)
    _build_pod_state(kubelet, startup_tracker)
    if object_store is not None:
        build_standalone_objects(kubelet, object_store)
    _build_pod_workers(kubelet)
    _build_runtime(ctx, kubelet, kube_deps, options, startup_tracker)
    _build_pleg(kubelet)
    _build_garbage_collection(ctx, kubelet, options)
    _build_volumes(ctx, kubelet, kube_deps)
    _build_volume_manager(ctx, kubelet, api_objects, object_store)
    kubelet.plugin_manager = PluginManager(kubelet.get_plugins_registration_dir(), kubelet.clock)
    _build_csi(ctx, kubelet)
    handlers = [_build_eviction_manager(ctx, kubelet, options), *_build_admission(ctx, kubelet)]
    handlers.append(_build_shutdown_manager(ctx, kubelet))
    kubelet.allocation_manager.add_pod_admit_handlers(handlers)
    _build_user_namespaces(kubelet)
    _build_node_lease(ctx, kubelet)
    _build_serving_certificate(kubelet, kube_deps, options)
    return kubelet


def make_pod_source_config(
    ctx: golang.Context,
    kube_cfg: kubeletconfig.KubeletConfiguration,
    kube_deps: Dependencies,
    node_name: str,
    node_has_synced: Callable[[], bool],
    startup_tracker: config.PodStartupSLIObserver,
    object_store: config.ObjectStore | None = None,
) -> config.PodConfig:
    """Start the sources that the configuration names, and the API server if there is one.

    Without one the folder's other objects go to object_store.
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


@dataclass(kw_only=True, slots=True)
class _APIObjects:
    """What the kubelet follows in the API server beside pods; as it stands, nothing."""

    node_lister: kubepod.NodeGetter | None = None
    node_has_synced: Callable[[], bool] = lambda: True
    service_lister: Callable[[], list[v1.Service]] | None = None
    service_has_synced: Callable[[], bool] = lambda: True
    # Has a function called whenever another set of volumes is attached to the node.
    on_volumes_attached_change: Callable[[Callable[[], None]], None] = lambda func: None


def _watch_api_objects(ctx: golang.Context, client: kubernetes.Interface, node_name: str) -> _APIObjects:
    """Follow this node's object, and the services that pods are told of, until ctx ends."""
    # Only a kubelet with an API server loads them.
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
    # Headless services are in no pod's environment.
    service_informers = informers.SharedInformerFactory(client, 0, tweak_list_options=only("spec.clusterIP!=None"))
    services = service_informers.core_v1.services()
    service_has_synced = services.informer().has_synced
    service_informers.start(ctx)
    return _APIObjects(
        node_lister=nodes.lister(),
        node_has_synced=node_has_synced,
        service_lister=services.lister().list,
        service_has_synced=service_has_synced,
        on_volumes_attached_change=on_volumes_attached_change,
    )


def _new_kubelet(
    kube_cfg: kubeletconfig.KubeletConfiguration,
    kube_deps: Dependencies,
    options: KubeletOptions,
    api_objects: _APIObjects,
) -> Kubelet:
    """The kubelet with the fields that need none of its parts."""
    assert kube_deps.pod_config is not None
    assert kube_deps.container_manager is not None
    node_ref = v1.ObjectReference(api_version="v1", kind="Node", name=options.node_name)
    return Kubelet(
        kubelet_configuration=kube_cfg,
        hostname=options.hostname,
        node_name=options.node_name,
        node_ips=options.node_ips,
        node_ref=node_ref,
        node_labels=options.node_labels,
        root_directory=os.path.normpath(options.root_directory),
        pod_logs_directory=kube_cfg.pod_logs_dir,
        clock=kube_deps.clock,
        recorder=kube_deps.recorder,
        kube_client=kube_deps.kube_client,
        heartbeat_client=kube_deps.heartbeat_client,
        on_repeated_heartbeat_failure=kube_deps.on_heartbeat_failure,
        node_lister=api_objects.node_lister,
        node_has_synced=api_objects.node_has_synced,
        service_lister=api_objects.service_lister,
        service_has_synced=api_objects.service_has_synced,
        node_status_update_frequency=kube_cfg.node_status_update_frequency,
        node_status_report_frequency=kube_cfg.node_status_report_frequency,
        external_cloud_provider=options.cloud_provider == EXTERNAL_CLOUD_PROVIDER,
        failed=kube_deps.failed,
        health_checker=kube_deps.health_checker,
        runtime_service=kube_deps.remote_runtime_service,
        cadvisor=kube_deps.cadvisor_interface,
        oom_watcher=kube_deps.new_oom_watcher(kube_deps.recorder) if kube_deps.new_oom_watcher is not None else None,
        os=kube_deps.os_interface,
        mounter=kube_deps.mounter,
        hostutil=kube_deps.hostutil,
        subpather=kube_deps.subpather,
        container_manager=kube_deps.container_manager,
        sources_ready=config.SourcesImpl(kube_deps.pod_config.seen_all_sources),
        dns_configurer=dns.Configurer(
            kube_deps.recorder,
            node_ref,
            options.node_ips,
            _cluster_dns(kube_cfg.cluster_dns),
            kube_cfg.cluster_domain,
            kube_cfg.resolver_config,
        ),
        new_iptables=kube_deps.new_iptables if kube_cfg.make_iptables_util_chains else None,
        tracer=kube_deps.tracer_provider.tracer(INSTRUMENTATION_SCOPE),
        observers=kube_deps.observers,
        image_back_off=flowcontrol.Backoff(BACK_OFF_PERIOD, MAX_IMAGE_BACK_OFF, clock=kube_deps.clock),
        pod_config=kube_deps.pod_config,
        resync_interval=kube_cfg.sync_frequency,
        cgroups_per_qos=kube_deps.container_manager.get_node_config().cgroups_per_qos,
        max_pods=kube_cfg.max_pods,
        keep_terminated_pod_volumes=options.keep_terminated_pod_volumes,
    )


def build_change_detection(ctx: golang.Context, kubelet: Kubelet) -> None:
    """How changes of secrets and config maps are noticed. Raises ValueError for a strategy that there is not."""
    client, clock, resync = kubelet.kube_client, kubelet.clock, kubelet.resync_interval
    if client is None:
        return
    # Only a kubelet with an API server loads them.
    from kubelet import configmap, secret
    from kubelet.util import manager

    def appeared(pods: Collection[str]) -> None:
        for uid in pods:
            if (pod := kubelet.pod_manager.get_pod_by_uid(uid)) is not None:
                kubelet.retry_pod_now(pod)

    match kubelet.kubelet_configuration.config_map_and_secret_change_detection_strategy:
        case kubeletconfig.WATCH_CHANGE_DETECTION_STRATEGY:
            kubelet.secret_manager = secret.new_watching_secret_manager(ctx, client, resync, clock, appeared)
            kubelet.config_map_manager = configmap.new_watching_config_map_manager(ctx, client, resync, clock, appeared)
        case kubeletconfig.TTL_CACHE_CHANGE_DETECTION_STRATEGY:
            get_ttl = manager.get_object_ttl_from_node_func(ctx, kubelet.get_node)
            kubelet.secret_manager = secret.new_caching_secret_manager(ctx, client, get_ttl, clock)
            kubelet.config_map_manager = configmap.new_caching_config_map_manager(ctx, client, get_ttl, clock)
        case kubeletconfig.GET_CHANGE_DETECTION_STRATEGY:
            kubelet.secret_manager = secret.SimpleSecretManager(ctx, client)
            kubelet.config_map_manager = configmap.SimpleConfigMapManager(ctx, client)
        case other:
            raise ValueError(f"unknown configmap and secret manager mode: {other}")


def build_standalone_objects(kubelet: Kubelet, objects: standalone.ObjectStore) -> None:
    """Take secrets and config maps from the manifest folder, and sync the pods that use one when it changes."""

    def sync_pods(changed: set[standalone.Changed]) -> None:
        for pod in kubelet.pod_manager.get_pods():
            if standalone.refers_to(pod, changed):
                kubelet.retry_pod_now(pod)

    objects.follow(sync_pods)
    kubelet.secret_manager = standalone.SecretManager(objects)
    kubelet.config_map_manager = standalone.ConfigMapManager(objects)


def _build_token_manager(kubelet: Kubelet) -> None:
    if kubelet.kube_client is not None:
        # Only a kubelet with an API server loads them.
        from kubelet import token

        kubelet.token_manager = token.Manager(kubelet.kube_client, kubelet.clock)


def _cluster_dns(addresses: list[str]) -> list[IPv4Address | IPv6Address]:
    """The addresses of the cluster's DNS; what is none is logged and left out."""
    parsed = []
    for address in addresses:
        try:
            parsed.append(ip_address(address))
        except ValueError:
            klog.info_s("Invalid clusterDNS IP", IP=address)
    return parsed


def _build_pod_state(kubelet: Kubelet, startup_tracker: BasicPodStartupLatencyTracker) -> None:
    """What is known of pods: specs, statuses, probe results, the runtime's view."""
    kubelet.liveness_manager = proberesults.Manager()
    kubelet.readiness_manager = proberesults.Manager()
    kubelet.startup_manager = proberesults.Manager()
    kubelet.pod_cache = kubecontainer.CacheImpl()
    kubelet.pod_manager = kubepod.BasicManager()
    kubelet.mirror_pod_client = kubepod.BasicMirrorClient(kubelet.kube_client, kubelet.node_name, kubelet.node_lister)
    kubelet.status_manager = status.Manager(kubelet.kube_client, kubelet.pod_manager, kubelet, startup_tracker)
    kubelet.allocation_manager = allocation.Manager(
        kubelet.get_root_dir(),
        kubelet.status_manager,
        kubelet.sync_pod_now,
        kubelet.get_active_pods,
        kubelet.pod_manager.get_pod_by_uid,
        kubelet.sources_ready,
        kubelet.recorder,
        kubelet.clock,
    )
    kubelet.reason_cache = ReasonCache()


def _build_pod_workers(kubelet: Kubelet) -> None:
    kubelet.work_queue = queue.BasicWorkQueue(kubelet.clock)
    kubelet.pod_workers = PodWorkers(
        kubelet,
        kubelet.recorder,
        kubelet.work_queue,
        kubelet.resync_interval,
        BACK_OFF_PERIOD,
        kubelet.pod_cache,
        kubelet.allocation_manager,
        kubelet.clock,
    )


def _build_runtime(
    ctx: golang.Context,
    kubelet: Kubelet,
    kube_deps: Dependencies,
    options: KubeletOptions,
    startup_tracker: BasicPodStartupLatencyTracker,
) -> None:
    """The container runtime, and what stands right on it: logs, caches, probes."""
    kube_cfg = kubelet.kubelet_configuration
    if kubelet.kube_client is not None:
        kubelet.runtime_class_manager = runtimeclass.Manager(kubelet.kube_client)
    kubelet.container_log_manager = logs.new_container_log_manager(
        kube_deps.remote_runtime_service,
        kubelet.os,
        kube_cfg.container_log_max_size,
        kube_cfg.container_log_max_files,
        kube_cfg.container_log_max_workers,
        kube_cfg.container_log_monitor_interval,
        kubelet.clock,
    )
    runtime = kuberuntime.KubeGenericRuntimeManager(
        ctx, _runtime_manager_options(ctx, kubelet, kube_deps, options, startup_tracker)
    )
    kubelet.container_runtime = runtime
    kubelet.streaming_runtime = runtime
    kubelet.runner = runtime
    _build_stats(kubelet, kube_deps)
    kubelet.image_manager = _new_image_manager(kubelet, kube_deps, runtime)
    kubelet.runtime_cache = kubecontainer.RuntimeCacheImpl(runtime, RUNTIME_CACHE_REFRESH_PERIOD, kubelet.clock)
    kubelet.runtime_state = RuntimeState(MAX_WAIT_FOR_CONTAINER_RUNTIME, kubelet.clock)
    kubelet.crash_loop_back_off = crash_loop_back_off(kube_cfg, kubelet.clock)
    kubelet.probe_manager = prober.Manager(
        kubelet.status_manager,
        kubelet.liveness_manager,
        kubelet.readiness_manager,
        kubelet.startup_manager,
        runtime,
        kubelet.recorder,
        kubelet.clock,
    )


def _build_stats(kubelet: Kubelet, kube_deps: Dependencies) -> None:
    """Where figures come from."""
    kubelet.resource_analyzer = serverstats.ResourceAnalyzer(
        kubelet, kubelet.kubelet_configuration.volume_stats_agg_period, kubelet.recorder, kubelet.clock
    )
    kubelet.host_stats_provider = stats.HostStatsProviderImpl(
        kubelet.os, lambda uid: get_etc_hosts_path(kubelet.get_pod_dir(uid)), kubelet.pod_logs_directory
    )
    containers = stats.CRIStatsProvider(
        kubelet.cadvisor,
        kubelet.resource_analyzer,
        kube_deps.remote_runtime_service,
        kube_deps.remote_image_service,
        kubelet.host_stats_provider,
        features.feature_gate.enabled(features.POD_AND_CONTAINER_STATS_FROM_CRI),
        stats.CadvisorStatsProvider(kubelet.cadvisor, kubelet.container_manager),
        kubelet.clock,
    )
    kubelet.stats_provider = stats.Provider(kubelet.cadvisor, containers)


def single_process_oom_kill(kube_cfg: kubeletconfig.KubeletConfiguration) -> bool:
    """Whether one process alone is killed for want of memory: all that version 1 of cgroups can do, asked for in 2."""
    return not util.is_cgroup2_unified_mode() or bool(kube_cfg.single_process_oom_kill)


def _runtime_manager_options(
    ctx: golang.Context,
    kubelet: Kubelet,
    kube_deps: Dependencies,
    options: KubeletOptions,
    startup_tracker: BasicPodStartupLatencyTracker,
) -> kuberuntime.RuntimeManagerOptions:
    kube_cfg = kubelet.kubelet_configuration
    return kuberuntime.RuntimeManagerOptions(
        recorder=kubecontainer.filter_event_recorder(kubelet.recorder),
        liveness_manager=kubelet.liveness_manager,
        readiness_manager=kubelet.readiness_manager,
        startup_manager=kubelet.startup_manager,
        root_directory=kubelet.root_directory,
        pod_logs_directory=kubelet.pod_logs_directory,
        machine_info=kubelet.cadvisor.machine_info(),
        pod_state_provider=kubelet.pod_workers,
        os_interface=kubelet.os,
        runtime_helper=kubelet,
        insecure_container_lifecycle_http_client=lifecycle.HTTPClient(),
        image_back_off=kubelet.image_back_off,
        serialize_image_pulls=kube_cfg.serialize_image_pulls,
        max_parallel_image_pulls=kube_cfg.max_parallel_image_pulls,
        pull_critical_images_first=options.pull_critical_images_first,
        image_pull_qps=kube_cfg.registry_pull_qps,
        image_pull_burst=kube_cfg.registry_burst,
        image_pulls_credential_verification_policy=kube_cfg.image_pull_credentials_verification_policy,
        preloaded_images_credential_verification_whitelist=kube_cfg.preloaded_images_verification_allowlist,
        external_credentials=_register_credential_providers(ctx, kubelet, options),
        single_process_oom_kill=single_process_oom_kill(kube_cfg),
        cpu_cfs_quota=kube_cfg.cpu_cfs_quota,
        cpu_cfs_quota_period=kube_cfg.cpu_cfs_quota_period,
        runtime_service=kube_deps.remote_runtime_service,
        image_service=kube_deps.remote_image_service,
        container_manager=kubelet.container_manager,
        log_manager=kubelet.container_log_manager,
        runtime_class_manager=kubelet.runtime_class_manager,
        seccomp_default=options.seccomp_default,
        read_rotated_logs=options.read_rotated_logs,
        memory_swap_behavior=kube_cfg.memory_swap.swap_behavior,
        get_node_allocatable=lambda: kubelet.get_node_any_way(ctx).status.allocatable,
        memory_throttling_factor=kube_cfg.memory_throttling_factor or 0.0,
        memory_reservation_policy=kube_cfg.memory_reservation_policy,
        pod_pulling_time_recorder=startup_tracker,
        pod_init_container_time_recorder=startup_tracker,
        call_observer=kubelet.observers.calls,
        clock=kubelet.clock,
        tracer_provider=kube_deps.tracer_provider,
    )


def _register_credential_providers(
    ctx: golang.Context, kubelet: Kubelet, options: KubeletOptions
) -> images.ExternalCredentials | None:
    """What the node's credential providers have for pods, if there are any. Raises ValueError and OSError.

    In Go the runtime manager registers them.
    """
    path, bin_dir = options.image_credential_provider_config_path, options.image_credential_provider_bin_dir
    if not path and not bin_dir:
        return None
    # Few nodes have them.
    from kubelet import token
    from pkg.credentialprovider import plugin

    def get_service_account(namespace: str, name: str) -> v1.ServiceAccount:
        if kubelet.kube_client is None:
            raise ValueError("cannot get ServiceAccount when kubelet is in standalone mode")
        return kubelet.kube_client.core_v1.service_accounts(namespace).get(ctx, name)

    tokens = kubelet.token_manager or token.Manager(kubelet.kube_client, kubelet.clock)
    registered = plugin.register_credential_provider_plugins(
        path, bin_dir, tokens.get_service_account_token, get_service_account, kubelet.clock
    )
    return plugin.Providers(registered).keyring


def _new_image_manager(
    kubelet: Kubelet, kube_deps: Dependencies, runtime: kuberuntime.KubeGenericRuntimeManager
) -> images.ImageGCManager:
    kube_cfg = kubelet.kubelet_configuration
    return images.ImageGCManager(
        runtime,
        kubelet.stats_provider,
        runtime.image_gc_hooks,
        kubelet.recorder,
        kubelet.node_ref,
        images.ImageGCPolicy(
            high_threshold_percent=kube_cfg.image_gc_high_threshold_percent,
            low_threshold_percent=kube_cfg.image_gc_low_threshold_percent,
            min_age=kube_cfg.image_minimum_gc_age,
            max_age=kube_cfg.image_maximum_gc_age,
        ),
        kubelet.clock,
        kube_deps.tracer_provider,
    )


def crash_loop_back_off(kube_cfg: kubeletconfig.KubeletConfiguration, clock: clock_.Clock) -> flowcontrol.Backoff:
    """The pauses between restarts of containers."""
    first, longest = new_crash_loop_back_off(kube_cfg)
    back_off = flowcontrol.Backoff(first, longest, clock=clock)
    # Not twice the longest pause: where that is short, a slow start takes longer, and there would be no pause at all.
    back_off.has_expired_func = lambda ended, last, _: (ended - last).total_seconds() > CRASH_LOOP_BACK_OFF_EXPIRY
    return back_off


def new_crash_loop_back_off(kube_cfg: kubeletconfig.KubeletConfiguration) -> tuple[float, float]:
    """The first and the longest pause between restarts, in seconds. What the configuration says comes first."""
    first, longest = INITIAL_CRASH_LOOP_BACK_OFF, MAX_CRASH_LOOP_BACK_OFF
    if features.feature_gate.enabled(features.REDUCE_DEFAULT_CRASH_LOOP_BACK_OFF_DECAY):
        first, longest = REDUCED_INITIAL_CRASH_LOOP_BACK_OFF, REDUCED_MAX_CRASH_LOOP_BACK_OFF
    if features.feature_gate.enabled(features.KUBELET_CRASH_LOOP_BACK_OFF_MAX):
        longest = kube_cfg.crash_loop_back_off.max_container_restart_period or longest
    return min(first, longest), longest


def _build_pleg(kubelet: Kubelet) -> None:
    """The generator of pod events; with EventedPLEG the runtime tells, and relisting only makes sure."""
    evented = features.feature_gate.enabled(features.EVENTED_PLEG)
    events_ch: golang.Channel[pleg.PodLifecycleEvent] = golang.Channel(PLEG_CHANNEL_CAPACITY)
    often = pleg.RelistDuration(GENERIC_PLEG_RELIST_PERIOD, GENERIC_PLEG_RELIST_THRESHOLD)
    rarely = pleg.RelistDuration(EVENTED_PLEG_RELIST_PERIOD, EVENTED_PLEG_RELIST_THRESHOLD)
    generic = pleg.GenericPLEG(
        kubelet.container_runtime,
        events_ch,
        rarely if evented else often,
        kubelet.pod_cache,
        kubelet.clock,
        kubelet.observers.relists,
    )
    kubelet.pleg = generic
    kubelet.runtime_state.add_health_check("PLEG", generic.healthy)
    if evented:
        kubelet.evented_pleg = pleg.EventedPLEG(
            kubelet.container_runtime,
            kubelet.runtime_service,
            events_ch,
            kubelet.pod_cache,
            generic,
            EVENTED_PLEG_MAX_STREAM_RETRIES,
            often,
            kubelet.clock,
        )
        kubelet.runtime_state.add_health_check("EventedPLEG", kubelet.evented_pleg.healthy)


def _build_garbage_collection(ctx: golang.Context, kubelet: Kubelet, options: KubeletOptions) -> None:
    policy = kubecontainer.GCPolicy(
        min_age=options.minimum_gc_age,
        max_per_pod_container=options.max_per_pod_container_count,
        max_containers=options.max_container_count,
    )
    kubelet.container_gc = kubecontainer.RealContainerGC(kubelet.container_runtime, policy, kubelet.sources_ready)
    keep = max(policy.max_per_pod_container, MIN_DEAD_CONTAINER_IN_POD)
    kubelet.container_deletor = PodContainerDeletor(ctx, kubelet.container_runtime, keep)
    kubelet.orphan_removal = OrphanRemoval(kubelet.clock, kubelet.remove_orphan, kubelet.tell_of_orphan)


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


def _build_volumes(ctx: golang.Context, kubelet: Kubelet, kube_deps: Dependencies) -> None:
    kubelet.cluster_trust_bundle_manager = _new_cluster_trust_bundle_manager(ctx, kubelet.kube_client)
    kubelet.volume_plugin_mgr, _ = new_initialized_volume_plugin_mgr(ctx, kubelet, kube_deps.volume_plugins)


def _build_volume_manager(
    ctx: golang.Context, kubelet: Kubelet, api_objects: _APIObjects, objects: standalone.ObjectStore | None
) -> None:
    claims: populator.Claims | None = None
    if kubelet.kube_client is not None:
        claims = populator.APIServerClaims(ctx, kubelet.kube_client)
    elif objects is not None:
        claims = standalone.Volumes(objects, kubelet.root_directory)
    kubelet.volume_manager = VolumeManager(
        # DIVERGES (fault of Go): without an API server the kubelet attaches volumes itself, whatever is configured.
        # Go: pkg/kubelet/kubelet.go, NewMainKubelet: enableControllerAttachDetach counts, which is on by default.
        # Why: the controller that attaches volumes is part of a cluster, so pods would wait for it in vain.
        # Test: kubelet_build_test.py:test_kubelet_without_an_api_server_attaches_volumes_itself
        kubelet.kubelet_configuration.enable_controller_attach_detach and kubelet.kube_client is not None,
        kubelet.node_name,
        kubelet.pod_manager,
        kubelet.pod_workers,
        kubelet.kube_client,
        kubelet.volume_plugin_mgr,
        kubelet.hostutil,
        kubelet.get_pods_dir(),
        kubelet.recorder,
        volumepathhandler.VolumePathHandler(kubelet.mounter),
        claims,
        operationexecutor.StuckUnmounts(kubelet.recorder, kubelet.node_ref, kubelet.pod_manager.get_pod_by_uid),
        lambda: kubelet.volumes_in_use_changed.try_send(None),
        kubelet.clock,
    )
    api_objects.on_volumes_attached_change(kubelet.volume_manager.node_changed)


def _build_csi(ctx: golang.Context, kubelet: Kubelet) -> None:
    """Have drivers register, and tell the cluster of them. Standalone nobody could say which volumes they have."""
    if kubelet.kube_client is None:
        return
    plugin = kubelet.volume_plugin_mgr.find_plugin_by_name(csi.CSI_PLUGIN_NAME)
    assert isinstance(plugin, csi.CSIPlugin)
    kubelet.plugin_manager.add_handler(pluginregistration.CSI_PLUGIN, csi.RegistrationHandler(plugin))
    plugin.start(ctx, kubelet.clock)


def _build_eviction_manager(
    ctx: golang.Context, kubelet: Kubelet, options: KubeletOptions
) -> lifecycle.PodAdmitHandler:
    """Who ends pods when the node is short of something, and takes no more until it is over. Raises ValueError."""
    kube_cfg = kubelet.kubelet_configuration
    manager = eviction.ManagerImpl(
        kubelet.resource_analyzer,
        eviction.Config(
            pressure_transition_period=kube_cfg.eviction_pressure_transition_period,
            max_pod_grace_period_seconds=kube_cfg.eviction_max_pod_grace_period,
            thresholds=eviction.parse_threshold_config(
                [] if options.ignore_eviction_threshold else kube_cfg.enforce_node_allocatable,
                kube_cfg.eviction_hard,
                kube_cfg.eviction_soft,
                kube_cfg.eviction_soft_grace_period,
                kube_cfg.eviction_minimum_reclaim,
            ),
            kernel_memcg_notification=kube_cfg.kernel_memcg_notification,
            pod_cgroup_root=kubelet.container_manager.get_pod_cgroup_root(),
        ),
        kill_pod_now(ctx, kubelet.pod_workers, kubelet.recorder, eviction.LONGEST_WAIT_FOR_POD),
        kubelet.image_manager,
        kubelet.container_gc,
        kubelet.recorder,
        kubelet.node_ref,
        kubelet.clock,
        kube_cfg.local_storage_capacity_isolation,
    )
    kubelet.eviction_manager = manager
    return manager


def _build_admission(ctx: golang.Context, kubelet: Kubelet) -> list[lifecycle.PodAdmitHandler]:
    """Who may end a pod; returns who may refuse one, in the order in which they are asked."""
    kube_cfg = kubelet.kubelet_configuration
    allowed = [*sysctl.safe_sysctl_allowlist(), *kube_cfg.allowed_unsafe_sysctls]
    handlers: list[lifecycle.PodAdmitHandler] = [
        allocation.PodResizesAdmitHandler(
            kubelet.container_manager, kubelet.container_runtime, kubelet.allocation_manager
        ),
        sysctl.Allowlist(allowed),
    ]
    handlers.append(kubelet.container_manager.get_allocate_resources_pod_admit_handler())
    deadline = ActiveDeadlineHandler(kubelet.status_manager, kubelet.recorder, kubelet.clock)
    kubelet.pod_sync_loop_handlers.append(deadline)
    kubelet.pod_sync_handlers.append(deadline)
    handlers.append(
        lifecycle.PredicateAdmitHandler(
            kubelet.get_cached_node,
            preemption.CriticalPodAdmissionHandler(
                kill_pod_now(ctx, kubelet.pod_workers, kubelet.recorder, preemption.LONGEST_WAIT_FOR_VICTIM),
                kubelet.recorder,
            ),
            kubelet.container_manager.update_plugin_resources,
        )
    )
    handlers.append(lifecycle.AppArmorAdmitHandler(apparmor.Validator()))
    handlers.append(lifecycle.PodFeaturesAdmitHandler())
    if features.feature_gate.enabled(features.NODE_DECLARED_FEATURES):
        handlers.append(
            lifecycle.DeclaredFeaturesAdmitHandler(
                nodedeclaredfeatures.DEFAULT_FRAMEWORK,
                lambda: discover_node_declared_features(kubelet.runtime_state.runtime_features()),
                utilversion.parse(version.get().git_version),
            )
        )
    return handlers


def _build_user_namespaces(kubelet: Kubelet) -> None:
    """Raises ValueError and OSError when the node's ids do not do for its pods."""
    settings = kubelet.kubelet_configuration.user_namespaces
    try:
        kubelet.userns_manager = userns.UsernsManager(kubelet, settings.ids_per_pod if settings is not None else None)
    except (ValueError, OSError) as err:
        raise ValueError(f"create user namespace manager: {err}") from err


def _build_shutdown_manager(ctx: golang.Context, kubelet: Kubelet) -> lifecycle.PodAdmitHandler:
    """Who ends pods in time when the system shuts down, and admits none from then on."""
    kube_cfg = kubelet.kubelet_configuration

    def sync_node_status(ctx: golang.Context) -> None:
        if kubelet.kube_client is not None:
            kubelet.sync_node_status(ctx)

    kubelet.shutdown_manager = nodeshutdown.new_manager(
        nodeshutdown.Config(
            volume_manager=kubelet.volume_manager,
            recorder=kubelet.recorder,
            node_ref=kubelet.node_ref,
            get_pods_func=kubelet.get_active_pods,
            kill_pod_func=kill_pod_now(ctx, kubelet.pod_workers, kubelet.recorder),
            sync_node_status_func=sync_node_status,
            shutdown_grace_period_requested=kube_cfg.shutdown_grace_period,
            shutdown_grace_period_critical_pods=kube_cfg.shutdown_grace_period_critical_pods,
            shutdown_grace_period_by_pod_priority=kube_cfg.shutdown_grace_period_by_pod_priority,
            state_directory=Path(kubelet.root_directory),
            clock=kubelet.clock,
        )
    )
    return kubelet.shutdown_manager


def _build_node_lease(ctx: golang.Context, kubelet: Kubelet) -> None:
    client = kubelet.heartbeat_client
    if client is None:
        return
    # Only a kubelet with an API server loads them.
    from kubelet.util import nodelease
    from pkg.component_helpers.apimachinery import lease

    duration = kubelet.kubelet_configuration.node_lease_duration_seconds
    kubelet.node_lease_controller = lease.Controller(
        kubelet.clock,
        client,
        kubelet.node_name,
        duration,
        kubelet.on_repeated_heartbeat_failure,
        duration * NODE_LEASE_RENEW_INTERVAL_FRACTION,
        kubelet.node_name,
        v1.NAMESPACE_NODE_LEASE,
        nodelease.set_node_owner_func(ctx, client, kubelet.node_name),
    )


def _build_serving_certificate(kubelet: Kubelet, kube_deps: Dependencies, options: KubeletOptions) -> None:
    """What the server shows who it is with, and how it speaks TLS."""
    tls_options, kube_cfg = kube_deps.tls_options, kubelet.kubelet_configuration
    if tls_options is None:
        return
    # Only a kubelet with a server loads them.
    from kubelet import certificate as kubeletcertificate
    from pkg.apiserver.server import dynamiccertificates

    if kube_cfg.server_tls_bootstrap and features.feature_gate.enabled(features.ROTATE_KUBELET_SERVER_CERTIFICATE):
        kubelet.server_certificate_manager = kubeletcertificate.new_kubelet_server_certificate_manager(
            kubelet.kube_client,
            kube_cfg,
            kubelet.node_name,
            kubelet.get_last_observed_node_addresses,
            options.cert_directory,
            expiry_warning=kubeletcertificate.ExpiryWarning("serving", kubelet.node_ref, kubelet.recorder),
            clock=kubelet.clock,
        )
    elif tls_options.cert_file and tls_options.key_file:
        kubelet.server_certificate_manager = kubeletcertificate.KubeletServerCertificateDynamicFileManager(
            tls_options.cert_file, tls_options.key_file
        )
    manager, auth = kubelet.server_certificate_manager, kube_deps.auth
    kube_deps.tls_config = server.TLSConfig(
        tls_options,
        manager.current if manager is not None else lambda: None,
        auth.client_ca_provider if auth is not None else dynamiccertificates.NoCAContent(),
    )
