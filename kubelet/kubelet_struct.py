"""The fields of a Kubelet, and what it is built from.

Go declares the struct in kubelet.go and spreads its methods over several files. Here the methods of each file are a
class over these fields, and each class inherits the one before it:
KubeletStruct → getters → volumes → network → node status → pods → Kubelet.

Go: pkg/kubelet/kubelet.go (type Kubelet, type Dependencies)
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pkg.api.core import v1
from pkg.apimachinery import clock

if TYPE_CHECKING:
    from kubelet import cadvisor as kubecadvisor
    from kubelet import cm, config, images, lifecycle, logs, prober, runtimeclass, status, volumemanager
    from kubelet import container as kubecontainer
    from kubelet import pleg as kubepleg
    from kubelet import pod as kubepod
    from kubelet.apis import config as kubeletconfig
    from kubelet.cri import apis as internalapi
    from kubelet.network import dns
    from kubelet.pod_container_deletor import PodContainerDeletor
    from kubelet.pod_workers import PodWorkers
    from kubelet.prober import results as proberesults
    from kubelet.reason_cache import ReasonCache
    from kubelet.runtime import RuntimeState
    from kubelet.util.queue import WorkQueue
    from pkg import mount_utils
    from pkg import volume as pkgvolume
    from pkg.client_go import kubernetes
    from pkg.client_go.tools import record
    from pkg.client_go.util import flowcontrol
    from pkg.volume.util import hostutil, subpath


@dataclass(slots=True)
class Dependencies:
    """What a kubelet needs from outside, injected so that tests and the hollow node can put their own.

    Go: pkg/kubelet/kubelet.go, Dependencies
    """

    recorder: record.EventRecorder
    remote_runtime_service: internalapi.RuntimeService
    remote_image_service: internalapi.ImageManagerService
    container_manager: cm.ContainerManager
    cadvisor_interface: kubecadvisor.Interface
    os_interface: kubecontainer.OSInterface
    mounter: mount_utils.Interface
    hostutil: hostutil.HostUtils
    subpather: subpath.Interface
    volume_plugins: list[pkgvolume.VolumePlugin]
    pod_config: config.PodConfig | None = None
    # The three clients are None in standalone mode. Heartbeats must not wait behind other calls.
    kube_client: kubernetes.Interface | None = None
    heartbeat_client: kubernetes.Interface | None = None
    event_client: kubernetes.Interface | None = None
    # Called after repeated failures of heartbeats: the connections may be dead.
    on_heartbeat_failure: Callable[[], None] | None = None
    clock: clock.Clock = field(default_factory=clock.RealClock)


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletStruct:
    """Everything the kubelet's loops share. Fields are set once by new_main_kubelet unless their comment says more.

    Go: pkg/kubelet/kubelet.go, Kubelet
    """

    kubelet_configuration: kubeletconfig.KubeletConfiguration
    hostname: str
    node_name: str
    node_ips: list[str]
    node_ref: v1.ObjectReference
    node_labels: dict[str, str]
    root_directory: str
    pod_logs_directory: str
    clock: clock.Clock
    recorder: record.EventRecorder
    kube_client: kubernetes.Interface | None
    runtime_service: internalapi.RuntimeService
    cadvisor: kubecadvisor.Interface
    os: kubecontainer.OSInterface
    mounter: mount_utils.Interface
    hostutil: hostutil.HostUtils
    subpather: subpath.Interface
    container_manager: cm.ContainerManager
    sources_ready: config.SourcesReady
    dns_configurer: dns.Configurer

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
    status_manager: status.Manager = field(init=False)
    probe_manager: prober.Manager = field(init=False)
    liveness_manager: proberesults.Manager = field(init=False)
    readiness_manager: proberesults.Manager = field(init=False)
    startup_manager: proberesults.Manager = field(init=False)
    volume_manager: volumemanager.VolumeManager = field(init=False)
    volume_plugin_mgr: pkgvolume.VolumePluginMgr = field(init=False)
    container_log_manager: logs.ContainerLogManager = field(init=False)
    container_gc: kubecontainer.GC = field(init=False)
    container_deletor: PodContainerDeletor = field(init=False)
    image_manager: images.ImageGCManager = field(init=False)
    pleg: kubepleg.PodLifecycleEventGenerator = field(init=False)
    # None unless the feature gate EventedPLEG is on.
    evented_pleg: kubepleg.EventedPLEG | None = None
    runtime_class_manager: runtimeclass.Manager | None = None
    crash_loop_back_off: flowcontrol.Backoff = field(init=False)

    admit_handlers: list[lifecycle.PodAdmitHandler] = field(default_factory=list)
    pod_sync_loop_handlers: list[lifecycle.PodSyncLoopHandler] = field(default_factory=list)
    pod_sync_handlers: list[lifecycle.PodSyncHandler] = field(default_factory=list)

    # None in standalone mode, where no Service is known.
    service_lister: Callable[[], list[v1.Service]] | None = None
    service_has_synced: Callable[[], bool] = lambda: True

    # When sync_loop_iteration last began or ended; None before the first time. Read by the health check.
    sync_loop_monitor: datetime.datetime | None = None
    # Held while the runtime's state is read, so that two readers do not initialise the modules twice.
    update_runtime_mux: threading.Lock = field(default_factory=threading.Lock)
    # Whether the modules that need a running container runtime have been started; guarded by update_runtime_mux.
    runtime_modules_started: bool = False
