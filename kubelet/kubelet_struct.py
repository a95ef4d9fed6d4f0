"""The fields of a Kubelet, and what it is built from.

Go declares the struct in kubelet.go and spreads its methods over several files. Here the methods of each file are a
class over these fields, and each class inherits the one before it:
KubeletStruct → getters → volumes → network → node status → node cache → logs → pods → Kubelet.

Go: pkg/kubelet/kubelet.go (type Kubelet, type Dependencies)
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubelet.kubelet_admission import WaitingPods
from kubelet.observer import Observers
from kubelet.util import BasicNodeStartupLatencyTracker, NodeStartupLatencyTracker
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import clock
from pkg.apimachinery.util import net as utilnet
from pkg.component_base import tracing

if TYPE_CHECKING:
    from kubelet import (
        allocation,
        clustertrustbundle,
        cm,
        config,
        configmap,
        eviction,
        images,
        lifecycle,
        logs,
        nodeshutdown,
        nodestatus,
        oom,
        pluginmanager,
        prober,
        runtimeclass,
        secret,
        server,
        stats,
        status,
        token,
        userns,
        volumemanager,
        watchdog,
    )
    from kubelet import cadvisor as kubecadvisor
    from kubelet import container as kubecontainer
    from kubelet import pleg as kubepleg
    from kubelet import pod as kubepod
    from kubelet.apis import config as kubeletconfig
    from kubelet.certificate import KubeletServerCertificateDynamicFileManager
    from kubelet.cri import apis as internalapi
    from kubelet.kubelet_node_status import StandaloneNode
    from kubelet.network import dns
    from kubelet.orphan_removal import OrphanRemoval
    from kubelet.pod_container_deletor import PodContainerDeletor
    from kubelet.pod_workers import PodWorkers
    from kubelet.prober import results as proberesults
    from kubelet.reason_cache import ReasonCache
    from kubelet.runtime import RuntimeState
    from kubelet.server import auth as server_auth
    from kubelet.server import stats as serverstats
    from kubelet.util.queue import WorkQueue
    from pkg import mount_utils
    from pkg import volume as pkgvolume
    from pkg.apimachinery.util.net import IPAddress
    from pkg.apiserver.server import flagz
    from pkg.client_go import kubernetes
    from pkg.client_go.tools import record
    from pkg.client_go.util import certificate, flowcontrol
    from pkg.component_helpers.apimachinery import lease
    from pkg.util import iptables
    from pkg.volume.util import hostutil, subpath


@dataclass(slots=True)
class Dependencies:
    """What a kubelet needs from outside, injected so that tests and the hollow node can put their own.

    Go: pkg/kubelet/kubelet.go, Dependencies
    """

    recorder: record.EventRecorder
    remote_runtime_service: internalapi.RuntimeService
    remote_image_service: internalapi.ImageManagerService
    cadvisor_interface: kubecadvisor.Interface
    os_interface: kubecontainer.OSInterface
    mounter: mount_utils.Interface
    hostutil: hostutil.HostUtils
    subpather: subpath.Interface
    volume_plugins: list[pkgvolume.VolumePlugin]
    # None where nobody watches the kernel's log.
    new_oom_watcher: Callable[[record.EventRecorder], oom.Watcher | None] | None = None
    # None where no chain of the packet filter may be made.
    new_iptables: Callable[[], list[iptables.Interface]] | None = None
    # Made when the clients are there, for it may have to ask the API server.
    container_manager: cm.ContainerManager | None = None
    pod_config: config.PodConfig | None = None
    # The three clients are None in standalone mode. Heartbeats must not wait behind other calls.
    kube_client: kubernetes.Interface | None = None
    heartbeat_client: kubernetes.Interface | None = None
    event_client: kubernetes.Interface | None = None
    # Called after repeated failures of heartbeats: the connections may be dead.
    on_heartbeat_failure: Callable[[], None] | None = None
    clock: clock.Clock = field(default_factory=clock.RealClock)
    # Who may ask the server for what.
    auth: server_auth.KubeletAuth | None = None
    # How the server speaks TLS; without it there is no serving certificate, and it speaks plain HTTP.
    tls_options: server.TLSOptions | None = None
    # The same with the certificate, made with the kubelet.
    tls_config: server.TLSConfig | None = None
    # The flags, for a page of the server.
    flagz: flagz.Reader | None = None
    tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER
    # Who is told what the kubelet does, and who adds pages below /debug/ to its server and to the debug socket.
    observers: Observers = field(default_factory=Observers)
    debug_pages: list[server.InstallPages] = field(default_factory=list)
    # Tells systemd that the kubelet is well; None where nobody does, as of a hollow node.
    health_checker: watchdog.HealthChecker | None = None
    # Where the kubelet leaves what it cannot run with; who started it ends then.
    failed: golang.Channel[Exception] = field(default_factory=lambda: golang.Channel(1))


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletStruct:
    """Everything the kubelet's loops share. Fields are set once by kubelet_build unless their comment says more.

    Go: pkg/kubelet/kubelet.go, Kubelet
    """

    # Takes the error that the kubelet cannot run with.
    failed: golang.Channel[Exception]
    kubelet_configuration: kubeletconfig.KubeletConfiguration
    hostname: str
    node_name: str
    node_ips: list[utilnet.IPAddress]
    node_ref: v1.ObjectReference
    node_labels: dict[str, str]
    root_directory: str
    pod_logs_directory: str
    clock: clock.Clock
    recorder: record.EventRecorder
    kube_client: kubernetes.Interface | None
    runtime_service: internalapi.RuntimeService
    cadvisor: kubecadvisor.Interface
    oom_watcher: oom.Watcher | None
    os: kubecontainer.OSInterface
    mounter: mount_utils.Interface
    hostutil: hostutil.HostUtils
    subpather: subpath.Interface
    container_manager: cm.ContainerManager
    sources_ready: config.SourcesReady
    dns_configurer: dns.Configurer
    # None where the chains of the packet filter are not wanted.
    new_iptables: Callable[[], list[iptables.Interface]] | None

    tracer: tracing.Tracer
    # Who is told what the kubelet does.
    observers: Observers
    # Tells the time at which a failed pull is tried again, by uid and image.
    image_back_off: flowcontrol.Backoff
    # Has the channel of what the sources change, which the sync loop reads.
    pod_config: config.PodConfig

    # Seconds between two syncs of a pod that nothing else wakes.
    resync_interval: float
    cgroups_per_qos: bool
    max_pods: int
    # Keep volumes of a pod mounted after its end, for debugging.
    keep_terminated_pod_volumes: bool = False

    pod_manager: kubepod.Manager = field(init=False)
    mirror_pod_client: kubepod.MirrorClient = field(init=False)
    # The newest known runtime status of each pod, written by the PLEG.
    pod_cache: kubecontainer.Cache = field(init=False)
    runtime_cache: kubecontainer.RuntimeCache = field(init=False)
    pod_workers: PodWorkers = field(init=False)
    work_queue: WorkQueue = field(init=False)
    # Why the last sync of a container failed, shown as its waiting reason.
    reason_cache: ReasonCache = field(init=False)
    runtime_state: RuntimeState = field(init=False)
    container_runtime: kubecontainer.Runtime = field(init=False)
    # The same runtime, as what serves exec, attach and port forwarding, and as what runs a command to its end.
    streaming_runtime: kubecontainer.StreamingRuntime = field(init=False)
    runner: kubecontainer.CommandRunner = field(init=False)
    status_manager: status.Manager = field(init=False)
    # Admits pods, and knows what each was given.
    allocation_manager: allocation.Manager = field(init=False)
    # Pods whose admission waits for something.
    waiting_pods: WaitingPods = field(init=False, default_factory=WaitingPods)
    # The removals of orphaned cgroups under way, by the pod's uid. Only the sync loop's thread adds to them.
    cgroup_cleanups: dict[str, golang.Thread] = field(init=False, default_factory=dict)
    # Removes the directories of pods that are gone.
    orphan_removal: OrphanRemoval = field(init=False)
    probe_manager: prober.Manager = field(init=False)
    liveness_manager: proberesults.Manager = field(init=False)
    readiness_manager: proberesults.Manager = field(init=False)
    startup_manager: proberesults.Manager = field(init=False)
    volume_manager: volumemanager.VolumeManager = field(init=False)
    volume_plugin_mgr: pkgvolume.VolumePluginMgr = field(init=False)
    # Finds CSI drivers and other plugins by their sockets.
    plugin_manager: pluginmanager.PluginManager = field(init=False)
    container_log_manager: logs.ContainerLogManager = field(init=False)
    container_gc: kubecontainer.GC = field(init=False)
    container_deletor: PodContainerDeletor = field(init=False)
    image_manager: images.ImageGCManager = field(init=False)
    # Frees what the node is short of: garbage first, then pods.
    eviction_manager: eviction.Manager = field(init=False)
    # Figures of the node and its pods, and what is known of their volumes.
    stats_provider: stats.Provider = field(init=False)
    host_stats_provider: stats.HostStatsProvider = field(init=False)
    resource_analyzer: serverstats.ResourceAnalyzer = field(init=False)
    pleg: kubepleg.PodLifecycleEventGenerator = field(init=False)
    # None unless the feature gate EventedPLEG is on.
    evented_pleg: kubepleg.EventedPLEG | None = None
    runtime_class_manager: runtimeclass.Manager | None = None
    userns_manager: userns.UsernsManager = field(init=False)
    crash_loop_back_off: flowcontrol.Backoff = field(init=False)

    # What pods refer to; in standalone mode the manifest folder has it. Pod workers tell them which pods run.
    secret_manager: secret.Manager | None = None
    config_map_manager: configmap.Manager | None = None
    # Tokens of pods' service accounts; None in standalone mode.
    token_manager: token.Manager | None = None
    cluster_trust_bundle_manager: clustertrustbundle.Manager = field(init=False)

    pod_sync_loop_handlers: list[lifecycle.PodSyncLoopHandler] = field(default_factory=list)
    pod_sync_handlers: list[lifecycle.PodSyncHandler] = field(default_factory=list)

    # None in standalone mode, where no Service is known.
    service_lister: Callable[[], list[v1.Service]] | None = None
    service_has_synced: Callable[[], bool] = lambda: True

    # None in standalone mode, as is the informer's node.
    heartbeat_client: kubernetes.Interface | None = None
    # Called after repeated failures of heartbeats: the connections may be dead.
    on_repeated_heartbeat_failure: Callable[[], None] | None = None
    node_lister: kubepod.NodeGetter | None = None
    # Whether the node has been read from the API server since the start.
    node_has_synced: Callable[[], bool] = lambda: True
    node_lease_controller: lease.Controller = field(init=False)
    shutdown_manager: nodeshutdown.Manager | None = None
    # None where nobody tells systemd that the kubelet is well.
    health_checker: watchdog.HealthChecker | None = None
    # Has the certificate to serve with; None if there is none, as without a server.
    server_certificate_manager: certificate.Manager | KubeletServerCertificateDynamicFileManager | None = None
    node_startup_latency_tracker: NodeStartupLatencyTracker = field(default_factory=BasicNodeStartupLatencyTracker)

    # Seconds between two looks at the node's status, and between two reports of one that does not change.
    node_status_update_frequency: float = 10.0
    node_status_report_frequency: float = 300.0
    # Whether somebody else knows the node's addresses better.
    external_cloud_provider: bool = False
    # Raises ValueError for an address that is none of this machine's; None for the usual rules.
    node_ip_validator: Callable[[IPAddress], None] | None = None
    # What fills in the node's status, made at its first use.
    set_node_status_funcs: list[nodestatus.Setter] = field(default_factory=list)

    # Closed once the pods of all sources are known.
    all_sources_seen: golang.Channel[None] = field(init=False, default_factory=golang.Channel)
    # Says that the node's status must tell of other volumes in use, before they can be attached or detached.
    volumes_in_use_changed: golang.Channel[None] = field(default_factory=lambda: golang.Channel(1))
    # Held while the node's status is found out and reported; guards the next four.
    sync_node_status_mux: threading.Lock = field(default_factory=threading.Lock)
    registration_completed: bool = False
    # The node as this kubelet has just created it, for the informer may not have it yet.
    created_node: v1.Node | None = None
    # By the monotonic clock; None until a status has been reported.
    last_status_report_time: float | None = None
    # Seconds by which the next report of an unchanged status is early or late.
    delay_after_node_status_change: float = 0.0
    # Whether a runtime that is not ready is worth a line in the log; guarded by update_runtime_mux.
    container_runtime_ready_expected: bool = False
    last_node_unschedulable_lock: threading.Lock = field(default_factory=threading.Lock)
    # Guarded by the lock above.
    last_node_unschedulable: bool = False
    # The newest node that the API server is known to have; replaced as a whole, as is the node of standalone mode.
    cached_node: v1.Node | None = None
    # Held while the one above is compared and replaced, by a thread that admits pods or one that reports the status.
    cached_node_mux: threading.Lock = field(default_factory=threading.Lock)
    standalone_node: StandaloneNode | None = None
    # Held by the one thread that brings that one up to date.
    standalone_node_mux: threading.Lock = field(default_factory=threading.Lock)

    # When sync_loop_iteration last began or ended, by the steady clock; None before the first time. Read by the
    # health check.
    sync_loop_monitor: datetime.datetime | None = None
    # The work queue gave out pods that were due, and a failure kept the sync loop from syncing them.
    due_pods_lost: bool = False
    # Held while the runtime's state is read, so that two readers do not initialise the modules twice.
    update_runtime_mux: threading.Lock = field(default_factory=threading.Lock)
    # Whether the modules that need a running container runtime have been started; guarded by update_runtime_mux.
    runtime_modules_started: bool = False
