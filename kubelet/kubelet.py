"""Turn changes in pod sources, the runtime and probes into work for the pod workers.

Go: pkg/kubelet/kubelet.go
"""

from __future__ import annotations

import datetime
import enum
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import (
    activity,
    allocation,
    cm,
    events,
    eviction,
    kuberuntime,
    lifecycle,
    metrics,
    nodeshutdown,
    server,
    status,
    sysctl,
    util,
    volumemanager,
)
from kubelet import container as kubecontainer
from kubelet import pleg as kubepleg
from kubelet import pod as kubepod
from kubelet import types as kubetypes
from kubelet.activity import Activity
from kubelet.cm import topologymanager
from kubelet.errors import (
    NetworkNotReadyError,
    NotReadyError,
    PodCgroupError,
    PodNotAdmittedError,
    StillRunningError,
)
from kubelet.kubelet_admission import WaitingPods
from kubelet.kubelet_garbage import KubeletGarbage
from kubelet.kubelet_logs import KubeletLogs
from kubelet.kubelet_network_linux import init_network_util
from kubelet.kubelet_node_declared_features import missing_for_update
from kubelet.kubelet_nodecache import KubeletNodeCache
from kubelet.kubelet_pod_resources_api import KubeletPodResourcesAPI
from kubelet.kubelet_pods import PodsOnNode
from kubelet.kubelet_resize import record_resize_operations, requests_shrank
from kubelet.kubelet_stats import KubeletStats
from kubelet.kubeletconfig import KUBELET_PLUGINS_DIR_SELINUX_LABEL
from kubelet.metrics.collectors.log_metrics import LogMetricsCollector
from kubelet.metrics.collectors.volume_stats import VolumeStatsCollector
from kubelet.pod_workers import PodStatusFunc, SyncPodResult, UpdatePodOptions
from kubelet.prober import results as proberesults
from kubelet.util import sliceutils
from pkg import golang, klog, mount_utils
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock, types
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.apis.core.v1.helper import qos as v1qos
from pkg.component_base import tracing
from pkg.util import filesystem
from pkg.util import pod as utilpod
from pkg.volume.util import hostutil

if TYPE_CHECKING:
    from kubelet import config, logs, oom, pluginmanager, watchdog
    from kubelet.apis import config as kubeletconfig
    from kubelet.certificate import KubeletServerCertificateDynamicFileManager
    from kubelet.cri import apis as internalapi
    from kubelet.observer import Observers
    from kubelet.pod_container_deletor import PodContainerDeletor
    from kubelet.server import auth as serverauth
    from kubelet.util.queue import WorkQueue
    from pkg.apiserver.server import flagz as flagzlib
    from pkg.client_go.util import certificate, flowcontrol
    from pkg.component_helpers.apimachinery import lease
    from pkg.util import iptables

# All times in this module are in seconds.
RUNTIME_CHECK_PERIOD = 5.0
# The pause between two node status reports may exceed its period by up to this fraction.
NODE_STATUS_JITTER = 0.04
# The kubelet looks for its Node object at this interval until the node is registered.
NODE_POLL_PERIOD = 0.1
SYNC_PERIOD = 1.0
HOUSEKEEPING_PERIOD = 2.0
HOUSEKEEPING_WARNING_DURATION = 1.0
# While the runtime is unhealthy, the sync loop pauses: first for BASE, then twice as long each time, up to MAX.
RUNTIME_ERROR_BACK_OFF_BASE = 0.1
RUNTIME_ERROR_BACK_OFF_MAX = 5.0
# When the sync loop fails to handle an event of a pod, the pod is synced after this time.
FAILED_EVENT_RETRY_PERIOD = 10.0

EVICTION_MONITORING_PERIOD = 10.0
# The metric of rejected pods has its own label value for each of these reasons.
_REJECTION_REASONS = frozenset(
    {
        eviction.REASON,
        lifecycle.APP_ARMOR_NOT_ADMITTED_REASON,
        lifecycle.POD_LEVEL_RESOURCES_NOT_ADMITTED_REASON,
        lifecycle.POD_FEATURE_UNSUPPORTED,
        lifecycle.POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH,
        lifecycle.POD_OS_NOT_SUPPORTED,
        lifecycle.INVALID_NODE_INFO,
        lifecycle.SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED,
        lifecycle.UNEXPECTED_ADMISSION_ERROR,
        lifecycle.UNEXPECTED_PREDICATE_FAILURE_TYPE,
        nodeshutdown.NODE_SHUTDOWN_NOT_ADMITTED_REASON,
        sysctl.FORBIDDEN_REASON,
        topologymanager.ERROR_TOPOLOGY_AFFINITY,
        volumemanager.VOLUME_ATTACHMENT_LIMIT_EXCEEDED_REASON,
        *(lifecycle.INSUFFICIENT_RESOURCE_PREFIX + name for name in ("cpu", "memory", "ephemeral-storage", "pods")),
    }
)


class SyncHandler(Protocol):
    """Define how the sync loop hands over its events; a Go interface. Only the loop's thread calls these methods.

    A handler contains the failure of one pod: it still handles the other pods, and the failed pod is synced later.
    """

    def handle_pod_additions(self, ctx: golang.Context, pods: list[v1.Pod]) -> None: ...

    def handle_pod_updates(self, ctx: golang.Context, pods: list[v1.Pod]) -> None: ...

    def handle_pod_removes(self, ctx: golang.Context, pods: list[v1.Pod]) -> None: ...

    def handle_pod_reconcile(self, ctx: golang.Context, pods: list[v1.Pod]) -> None: ...

    def handle_pod_syncs(self, ctx: golang.Context, pods: list[v1.Pod]) -> None: ...

    def handle_pod_cleanups(self, ctx: golang.Context, found: PodsOnNode) -> None: ...


class LoopCase(enum.IntEnum):
    """List the channels of the sync loop, with the numbers under which the live view shows them."""

    CONFIG = 0
    PLEG = 1
    SYNC = 2
    LIVENESS = 3
    READINESS = 4
    STARTUP = 5
    CONTAINER_MANAGER = 6
    HOUSEKEEPING = 7
    STOP = 8


@dataclass(kw_only=True, eq=False, repr=False)
class Kubelet(KubeletPodResourcesAPI, KubeletLogs, KubeletNodeCache, KubeletStats, KubeletGarbage):
    """Run the agent of one node. kubelet_build creates it; its main loop is `run`, which returns when ctx ends."""

    # `failed` receives the error with which the kubelet cannot continue to run.
    failed: golang.Channel[Exception]
    pod_logs_directory: str
    runtime_service: internalapi.RuntimeService
    oom_watcher: oom.Watcher | None
    os: kubecontainer.OSInterface
    # `new_iptables` is None if the kubelet must not create its chains in iptables.
    new_iptables: Callable[[], list[iptables.Interface]] | None
    tracer: tracing.Tracer
    # The kubelet reports what it does to these observers.
    observers: Observers
    # If this flag is set, the volumes of a terminated pod stay mounted, for debugging.
    keep_terminated_pod_volumes: bool = False
    # The PLEG writes the newest known runtime status of each pod here.
    pod_cache: kubecontainer.Cache
    work_queue: WorkQueue
    # These pods wait for a decision about their admission.
    waiting_pods: WaitingPods = field(default_factory=WaitingPods)
    liveness_manager: proberesults.Manager
    readiness_manager: proberesults.Manager
    startup_manager: proberesults.Manager
    # The plugin manager finds CSI drivers and other plugins by their sockets.
    plugin_manager: pluginmanager.PluginManager
    container_log_manager: logs.ContainerLogManager
    container_deletor: PodContainerDeletor
    pleg: kubepleg.PodLifecycleEventGenerator
    # `evented_pleg` is None unless the feature gate EventedPLEG is on.
    evented_pleg: kubepleg.EventedPLEG | None = None
    pod_sync_loop_handlers: list[lifecycle.PodSyncLoopHandler] = field(default_factory=list)
    # `node_lease_controller` is None in standalone mode.
    node_lease_controller: lease.Controller | None = None
    # `health_checker` is None if systemd's watchdog does not supervise the kubelet.
    health_checker: watchdog.HealthChecker | None = None
    # The manager provides the server's certificate. It is None if there is no certificate, for example without a
    # server.
    server_certificate_manager: certificate.Manager | KubeletServerCertificateDynamicFileManager | None = None
    # `tls_config` holds the server's TLS settings. It is None for a server without TLS.
    tls_config: server.TLSConfig | None = None
    # The volume manager sends here when the node's status must report other volumes as in use.
    volumes_in_use_changed: golang.Channel[None] = field(default_factory=lambda: golang.Channel(1))
    # `sync_loop_iteration` last began or ended at this steady-clock time; None before that. The health check reads it.
    sync_loop_monitor: datetime.datetime | None = None
    # `due_pods_lost` is true if the work queue handed out due pods, and the sync loop then failed to sync them.
    due_pods_lost: bool = False
    # The flag is true once the modules that need a container runtime have started; guarded by `update_runtime_mux`.
    runtime_modules_started: bool = False
    # `image_back_off` gives the time of the next attempt after a failed image pull, for each pod UID and image.
    image_back_off: flowcontrol.Backoff
    # The sync loop reads the changes of all sources from this object's channel.
    pod_config: config.PodConfig
    # Each pod is synced at least at this interval, in seconds. The server's health check uses the value too.
    resync_interval: float
    # `node_has_synced` reports whether the kubelet has read its Node object from the API server since the start.
    node_has_synced: Callable[[], bool] = lambda: True

    # ---- Start ----

    def setup_data_dirs(self) -> None:
        """Create the directories under the root directory and the pod log directory. Raise OSError on failure."""
        for path in (
            self.get_root_dir(),
            self.pod_logs_directory,
            self.get_pods_dir(),
            self.get_plugins_dir(),
            self.get_plugins_registration_dir(),
            self.get_pod_resources_dir(),
        ):
            filesystem.mkdir_all(path, 0o750)
        filesystem.mkdir_all(self.get_checkpoints_dir(), 0o700)
        self.hostutil.make_rshared(self.get_root_dir())
        if hostutil.selinux_enabled():
            self._label_plugin_dirs()

    def _label_plugin_dirs(self) -> None:
        """Set the SELinux label with which plugins in unprivileged containers can reach their sockets."""
        for what, path in (
            ("plugin registration dir", self.get_plugins_registration_dir()),
            ("plugins dir", self.get_plugins_dir()),
        ):
            try:
                hostutil.set_file_label(path, KUBELET_PLUGINS_DIR_SELINUX_LABEL)
            except OSError as err:
                message = f"Unprivileged containerized plugins might not work, could not set selinux context on {what}"
                klog.info_s(message, path=path, err=err)

    def initialize_modules(self, ctx: golang.Context) -> None:
        """Start the modules that do not need the runtime. Raise OSError if a directory cannot be created."""
        metrics.register()
        self._register_collectors(ctx)
        metrics.set_node_name(self.node_name)
        self.setup_data_dirs()
        self.os.mkdir_all(kuberuntime.LEGACY_CONTAINER_LOGS_DIR, 0o755)
        self.image_manager.start(ctx)
        if self.server_certificate_manager is not None:
            self.server_certificate_manager.start()
            golang.after_func(ctx, self.server_certificate_manager.stop)
        if self.oom_watcher is not None:
            self.oom_watcher.start(ctx, self.node_ref)
        self.resource_analyzer.start(ctx)

    def _register_collectors(self, ctx: golang.Context) -> None:
        """Export the metrics that are computed on each scrape, until ctx ends."""
        found = VolumeStatsCollector(self.list_pod_storage_stats), LogMetricsCollector(self.list_pod_storage_stats)
        try:
            metrics.register_collectors(*found)
        except ValueError:
            klog.v(4).info_s("Another kubelet in this process already exports the statistics of its pods")
            return
        golang.after_func(ctx, lambda: metrics.unregister_collectors(*found))

    def initialize_runtime_dependent_modules(self, ctx: golang.Context) -> None:
        """Start the modules that need a running container runtime, once the runtime is ready.

        The kubelet repeats the call only after a failure. Raise OSError if the node's cgroups cannot be set up.
        """
        self.container_manager.start(
            ctx,
            self.get_node_any_way(ctx),
            self.get_active_pods,
            self.pod_workers.could_have_running_containers,
            self.get_node_any_way,
            self.sources_ready,
            self.status_manager,
            self.runtime_service,
            self.kubelet_configuration.local_storage_capacity_isolation,
        )
        # Eviction ranks pods by their allocated resources, not by their requests.
        self.eviction_manager.start(
            ctx, self.stats_provider, self.get_allocated_pods, self.pod_is_finished, EVICTION_MONITORING_PERIOD
        )
        self.container_log_manager.start(ctx)
        for plugin_type, handler in self.container_manager.get_plugin_registration_handlers().items():
            self.plugin_manager.add_handler(plugin_type, handler)
        if self.shutdown_manager is not None:
            self.shutdown_manager.start(ctx)
        # The plugin manager starts last: plugins of a failed attempt would not reach the handlers of the next attempt.
        klog.v(4).info_s("Starting plugin manager")
        golang.go(self.plugin_manager.run, ctx, name="plugin-manager")

    def run(self, ctx: golang.Context, updates: golang.Channel[kubetypes.PodUpdate]) -> None:
        """Start all threads, and run the sync loop until ctx is cancelled or the update channel is closed.

        Raise OSError if the kubelet's directories cannot be created.
        """
        if self.kube_client is None:
            klog.info_s("No API server defined - no node status update will be sent")
        try:
            self.initialize_modules(ctx)
        except OSError as err:
            self.recorder.event(self.node_ref, v1.EVENT_TYPE_WARNING, events.KUBELET_SETUP_FAILED, str(err))
            raise
        self.cgroup_version_check()
        self.allocation_manager.run(ctx)
        golang.go(self.volume_manager.run, ctx, self.sources_ready, name="volume-manager")
        if self.kube_client is not None:
            self._start_node_sync(ctx)
        golang.go(wait.until, lambda: self.update_runtime_up(ctx), RUNTIME_CHECK_PERIOD, ctx, name="runtime-check")
        if self.new_iptables is not None:
            golang.go(init_network_util, ctx, self.new_iptables, self.clock, name="iptables")
        self.status_manager.start(ctx)
        if self.runtime_class_manager is not None:
            self.runtime_class_manager.start(ctx)
        self.pleg.start(ctx)
        if self.evented_pleg is not None:
            self.evented_pleg.start(ctx)
        if self.health_checker is not None:
            checkers = self.container_manager.get_health_checkers()
            self.health_checker.set_health_checkers(server.sync_loop_health_check(self), checkers)
        try:
            self.sync_loop(ctx, updates, self)
        finally:
            self.probe_manager.stop_all()

    def cgroup_version_check(self) -> None:
        """Record the node's cgroup version as a metric, and warn about a deprecated version."""
        if cm.is_cgroup2_unified_mode():
            metrics.CGROUP_VERSION.set(2)
            if not os.path.exists(f"{util.CGROUP_ROOT}/cpu.stat"):
                klog.v(2).info_s("Warning: cgroup check", error=cm.CGROUP_V2_KERNEL_WARNING)
            return
        metrics.CGROUP_VERSION.set(1)
        self.recorder.event(self.node_ref, v1.EVENT_TYPE_WARNING, events.CGROUP_V1, cm.CGROUP_V1_DEPRECATED_WARNING)
        klog.v(2).info_s("Warning: cgroup check", error=cm.CGROUP_V1_DEPRECATED_WARNING)

    def _start_node_sync(self, ctx: golang.Context) -> None:
        """Start the threads that keep the node's status, its lease and the mirror pods current in the API server."""

        def sync_node_status() -> None:
            # Ask the runtime first: otherwise a restarted kubelet would report the runtime as not ready.
            with contain("Failed to query the runtime's status", golang.background()):
                self.update_runtime_up(ctx)
            wait.jitter_until(
                lambda: self.sync_node_status(ctx), self.node_status_update_frequency, NODE_STATUS_JITTER, True, ctx
            )

        golang.go(sync_node_status, name="node-status")
        golang.go(self._report_volumes_in_use, ctx, name="node-status-volumes")
        golang.go(self.fast_status_update_once, ctx, self.update_runtime_up, name="node-status-fast")
        if self.node_lease_controller is not None:
            golang.go(self.node_lease_controller.run, ctx, name="node-lease")
        golang.go(self.fast_static_pods_registration, ctx, name="static-pods-registration")

    def _report_volumes_in_use(self, ctx: golang.Context) -> None:
        """Report the node's status whenever the set of volumes in use changes.

        DIVERGES (fault of Go): the kubelet reports a change of the volumes in use at once.
        Go: pkg/kubelet/kubelet_node_status.go, (*Kubelet).syncNodeStatus: the next regular report carries the change.
        Why: a volume is attached or detached only after that report, up to ten seconds later (kubernetes#28141).
        Test: kubelet_faults_test.py:test_volumes_in_use_are_reported_after_a_report_that_failed
        """
        while golang.select(self.volumes_in_use_changed, ctx.done()).took(self.volumes_in_use_changed):
            try:
                # If this report fails, the regular one carries the change at most ten seconds later.
                with contain("Failed to report the volumes in use", ctx):
                    self.sync_node_status(ctx)
            except golang.ContextError:
                return

    def fast_static_pods_registration(self, ctx: golang.Context) -> None:
        """Create the mirror pods of static pods as soon as the node is registered, not only at their next sync."""

        def is_registered() -> bool:
            try:
                self.get_node(ctx)
            except Exception as err:
                # The node is not registered yet, or the API server does not respond; the poll tries again.
                message = "Unable to register mirror pod because node is not registered yet"
                klog.v(4).info_s(message, node=klog.kref("", self.node_name), err=err)
                return False
            return True

        try:
            wait.poll_until_context_cancel(ctx, NODE_POLL_PERIOD, True, is_registered)
        except golang.ContextError:
            return
        for static_pod, mirror_pod in self.pod_manager.get_static_pod_to_mirror_pod_map():
            # After a failure the next sync of the static pod tries again.
            with contain("Failed to register a static pod", golang.background(), pod=klog.kobj(static_pod)):
                self.try_reconcile_mirror_pods(ctx, static_pod, mirror_pod)

    def birth_cry(self) -> None:
        """Record the start of the kubelet as an event of the node."""
        self.recorder.event(self.node_ref, v1.EVENT_TYPE_NORMAL, events.STARTING_KUBELET, "Starting kubelet.")

    # ---- The main loop ----

    def sync_loop(
        self, ctx: golang.Context, updates: golang.Channel[kubetypes.PodUpdate], handler: SyncHandler
    ) -> None:
        """Handle the events of all channels, one at a time; pause while the runtime is unhealthy."""
        klog.info_s("Starting kubelet main sync loop")
        sync_ticker = self.clock.new_ticker(SYNC_PERIOD)
        housekeeping_ticker = self.clock.new_ticker(HOUSEKEEPING_PERIOD)
        housekeeping_ch: golang.Channel[PodsOnNode] = golang.Channel()
        looking, stop_looking = golang.with_cancel(ctx)
        golang.go(self._look_at_node, looking, housekeeping_ticker.channel, housekeeping_ch, name="housekeeping")
        pleg_ch = self.pleg.watch()
        pause = RUNTIME_ERROR_BACK_OFF_BASE
        self.dns_configurer.check_limits_for_resolv_conf()
        try:
            while ctx.err() is None:
                if err := self._sync_obstacle():
                    klog.error_s(err, "Skipping pod synchronization")
                    wait.sleep(ctx, pause, self.clock)
                    pause = min(RUNTIME_ERROR_BACK_OFF_MAX, 2 * pause)
                    continue
                pause = RUNTIME_ERROR_BACK_OFF_BASE
                self.sync_loop_monitor = self.clock.steady()
                if not self.sync_loop_iteration(ctx, updates, handler, sync_ticker.channel, housekeeping_ch, pleg_ch):
                    break
                self.observers.loop.done()
                self.sync_loop_monitor = self.clock.steady()
        except golang.Canceled:
            # A handler that blocks, for example on preempted pods, raises Canceled when the kubelet ends.
            if ctx.err() is None:
                raise
        finally:
            stop_looking()
            sync_ticker.stop()
            housekeeping_ticker.stop()

    def _look_at_node(
        self, ctx: golang.Context, ticks: golang.Channel[Any], housekeeping_ch: golang.Channel[PodsOnNode]
    ) -> None:
        """List the pods that run on the node at each tick, and send the list to the sync loop for housekeeping.

        The listing takes time, so the list that the sync loop handles is older than the state of the pod workers.

        DIVERGES (safer): a separate thread asks the runtime which pods run, and the sync loop handles pods meanwhile.
        Go: pkg/kubelet/kubelet.go, (*Kubelet).syncLoopIteration: the sync loop itself asks the runtime.
        Why: a runtime that hangs would keep all pods from starting and ending for two minutes.
        Test: kubelet_test.py:test_loop_goes_on_while_the_runtime_does_not_tell_its_pods
        """
        while golang.select(ticks, ctx.done()).took(ticks):
            try:
                if self._sync_obstacle() is None and self.sources_ready.all_ready():
                    housekeeping_ch.send(self.find_pods_on_node(ctx), ctx)
            except Exception as err:
                # The next housekeeping, in two seconds, cleans up what this one missed. The end of ctx is no failure.
                if ctx.err() is None:
                    klog.error_s(err, "Failed cleaning pods")

    def _sync_obstacle(self) -> Exception | None:
        """Return the reason why no pod can be synced now, or None.

        DIVERGES (fault of Go): after a start the kubelet syncs no pod until the first relist has inspected all pods.
        Go: pkg/kubelet/kubelet.go, (*Kubelet).syncLoop: the Go kubelet syncs pods during the first relist.
        Why: a pod that is not inspected yet has an empty status. If its phase is terminal, the kubelet treats it as
        terminated, and its containers lose their volumes while they run.
        Test: kubelet_test.py:test_loop_waits_until_all_pods_have_been_looked_at
        """
        if err := self.runtime_state.runtime_errors():
            return err
        return None if self.pod_cache.is_filled() else NotReadyError("the first relist of all pods is not complete")

    def sync_loop_iteration(
        self,
        ctx: golang.Context,
        config_ch: golang.Channel[kubetypes.PodUpdate],
        handler: SyncHandler,
        sync_ch: golang.Channel[Any],
        housekeeping_ch: golang.Channel[PodsOnNode],
        pleg_ch: golang.Channel[kubepleg.PodLifecycleEvent],
    ) -> bool:
        """Wait for the channels, receive one event from a ready channel, chosen at random, and handle it.

        - config: pods of a source were added, changed or removed → call the handler of that operation
        - pleg: the state of a pod's containers changed → sync the pod, remove dead containers
        - sync: a second has passed → sync the pods that are due
        - liveness, readiness, startup: a probe's result changed → record it in the status, sync the pod
        - container manager: a resource that a pod holds changed → sync the pod
        - housekeeping: two seconds have passed, and the runtime's pods are listed → clean up after pods

        The random choice keeps a busy channel from starving the others. Return False if the loop must end.
        """
        cases: dict[golang.Case, LoopCase] = {
            config_ch: LoopCase.CONFIG,
            pleg_ch: LoopCase.PLEG,
            sync_ch: LoopCase.SYNC,
            self.liveness_manager.updates(): LoopCase.LIVENESS,
            self.readiness_manager.updates(): LoopCase.READINESS,
            self.startup_manager.updates(): LoopCase.STARTUP,
            self.container_manager.updates(): LoopCase.CONTAINER_MANAGER,
            housekeeping_ch: LoopCase.HOUSEKEEPING,
            ctx.done(): LoopCase.STOP,
        }
        selected = golang.select(*cases)
        loop_case = cases[selected.case]
        self.observers.loop.took(loop_case)
        # An exception that no handler contained must fail only this event, because all pods depend on the loop.
        with contain("Failed to handle an event of the sync loop", ctx, channel=loop_case.name):
            match loop_case:
                case LoopCase.CONFIG:
                    if not selected.ok:
                        klog.error_s(None, "Update channel is closed, exiting the sync loop")
                        return False
                    self._dispatch_config_update(ctx, selected.value, handler)

                case LoopCase.PLEG:
                    self._handle_pleg_event(ctx, selected.value, handler)

                case LoopCase.SYNC:
                    self._sync_due_pods(ctx, handler)

                case LoopCase.LIVENESS:
                    update = selected.value
                    if update.result is proberesults.FAILURE:
                        self.handle_probe_sync(ctx, update, handler, "liveness", "unhealthy")

                case LoopCase.READINESS:
                    update = selected.value
                    ready = self.readiness_manager.newest(update) is proberesults.SUCCESS
                    self.status_manager.set_container_readiness(update.pod_uid, update.container_id, ready)
                    self.handle_probe_sync(ctx, update, handler, "readiness", "ready" if ready else "not ready")

                case LoopCase.STARTUP:
                    update = selected.value
                    started = self.startup_manager.newest(update) is proberesults.SUCCESS
                    self.status_manager.set_container_startup(update.pod_uid, update.container_id, started)
                    self.handle_probe_sync(ctx, update, handler, "startup", "started" if started else "unhealthy")

                case LoopCase.CONTAINER_MANAGER:
                    found = [self.pod_manager.get_pod_by_uid(types.UID(uid)) for uid in selected.value.pod_uids]
                    if pods := [pod for pod in found if pod is not None]:
                        klog.v(3).info_s("SyncLoop (containermanager): event for pods", pods=klog.kobjs(pods))
                        handler.handle_pod_syncs(ctx, pods)

                case LoopCase.HOUSEKEEPING:
                    if self.sources_ready.all_ready():
                        self._housekeep(ctx, handler, selected.value)
                    else:
                        klog.v(4).info_s("SyncLoop (housekeeping, skipped): sources aren't ready yet")

                case LoopCase.STOP:
                    # The Go kubelet ends only with its process. This kubelet also ends with its context, as in tests.
                    return False
        return True

    def _dispatch_config_update(self, ctx: golang.Context, update: kubetypes.PodUpdate, handler: SyncHandler) -> None:
        """Pass the pods of an update to the handler of its operation, and record that the source has reported."""
        level = 4 if update.op is kubetypes.RECONCILE else 2
        with contain("Failed to log an update", ctx, source=update.source):
            klog.v(level).info_s(f"SyncLoop {update.op.name}", source=update.source, pods=klog.kobjs(update.pods))
        match update.op:
            case kubetypes.PodOperation.ADD:
                handler.handle_pod_additions(ctx, update.pods)
            case kubetypes.PodOperation.UPDATE | kubetypes.PodOperation.DELETE:
                # The deletion of a pod is an update, because the pod still has its grace period to run.
                handler.handle_pod_updates(ctx, update.pods)
            case kubetypes.PodOperation.REMOVE:
                handler.handle_pod_removes(ctx, update.pods)
            case kubetypes.PodOperation.RECONCILE:
                handler.handle_pod_reconcile(ctx, update.pods)
            case _:
                klog.error_s(None, "Invalid operation type received", operation=update.op)
        if not update.complete:
            return
        was_ready = self.sources_ready.all_ready()
        self.sources_ready.add_source(update.source)
        if not was_ready and self.sources_ready.all_ready():
            self.volume_manager.sources_changed()
            self.all_sources_seen.close()
            # DIVERGES (fault of Go): the kubelet retries pending resizes as soon as all pod sources have reported.
            # Go: pkg/kubelet/kubelet.go, (*Kubelet).syncLoopIteration: the retry for added pods is skipped, because
            # their source counts as ready only afterwards. The next retry comes 30 seconds later.
            # Why: a resize that was pending when the kubelet stopped should not wait for longer than its pod does.
            # Test: kubelet_test.py:test_pending_resizes_are_tried_again_when_the_last_source_has_spoken
            self._retry_pending_resizes(ctx, allocation.TRIGGER_REASON_PODS_ADDED)

    def _handle_pleg_event(self, ctx: golang.Context, event: kubepleg.PodLifecycleEvent, handler: SyncHandler) -> None:
        if is_sync_pod_worthy(event):
            pod = self.pod_manager.get_pod_by_uid(event.id)
            if pod is not None:
                klog.v(2).info_s("SyncLoop (PLEG): event for pod", pod=klog.kobj(pod), event=event)
                handler.handle_pod_syncs(ctx, [pod])
            else:
                klog.v(4).info_s("SyncLoop (PLEG): pod does not exist, ignore irrelevant event", event=event)
        if event.type is kubepleg.CONTAINER_DIED and isinstance(event.data, str):
            self.clean_up_containers_in_pod(event.id, event.data)

    def _sync_due_pods(self, ctx: golang.Context, handler: SyncHandler) -> None:
        """Sync the pods that are due; sync all pods if the last call failed and lost the pods that were due."""
        lost, self.due_pods_lost = self.due_pods_lost, True
        pods_to_sync = self.get_pods_to_sync()
        if lost:
            pods_to_sync = self.pod_manager.get_pods()
        if pods_to_sync:
            klog.v(4).info_s("SyncLoop (SYNC) pods", total=len(pods_to_sync), pods=klog.kobjs(pods_to_sync))
            handler.handle_pod_syncs(ctx, pods_to_sync)
        self.due_pods_lost = False

    def _housekeep(self, ctx: golang.Context, handler: SyncHandler, found: PodsOnNode) -> None:
        start = self.clock.monotonic()
        klog.v(4).info_s("SyncLoop (housekeeping)")
        try:
            handler.handle_pod_cleanups(ctx, found)
        except Exception as err:
            # The next housekeeping, two seconds later, cleans up what this one missed.
            klog.error_s(err, "Failed cleaning pods")
        duration = found.seconds + self.clock.monotonic() - start
        if duration > HOUSEKEEPING_WARNING_DURATION:
            klog.error_s(
                TimeoutError("housekeeping took too long"),
                "Housekeeping took longer than expected",
                expected=HOUSEKEEPING_WARNING_DURATION,
                actual=round(duration, 3),
            )
        klog.v(4).info_s("SyncLoop (housekeeping) end", duration=round(duration, 3))

    def handle_probe_sync(
        self, ctx: golang.Context, update: proberesults.Update, handler: SyncHandler, probe: str, status: str
    ) -> None:
        """Sync the pod whose probe result changed."""
        # The update carries the pod as the probe worker knows it, which may be old. Use the pod manager's version.
        pod = self.pod_manager.get_pod_by_uid(update.pod_uid)
        if pod is None:
            klog.v(4).info_s("SyncLoop (probe): ignore irrelevant update", probe=probe, status=status, update=update)
            return
        klog.v(1).info_s("SyncLoop (probe)", probe=probe, status=status, pod=klog.kobj(pod))
        handler.handle_pod_syncs(ctx, [pod])
        if probe != "readiness":
            # The pod's worker waits for a status that is newer than its last sync. In Go it waits for the next relist.
            self.pleg.request_relist(update.pod_uid)

    # ---- SyncHandler ----

    @contextmanager
    def _for_one_pod(
        self, ctx: golang.Context, pod: v1.Pod, operation: str, note: Callable[[v1.Pod], None] | None = None
    ) -> Iterator[None]:
        """Contain a failure in the block, which handles one pod of an event, and have the pod synced later instead.

        That later sync gives the worker what the pod manager knows of the pod, so it makes up for the failed event.
        `note` repeats the event to the pod manager, because the block may have failed before it did so, and the source
        sends each event only once.
        """
        with contain(f"Failed to {operation} a pod", ctx, pod=klog.kobj(pod), podUID=pod.metadata.uid):
            yield
            return
        if note is not None:
            with contain(f"Failed to record an event before the later sync: {operation}", ctx, pod=klog.kobj(pod)):
                note(pod)
        uid = types.UID(self.pod_manager.translate_pod_uid(pod.metadata.uid))
        self.work_queue.enqueue(uid, FAILED_EVENT_RETRY_PERIOD)

    def _retry_pending_resizes(self, ctx: golang.Context, trigger: str) -> None:
        """Retry the pending resizes. After a failure the allocation manager's timer retries them."""
        with contain("Failed to retry the pending resizes", ctx, trigger=trigger):
            self.allocation_manager.retry_pending_resizes(trigger)

    def handle_pod_additions(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        """Admit new pods, oldest first, and start their workers; reject pods that the node cannot run."""
        start = self.clock.steady()
        pending_resizes: list[types.UID] = []
        # DIVERGES (fault of Go): the kubelet reads resize conditions from the pods' statuses before any worker starts.
        # Go: pkg/kubelet/kubelet.go, (*Kubelet).HandlePodAdditions: the Go kubelet reads them after the workers
        # started.
        # Why: a worker that is faster sends a status without the conditions, and clients see them vanish and return.
        # Test: kubelet_test.py:test_resize_conditions_are_known_before_a_worker_begins
        with contain("Failed to restore the resize conditions of pods", ctx, total=len(pods)):
            self.status_manager.backfill_pod_resize_conditions(pods)
        for added in sliceutils.pods_by_creation_time(pods):
            with self._for_one_pod(ctx, added, "add", self.pod_manager.add_pod):
                try:
                    wants_resize = self._add_pod(ctx, added, start)
                except Exception:
                    # The later sync creates a worker for this pod. The worker must not start a pod without admission.
                    if not self.pod_workers.is_pod_known(added.metadata.uid):
                        self.waiting_pods.note(added.metadata.uid, "adding the pod failed")
                    raise
                if wants_resize:
                    # The pod had an undecided resize when the kubelet last stopped.
                    pending_resizes.append(added.metadata.uid)
        # Consider these resizes only after all pods have what was allocated to them before the restart.
        for uid in pending_resizes:
            with contain("Failed to record the pending resize of a pod", ctx, podUID=uid):
                self.allocation_manager.push_pending_resize(uid)
        if pending_resizes:
            self._retry_pending_resizes(ctx, allocation.TRIGGER_REASON_PODS_ADDED)

    def _add_pod(self, ctx: golang.Context, added: v1.Pod, start: datetime.datetime) -> bool:
        """Admit one pod and start its worker, or reject it.

        A pod that is terminating or terminated skips admission: its worker only tears it down.
        Return whether the pod was admitted and waits for a resize.
        """
        with contain("Failed to restore state from a mirror pod", ctx, pod=klog.kobj(added)):
            self._take_over_mirror(added)
        # Even a rejected pod must be in the pod manager, because an unknown pod counts as deleted.
        self.pod_manager.add_pod(added)
        found = self.pod_manager.get_pod_and_mirror_pod(added)
        pod, mirror_pod = found.pod, found.mirror_pod
        if found.was_mirror:
            self._update_mirror(ctx, pod, mirror_pod, start)
            return False
        assert pod is not None
        uid = pod.metadata.uid
        self.observers.pods.seen(pod, clock.from_steady(self.clock, start))
        wants_resize = False
        if not self.pod_workers.is_pod_termination_requested(uid) and not podutil.is_pod_phase_terminal(
            pod.status.phase
        ):
            result = self._ask_for_admission(ctx, pod)
            if result.wait:
                # The pod's worker will ask again.
                self._wait_for_admission(pod, result)
            elif not self._admit_or_reject(pod, result):
                return False
            wants_resize = self.allocation_manager.update_pod_from_allocation(pod).differs
        self.pod_workers.update_pod(
            ctx,
            UpdatePodOptions(pod=pod, mirror_pod=mirror_pod, update_type=kubetypes.SYNC_POD_CREATE, start_time=start),
        )
        return wants_resize

    def _ask_for_admission(self, ctx: golang.Context, pod: v1.Pod) -> lifecycle.PodAdmitResult:
        """Decide whether the pod may run. If an error prevents a decision, the pod waits, and its worker asks again."""
        if isinstance(pod, v1.PartialPod):
            return lifecycle.PodAdmitResult(admit=False, message="parts of the pod cannot be decoded", wait=True)
        try:
            return self.allocation_manager.add_pod(self.get_active_pods(), pod)
        except Exception as err:
            # No handler has rejected the pod, so it must not fail. Its resources are not counted yet, so it must not
            # run.
            if isinstance(err, golang.ContextError) and ctx.err() is not None:
                raise
            text = "Failed to decide whether a pod can be admitted"
            klog.error_s(err, text, pod=klog.kobj(pod), podUID=pod.metadata.uid)
            return lifecycle.PodAdmitResult(admit=False, message=f"admission failed: {err}", wait=True)

    def _admit_or_reject(self, pod: v1.Pod, result: lifecycle.PodAdmitResult) -> bool:
        """Record the decision about a pod; return whether the pod was admitted."""
        if result.admit:
            self.observers.pods.admitted(pod.metadata.uid)
        else:
            self.observers.pods.refused(pod.metadata.uid, result.reason, result.message)
            self.reject_pod(pod, result.reason, result.message)
        return result.admit

    def _wait_for_admission(self, pod: v1.Pod, result: lifecycle.PodAdmitResult) -> None:
        if self.waiting_pods.note(pod.metadata.uid, result.message):
            self.observers.pods.waits_for_admission(pod.metadata.uid, result.message)
            self.recorder.event(pod, v1.EVENT_TYPE_WARNING, events.WAITING_FOR_RESOURCES, result.message)

    def _update_mirror(
        self, ctx: golang.Context, pod: v1.Pod | None, mirror_pod: v1.Pod | None, start: datetime.datetime
    ) -> None:
        """Notify the worker of the static pod that its mirror pod has changed."""
        if pod is None:
            klog.v(2).info_s("Unable to find pod for mirror pod, skipping", mirrorPod=klog.kobj(mirror_pod))
            return
        self.pod_workers.update_pod(
            ctx,
            UpdatePodOptions(pod=pod, mirror_pod=mirror_pod, update_type=kubetypes.SYNC_POD_UPDATE, start_time=start),
        )

    def _take_over_mirror(self, added: v1.Pod) -> None:
        """Restore the state of a static pod and its containers from the status of its mirror pod, once both exist.

        Call this before the pod manager knows both: from then on the static pod's status overwrites the mirror pod's.
        """
        found = self.pod_manager.get_pod_and_mirror_pod(added)
        pod, mirror_pod = found.pod, found.mirror_pod
        if pod is None or mirror_pod is None:
            return
        told = self.probe_manager.inherit(pod.metadata.uid, mirror_pod.status)
        status = self.status_manager.get_pod_status(pod.metadata.uid) or v1.PodStatus()
        for container in (*status.container_statuses, *status.init_container_statuses):
            before = told.get(container.container_id)
            if before is None or container.state.running is None:
                continue
            container_id = kubecontainer.parse_container_id(container.container_id)
            if before.started:
                self.status_manager.set_container_startup(pod.metadata.uid, container_id, True)
            if before.ready:
                self.status_manager.set_container_readiness(pod.metadata.uid, container_id, True)
        self.status_manager.inherit(pod.metadata.uid, mirror_pod.status)

    def handle_pod_updates(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        """Handle pods whose specs changed or whose deletion has begun."""
        start = self.clock.steady()
        for updated in pods:
            with self._for_one_pod(ctx, updated, "update", self.pod_manager.update_pod):
                self._update_pod(ctx, updated, start)

    def _update_pod(self, ctx: golang.Context, updated: v1.Pod, start: datetime.datetime) -> None:
        old_pod = self.pod_manager.get_pod_by_uid(updated.metadata.uid)
        self.pod_manager.update_pod(updated)
        found = self.pod_manager.get_pod_and_mirror_pod(updated)
        pod = found.pod
        if pod is not None and not found.was_mirror:
            self.observers.pods.updated(pod.metadata.uid, deleted=pod.metadata.deletion_timestamp is not None)
            # A failure of the resize must not keep a pod that is being deleted from terminating.
            with contain("Failed to process the resize of an updated pod", ctx, pod=klog.kobj(pod)):
                self._note_resize(ctx, old_pod, pod)
                self._note_missing_features(old_pod, pod)
        self._update_mirror(ctx, pod, found.mirror_pod, start)

    def _note_resize(self, ctx: golang.Context, old_pod: v1.Pod | None, pod: v1.Pod) -> None:
        """Queue a resize, and try it, if the pod's requested resources differ from its allocated ones."""
        if not record_resize_operations(old_pod, pod):
            return
        if self.allocation_manager.update_pod_from_allocation(pod).differs:
            self.allocation_manager.push_pending_resize(pod.metadata.uid)
            self._retry_pending_resizes(ctx, allocation.TRIGGER_REASON_POD_UPDATED)
        else:
            # The pod requests exactly its allocated resources, so no resize is pending.
            self.status_manager.clear_pod_resize_pending_condition(pod.metadata.uid)

    def _note_missing_features(self, old_pod: v1.Pod | None, pod: v1.Pod) -> None:
        """Record an event if the update needs features that this node lacks."""
        if old_pod is None:
            return
        missing = ", ".join(missing_for_update(old_pod, pod, self.runtime_state.runtime_features()))
        if missing:
            text = "Pod requires node features that are not available"
            klog.error_s(None, text, missingFeatures=missing)
            self.recorder.event(
                pod, v1.EVENT_TYPE_WARNING, events.FAILED_NODE_DECLARED_FEATURES_CHECK, f"{text}: {missing}"
            )

    def handle_pod_removes(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        """Terminate pods that their source no longer contains."""
        start = self.clock.steady()
        for removed in pods:
            # If this fails, housekeeping terminates the pod, because the pod manager no longer knows it.
            with self._for_one_pod(ctx, removed, "remove", self.pod_manager.remove_pod):
                self._remove_pod(ctx, removed, start)
        self._retry_pending_resizes(ctx, allocation.TRIGGER_REASON_PODS_REMOVED)

    def _remove_pod(self, ctx: golang.Context, removed: v1.Pod, start: datetime.datetime) -> None:
        self.pod_manager.remove_pod(removed)
        self.allocation_manager.remove_pod(removed.metadata.uid)
        self.waiting_pods.discard(removed.metadata.uid)
        found = self.pod_manager.get_pod_and_mirror_pod(removed)
        if found.was_mirror:
            # DIVERGES (fault of Go): when a mirror pod is deleted, the static pod's worker creates another at once.
            # Go: pkg/kubelet/kubelet.go, (*Kubelet).HandlePodRemoves: the worker receives the deleted mirror pod,
            # assumes that it exists, and creates none before its next regular sync.
            # Why: until the worker creates another one, the API server does not know the static pod.
            # Test: kubelet_test.py:test_change_of_a_mirror_pod_is_work_for_its_static_pod
            self._update_mirror(ctx, found.pod, self.pod_manager.get_mirror_pod_by_pod(removed), start)
        else:
            self.delete_pod(ctx, removed)

    def handle_pod_reconcile(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        """Repair pods whose status another client changed."""
        start = self.clock.steady()
        trigger = ""
        has_pending_resizes = self.allocation_manager.has_pending_resizes()
        for reconciled in pods:
            with self._for_one_pod(ctx, reconciled, "reconcile", self.pod_manager.update_pod):
                old_pod = self.pod_manager.get_pod_by_uid(reconciled.metadata.uid)
                pod = self._reconcile_pod(ctx, reconciled, start)
                if has_pending_resizes and not trigger and old_pod is not None and pod is not None:
                    trigger = self._gives_up_resources(old_pod, pod)
        if trigger:
            self._retry_pending_resizes(ctx, trigger)

    def _reconcile_pod(self, ctx: golang.Context, reconciled: v1.Pod, start: datetime.datetime) -> v1.Pod | None:
        """Record the pod's new version; return the pod, or None for a mirror pod without a static pod."""
        self.pod_manager.update_pod(reconciled)
        found = self.pod_manager.get_pod_and_mirror_pod(reconciled)
        pod, mirror_pod = found.pod, found.mirror_pod
        if pod is None:
            klog.v(2).info_s("Unable to find pod for mirror pod, skipping", mirrorPod=klog.kobj(mirror_pod))
            return None
        if status.need_to_reconcile_pod_readiness(pod):
            self.pod_workers.update_pod(
                ctx,
                UpdatePodOptions(pod=pod, mirror_pod=mirror_pod, update_type=kubetypes.SYNC_POD_SYNC, start_time=start),
            )
        if eviction.pod_is_evicted(pod.status) and (pod_status := self._known_pod_status(pod.metadata.uid)) is not None:
            self.container_deletor.delete_containers_in_pod("", pod_status, True)
        return pod

    def _gives_up_resources(self, old_pod: v1.Pod, pod: v1.Pod) -> str:
        """Return the reason why pending resizes may succeed now, or an empty string if there is none."""
        # Compare the allocated resources, because a requested resize frees nothing yet.
        allocated_old_pod = self.allocation_manager.update_pod_from_allocation(old_pod).pod
        allocated_pod = self.allocation_manager.update_pod_from_allocation(pod).pod
        if requests_shrank(allocated_old_pod, allocated_pod):
            return allocation.TRIGGER_REASON_POD_RESIZED
        if podutil.is_pod_terminal(pod) and not podutil.is_pod_terminal(old_pod):
            return allocation.TRIGGER_REASON_POD_TERMINATED
        return ""

    def handle_pod_syncs(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        """Have the pods' workers sync them."""
        start = self.clock.steady()
        for synced in pods:
            with self._for_one_pod(ctx, synced, "sync"):
                found = self.pod_manager.get_pod_and_mirror_pod(synced)
                if found.was_mirror or found.pod is None:
                    klog.v(3).info_s(
                        "Programmer error, HandlePodSyncs does not expect to receive mirror pods",
                        mirrorPod=klog.kobj(synced),
                    )
                    continue
                self.pod_workers.update_pod(
                    ctx,
                    UpdatePodOptions(
                        pod=found.pod,
                        mirror_pod=found.mirror_pod,
                        update_type=kubetypes.SYNC_POD_SYNC,
                        start_time=start,
                    ),
                )

    # ---- PodSyncer: the methods that a pod worker's thread calls ----

    def sync_pod(
        self,
        ctx: golang.Context,
        update_type: kubetypes.SyncPodType,
        pod: v1.Pod,
        mirror_pod: v1.Pod | None,
        pod_status: kubecontainer.PodStatus,
    ) -> SyncPodResult:
        """Move a pod that should run one step closer to its desired state.

        The method sets the pod's status first. Then it sets up, in this order: the cgroup, the mirror pod, the
        directories, the volumes, the probes and the containers. Raise an exception if a step failed, after recording it
        as an event; the worker then calls this method again, so each step must be idempotent.
        """
        klog.v(4).info_s("SyncPod enter", pod=klog.kobj(pod), podUID=pod.metadata.uid)
        attributes = {**_span_attributes(pod), "k8s.pod.update_type": str(update_type)}
        is_terminal = False
        try:
            with (
                activity.doing(ctx, Activity.SYNCS),
                self.tracer.start(ctx, "syncPod", attributes) as span,
            ):
                result = self._sync_pod(span.ctx, update_type, pod, mirror_pod, pod_status)
                is_terminal = result.is_terminal
                return result
        finally:
            klog.v(4).info_s("SyncPod exit", pod=klog.kobj(pod), podUID=pod.metadata.uid, isTerminal=is_terminal)

    def _sync_pod(
        self,
        ctx: golang.Context,
        update_type: kubetypes.SyncPodType,
        pod: v1.Pod,
        mirror_pod: v1.Pod | None,
        pod_status: kubecontainer.PodStatus,
    ) -> SyncPodResult:
        if isinstance(pod, v1.PartialPod):
            # The containers keep running and the status stays as it is until the source delivers the complete pod.
            return SyncPodResult()
        first_seen = _first_seen(pod)
        if update_type is kubetypes.SYNC_POD_CREATE and first_seen is not None:
            # time of day: the pod carries this time as an annotation.
            metrics.POD_WORKER_START_DURATION.observe(self.clock.since(first_seen))
        self._note_resize_progress(pod, pod_status)
        api_status = self.generate_api_pod_status(ctx, pod, pod_status, False)
        # A pod on the host's network gets its addresses only here.
        pod_status.ips = [entry.ip for entry in api_status.pod_ips]
        existing = self.status_manager.get_pod_status(pod.metadata.uid)
        self.status_manager.set_pod_status(pod, api_status)
        self.probe_manager.probe_unready(pod, api_status)
        if podutil.is_pod_phase_terminal(api_status.phase):
            return SyncPodResult(is_terminal=True)
        was_pending = existing is not None and existing.phase == v1.POD_PENDING
        started = was_pending and api_status.phase == v1.POD_RUNNING
        if first_seen is not None and (existing is None or started):
            # time of day: the pod carries this time as an annotation.
            metrics.POD_START_DURATION.observe(self.clock.since(first_seen))
        if pod.metadata.uid in self.waiting_pods and not self._admit_after_waiting(pod):
            return SyncPodResult(is_terminal=True)
        self._require_network(pod)
        if not self.pod_workers.is_pod_termination_requested(pod.metadata.uid):
            self._register_references(pod)
            with activity.doing(ctx, Activity.MAKES_CGROUP):
                self._ensure_pod_cgroup(ctx, pod, pod_status, api_status)
        with activity.doing(ctx, Activity.RECONCILES_MIRROR_POD):
            self.try_reconcile_mirror_pods(ctx, pod, mirror_pod)
        with activity.doing(ctx, Activity.MAKES_DIRECTORIES):
            self._prepare_pod_data_dirs(ctx, pod)
        if not self._wait_for_volumes(ctx, pod):
            return SyncPodResult(is_terminal=True)
        with activity.doing(ctx, Activity.READS_PULL_SECRETS):
            pull_secrets = self.get_pull_secrets_for_pod(pod)
        self.probe_manager.add_pod(ctx, pod)
        # Cancellation does not interrupt calls to the runtime, because a half-finished start would need a clean-up.
        restarting = _restarts_all_containers(api_status)
        result = self.container_runtime.sync_pod(
            lifecycle.without_cancel_but_for_hooks(ctx),
            pod,
            pod_status,
            pull_secrets,
            self.crash_loop_back_off,
            restarting,
        )
        self.reason_cache.update(pod.metadata.uid, result)
        self._note_resize_errors(pod, result)
        result.raise_if_failed()
        if restarting and any(done.action is kubecontainer.REMOVE_CONTAINER for done in result.sync_results):
            # The restart removed all containers, so start them now. The next sync removes none, so this happens once.
            again = UpdatePodOptions(pod=pod, mirror_pod=mirror_pod, update_type=kubetypes.SYNC_POD_UPDATE)
            self.pod_workers.update_pod(ctx, again)
        if not result.sync_results:
            return SyncPodResult()
        # The sync changed something: request a relist now instead of waiting for the next one to see the outcome.
        return SyncPodResult(post_sync=lambda: self.request_pod_relist(pod.metadata.uid))

    def _admit_after_waiting(self, pod: v1.Pod) -> bool:
        """Report whether a waiting pod is admitted; False means that it is rejected. Raise an error if it must wait."""
        result = self._admit_waiting_pod(pod, ())
        preempted: list[v1.Pod] = []
        while result.make_room is not None:
            # Do not hold the lock here: the pods that are being preempted may need it for their own admission.
            preempted += result.make_room()
            result = self._admit_waiting_pod(pod, preempted)
        if result.wait:
            self._wait_for_admission(pod, result)
            raise PodNotAdmittedError(f"pod is not admitted yet: {result.message}")
        return self._admit_or_reject(pod, result)

    def _counts(self, uid: types.UID, gone: Collection[types.UID]) -> bool:
        """Report whether an active pod holds resources that other pods cannot get.

        A waiting pod holds none, unless an earlier kubelet admitted it: then its containers may be running.
        """
        return uid not in gone and (uid not in self.waiting_pods or self.allocation_manager.is_allocated(uid))

    def _admit_waiting_pod(self, pod: v1.Pod, preempted: Sequence[v1.Pod]) -> lifecycle.PodAdmitResult:
        """Ask once more whether the pod may run, without counting the pods that were preempted for it."""
        gone = {victim.metadata.uid for victim in preempted}
        with self.waiting_pods.admission_lock:
            others = [one for one in self.get_active_pods() if self._counts(one.metadata.uid, gone)]
            result = self.allocation_manager.add_pod(others, pod)
            if not result.wait:
                self.waiting_pods.discard(pod.metadata.uid)
        return result

    def _register_references(self, pod: v1.Pod) -> None:
        """Make the secrets and config maps available that the pod refers to."""
        if self.secret_manager is not None:
            self.secret_manager.register_pod(pod)
        if self.config_map_manager is not None:
            self.config_map_manager.register_pod(pod)

    def _unregister_references(self, pod: v1.Pod) -> None:
        if self.secret_manager is not None:
            self.secret_manager.unregister_pod(pod)
        if self.config_map_manager is not None:
            self.config_map_manager.unregister_pod(pod)

    def _note_resize_progress(self, pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> None:
        """Set or clear the pod's condition that a resize is in progress."""
        uid = pod.metadata.uid
        if self.container_runtime.is_pod_resize_in_progress(pod, pod_status):
            self.status_manager.set_pod_resize_in_progress_condition(uid, "", "", pod.metadata.generation)
            return
        # DIVERGES (fault of Go): a resize that was allocated after this sync began does not count as completed.
        # Go: pkg/kubelet/kubelet.go, (*Kubelet).SyncPod: the Go kubelet clears the condition of any generation.
        # Why: the condition would vanish, and an event would report the end, before the containers are resized.
        # Test: kubelet_test.py:test_sync_shows_how_far_a_resize_is
        generation = self.status_manager.clear_pod_resize_in_progress_condition(uid, pod.metadata.generation)
        if generation is not None:
            message = events.pod_resize_completed_msg(pod, generation)
            self.recorder.event(pod, v1.EVENT_TYPE_NORMAL, events.RESIZE_COMPLETED, message)

    def _note_resize_errors(self, pod: v1.Pod, result: kubecontainer.PodSyncResult) -> None:
        """Show the errors of a resize that the runtime could not apply."""
        for done in result.sync_results:
            if done.action is not kubecontainer.RESIZE_POD_IN_PLACE or done.error is None:
                continue
            generation = self.status_manager.set_pod_resize_in_progress_condition(
                pod.metadata.uid, v1.POD_REASON_ERROR, done.message, pod.metadata.generation
            )
            if generation is not None:
                message = events.pod_resize_error_msg(pod, generation, done.message)
                self.recorder.event(pod, v1.EVENT_TYPE_WARNING, events.RESIZE_ERROR, message)

    def _require_network(self, pod: v1.Pod) -> None:
        err = self.runtime_state.network_errors()
        if err is None or kubecontainer.is_host_network_pod(pod):
            return
        self.recorder.event(pod, v1.EVENT_TYPE_WARNING, events.NETWORK_NOT_READY, str(NetworkNotReadyError(err)))
        raise NetworkNotReadyError(err)

    def _ensure_pod_cgroup(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        api_status: v1.PodStatus,
    ) -> None:
        """Create the pod's cgroup. Stop containers that run outside of it, so that they start again inside."""
        # DIVERGES (fault of Go): a pod waits while the kubelet removes the cgroup of an earlier pod with the same UID.
        # Go: pkg/kubelet/kubelet.go, (*Kubelet).SyncPod: the cgroup still exists, so containers start in it.
        # Why: the removal kills all processes in the cgroup, and those of the new containers are among them.
        # Test: kubelet_test.py:test_pod_is_not_started_in_a_cgroup_that_is_being_removed
        cleanup = self.cgroup_cleanups.get(pod.metadata.uid)
        if cleanup is not None and cleanup.is_alive():
            message = "the cgroup of an earlier pod with the same uid is being removed"
            self.recorder.event(pod, v1.EVENT_TYPE_WARNING, events.FAILED_TO_CREATE_POD_CONTAINER, message)
            raise PodCgroupError(message)
        pcm = self.container_manager.new_pod_container_manager()
        if pcm.exists(pod):
            return
        if any(container.state.running is not None for container in api_status.container_statuses):
            killed = self._try_to_kill(ctx, pod, pod_status)
            if killed and not _is_ever_restarted(pod.spec):
                return
        try:
            self.container_manager.update_qos_cgroups()
        except OSError as err:
            klog.v(2).info_s("Failed to update QoS cgroups while syncing pod", pod=klog.kobj(pod), err=err)
        try:
            pcm.ensure_exists(pod)
        except OSError as err:
            message = f"unable to ensure pod container exists: {err}"
            self.recorder.event(pod, v1.EVENT_TYPE_WARNING, events.FAILED_TO_CREATE_POD_CONTAINER, message)
            raise PodCgroupError(
                f"failed to ensure that the pod: {pod.metadata.uid} cgroups exist and are correctly applied: {err}"
            ) from err
        self.container_runtime.update_actuated_pod_level_resources(pod)

    def _try_to_kill(self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> bool:
        running = kubecontainer.convert_pod_status_to_running_pod(self.get_runtime().type(), pod_status)
        try:
            self.kill_pod(ctx, pod, running, None)
        except golang.Canceled:
            raise
        except Exception as err:
            # Containers outside of the pod's cgroup are better than none.
            klog.error_s(err, "KillPod failed", pod=klog.kobj(pod))
            return False
        return True

    def try_reconcile_mirror_pods(self, ctx: golang.Context, static_pod: v1.Pod, mirror_pod: v1.Pod | None) -> None:
        """Ensure that the API server has a mirror pod for the static pod, and that the mirror pod matches it."""
        if self.kube_client is None or not kubetypes.is_static_pod(static_pod):
            return
        if mirror_pod is not None:
            if mirror_pod.metadata.deletion_timestamp is None and kubepod.is_mirror_pod_of(mirror_pod, static_pod):
                return
            ref = klog.kobj(mirror_pod)
            klog.info_s("Trying to delete pod", pod=ref, podUID=mirror_pod.metadata.uid)
            full_name = kubecontainer.get_pod_full_name(static_pod)
            if not self.mirror_pod_client.delete_mirror_pod(ctx, full_name, mirror_pod.metadata.uid):
                return
            klog.info_s("Deleted mirror pod as it didn't match the static Pod", pod=ref)
        self._create_mirror_pod(ctx, static_pod)

    def _create_mirror_pod(self, ctx: golang.Context, static_pod: v1.Pod) -> None:
        node_ref = klog.kref("", self.node_name)
        try:
            node = self.get_node(ctx)
        except Exception as err:
            # The static pod runs without a mirror pod; the next sync tries again.
            message = "No need to create a mirror pod, since failed to get node info from the cluster"
            klog.error_s(err, message, node=node_ref)
            return
        if node.metadata.deletion_timestamp is not None:
            message = "No need to create a mirror pod, since node has been removed from the cluster"
            klog.info_s(message, node=node_ref)
            return
        klog.info_s("Creating a mirror pod for static pod", pod=klog.kobj(static_pod))
        try:
            self.mirror_pod_client.create_mirror_pod(ctx, static_pod)
        except Exception as err:
            # A static pod must not wait for the API server; the next sync tries again.
            klog.error_s(err, "Failed creating a mirror pod", pod=klog.kobj(static_pod))

    def _prepare_pod_data_dirs(self, ctx: golang.Context, pod: v1.Pod) -> None:
        try:
            self.orphan_removal.wait(ctx, pod.metadata.uid)
            self.make_pod_data_dirs(pod)
        except golang.ContextError:
            raise
        except OSError as err:
            message = f"error making pod data directories: {err}"
            self.recorder.event(pod, v1.EVENT_TYPE_WARNING, events.FAILED_TO_MAKE_POD_DATA_DIRECTORIES, message)
            raise

    def _wait_for_volumes(self, ctx: golang.Context, pod: v1.Pod) -> bool:
        """Wait for the pod's volumes. Return False if the node cannot attach more volumes; the pod is then rejected."""
        try:
            with (
                activity.doing(ctx, Activity.WAITS_FOR_VOLUMES),
                self.observers.pods.waits_for_volumes(pod.metadata.uid),
            ):
                self.volume_manager.wait_for_attach_and_mount(ctx, pod)
            return True
        except golang.Canceled:
            raise
        except volumemanager.VolumeAttachLimitExceededError as err:
            self.reject_pod(pod, volumemanager.VOLUME_ATTACHMENT_LIMIT_EXCEEDED_REASON, str(err))
            return False
        except Exception as err:
            # DIVERGES (fault of Go): if the wait for volumes times out, the kubelet records an event of the pod.
            # Go: pkg/kubelet/kubelet.go, (*Kubelet).SyncPod: wait.Interrupted excludes timeouts, not only cancelled
            # syncs.
            # Why: the pod's user would not learn that nothing attaches the volumes.
            # Test: kubelet_test.py:test_mount_that_takes_too_long_is_an_event
            text = "Unable to attach or mount volumes: %s"
            self.recorder.eventf(pod, v1.EVENT_TYPE_WARNING, events.FAILED_MOUNT_VOLUME, text, err)
            klog.error_s(err, "Unable to attach or mount volumes for pod; skipping pod", pod=klog.kobj(pod))
            raise

    def sync_terminating_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        grace_period: int | None,
        pod_status_fn: PodStatusFunc | None,
    ) -> None:
        """Stop the pod's containers within the grace period, and record their exit codes in the pod's status.

        `grace_period` is in seconds; None means the pod's own grace period. Return only when no container of the pod
        runs; otherwise raise an exception, and the worker calls this method again.
        """
        with (
            _logged("SyncTerminatingPod", pod),
            activity.doing(ctx, Activity.TERMINATES),
            self.tracer.start(ctx, "syncTerminatingPod", _span_attributes(pod)) as span,
        ):
            self._sync_terminating_pod(span.ctx, pod, pod_status, grace_period, pod_status_fn)

    def _sync_terminating_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        grace_period: int | None,
        pod_status_fn: PodStatusFunc | None,
    ) -> None:
        ref, uid = klog.kobj(pod), pod.metadata.uid
        api_status = self.generate_api_pod_status(ctx, pod, pod_status, False)
        if pod_status_fn is not None:
            pod_status_fn(api_status)
        self.status_manager.set_pod_status(pod, api_status)
        self.probe_manager.probe_unready(pod, api_status)
        klog.v(4).info_s("Pod terminating with grace period", pod=ref, podUID=uid, gracePeriod=grace_period)
        self.probe_manager.stop_liveness_and_startup(pod)

        running = kubecontainer.convert_pod_status_to_running_pod(self.get_runtime().type(), pod_status)
        self._kill_pod_or_tell(ctx, pod, running, grace_period)
        self.probe_manager.remove_pod(pod)

        # Ask the runtime again instead of relying on kill_pod: the runtime may break the CRI's rules, and a caller may
        # have recorded the pod's status out of order. The call is rare, so it costs little.
        stopped = self._fresh_pod_status(ctx, pod)
        # The runtime no longer knows the addresses of a stopped pod, but the status must still show them.
        stopped.ips = pod_status.ips
        if klog.v(4).enabled:
            klog.v(4).info_s("Post-termination container state", pod=ref, podUID=uid, containers=_ends(stopped))
        still_running = [
            str(container.id)
            for container in stopped.container_statuses
            if container.state is kubecontainer.CONTAINER_STATE_RUNNING
        ]
        if still_running:
            raise StillRunningError(
                f"detected running containers after a successful KillPod, CRI violation: {still_running}"
            )
        # Release the claims after the containers, which use them, have stopped, and before the status says so, because
        # the cluster then gives the claims to other pods.
        self.unprepare_dynamic_resources(ctx, pod)
        # The status must have the exit codes before sync_terminated_pod, because the containers may be removed by then.
        self.status_manager.set_pod_status(pod, self.generate_api_pod_status(ctx, pod, stopped, True))
        klog.v(4).info_s("Pod termination stopped all running containers", pod=ref, podUID=uid)

    def _fresh_pod_status(self, ctx: golang.Context, pod: v1.Pod) -> kubecontainer.PodStatus:
        """Return the pod's status directly from the runtime; an empty one if the runtime no longer knows the pod."""
        meta = pod.metadata
        try:
            runtime_pod = self.container_runtime.get_pod(ctx, meta.uid)
        except kubecontainer.ErrPodNotFound:
            runtime_pod = kubecontainer.Pod(
                id=meta.uid, name=meta.name, namespace=meta.namespace, timestamp=self.clock.steady()
            )
        return self.container_runtime.get_pod_status(ctx, runtime_pod)

    def _kill_pod_or_tell(
        self, ctx: golang.Context, pod: v1.Pod, running: kubecontainer.Pod, grace_period: int | None
    ) -> None:
        # DIVERGES (fault of Go): a shortened grace period interrupts the call that stops the containers, and the next
        # call has the shorter period.
        # Go: pkg/kubelet/kubelet.go, (*Kubelet).SyncTerminatingPod: the call's context is never cancelled.
        # Why: the shorter period would take effect only after the longer one has passed.
        # Test: kubelet_test.py:test_kill_ends_with_the_context_of_its_sync
        try:
            self.kill_pod(ctx, pod, running, grace_period)
        except Exception as err:
            if isinstance(cancelled := ctx.err(), golang.Canceled):
                raise cancelled from err
            message = f"error killing pod: {err}"
            self.recorder.event(pod, v1.EVENT_TYPE_WARNING, events.FAILED_TO_KILL_POD, message)
            raise

    def sync_terminating_runtime_pod(self, ctx: golang.Context, running_pod: kubecontainer.Pod) -> None:
        """Stop a pod that only the runtime knows, within a second. Without a spec it has no status to set."""
        pod = running_pod.to_api_pod()
        ref, uid = klog.kobj(pod), pod.metadata.uid
        with _logged("SyncTerminatingRuntimePod", pod), activity.doing(ctx, Activity.TERMINATES):
            klog.v(4).info_s("Orphaned running pod terminating without grace period", pod=ref, podUID=uid)
            self._kill_pod_or_tell(ctx, pod, running_pod, 1)
            klog.v(4).info_s("Pod termination stopped all running orphaned containers", pod=ref, podUID=uid)

    def sync_terminated_pod(self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> None:
        """Release the volumes and the cgroup of a terminated pod, and then make its status final.

        After a restart, other parts of the kubelet may do the same, so every step must accept that it is already done.
        """
        with (
            _logged("SyncTerminatedPod", pod),
            activity.doing(ctx, Activity.CLEANS_UP),
            self.tracer.start(ctx, "syncTerminatedPod", _span_attributes(pod)) as span,
        ):
            self._sync_terminated_pod(span.ctx, pod, pod_status)

    def _sync_terminated_pod(self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> None:
        ref, uid = klog.kobj(pod), pod.metadata.uid
        self.status_manager.set_pod_status(pod, self.generate_api_pod_status(ctx, pod, pod_status, True))
        with activity.doing(ctx, Activity.WAITS_FOR_UNMOUNT):
            self.volume_manager.wait_for_unmount(ctx, pod)
        klog.v(4).info_s("Pod termination unmounted volumes", pod=ref, podUID=uid)
        if not self.keep_terminated_pod_volumes:
            with activity.doing(ctx, Activity.WAITS_FOR_VOLUME_PATHS):
                mount_utils.wait_until(ctx, lambda: not self._volumes_are_left(pod))
            klog.v(3).info_s("Pod termination cleaned up volume paths", pod=ref, podUID=uid)
        self._unregister_references(pod)
        if self.cgroups_per_qos:
            pcm = self.container_manager.new_pod_container_manager()
            name, _ = pcm.get_pod_container_name(pod)
            pcm.destroy(name)
            klog.v(4).info_s("Pod termination removed cgroups", pod=ref, podUID=uid)
        self.userns_manager.release(uid)
        self.status_manager.terminate_pod(pod)
        klog.v(4).info_s("Pod is terminated and will need no more status updates", pod=ref, podUID=uid)

    def _volumes_are_left(self, pod: v1.Pod) -> bool:
        ref, uid = klog.kobj(pod), pod.metadata.uid
        left = self.pod_volumes_exist(uid)
        if left:
            klog.v(3).info_s("Pod is terminated, but some volumes have not been cleaned up", pod=ref, podUID=uid)
        return left

    # ---- Decisions ----

    def get_pods_to_sync(self) -> list[v1.Pod]:
        """Return the pods whose retry or resync is due, and those for which a sync loop handler requests a sync."""
        due = set(self.work_queue.get_work())
        return [pod for pod in self.pod_manager.get_pods() if pod.metadata.uid in due or self._is_sync_asked_for(pod)]

    def _is_sync_asked_for(self, pod: v1.Pod) -> bool:
        """Report whether a sync loop handler requests a sync of the pod. A handler that fails requests none."""
        with contain("Failed to decide whether a pod needs a sync", pod=klog.kobj(pod)):
            return any(handler.should_sync(pod) for handler in self.pod_sync_loop_handlers)
        return False

    def delete_pod(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Have the pod's worker terminate the pod. Housekeeping removes its volumes and directories.

        DIVERGES (safer): a static pod without a manifest terminates even before the API server has reported its pods.
        Go: pkg/kubelet/kubelet.go, (*Kubelet).deletePod: no pod terminates before all sources have reported.
        Why: no other source can contain a static pod, which would run for as long as the API server is unavailable.
        Test: kubelet_test.py:test_removed_static_pod_is_ended_before_the_api_server_has_spoken
        """
        if not (kubetypes.is_static_pod(pod) or self.sources_ready.all_ready()):
            # A source that has not reported yet may still contain this pod; housekeeping decides later.
            klog.v(2).info_s(
                "Failed to delete pod", pod=klog.kobj(pod), err="skipping delete because sources aren't ready yet"
            )
            return
        klog.v(3).info_s("Pod has been deleted and must be killed", pod=klog.kobj(pod), podUID=pod.metadata.uid)
        self.observers.pods.removed(pod.metadata.uid)
        self.pod_workers.update_pod(ctx, UpdatePodOptions(pod=pod, update_type=kubetypes.SYNC_POD_KILL))

    def reject_pod(self, pod: v1.Pod, reason: str, message: str) -> None:
        """Reject a pod: it fails permanently without ever having run."""
        self.recorder.event(pod, v1.EVENT_TYPE_WARNING, reason, message)
        metrics.ADMISSION_REJECTIONS_TOTAL.labels(_rejection_label(reason)).inc()
        refused = v1.PodStatus(
            qos_class=v1qos.get_pod_qos(pod),
            phase=v1.POD_FAILED,
            reason=reason,
            message=kubetypes.REJECTED_POD_MESSAGE + message,
        )
        self.status_manager.set_pod_status(pod, refused)

    def clean_up_containers_in_pod(self, pod_uid: types.UID, exited_container_id: str) -> None:
        """Remove the pod's surplus dead containers; remove all of them once the pod's content is no longer needed."""
        pod_status = self._known_pod_status(pod_uid)
        if pod_status is not None:
            remove_all = self.pod_workers.should_pod_content_be_removed(pod_uid)
            self.container_deletor.delete_containers_in_pod(exited_container_id, pod_status, remove_all)

    def _known_pod_status(self, pod_uid: types.UID) -> kubecontainer.PodStatus | None:
        """Return the PLEG's last status of the pod, or None if the PLEG's last inspection of the pod failed.

        The next exit of a container, or garbage collection, removes dead containers that are missed because of this.
        """
        try:
            return self.pod_cache.get(pod_uid)
        except Exception as err:  # The PLEG stores any error of the runtime.
            klog.v(4).info_s("Failed to read the status of a pod from the cache", podUID=pod_uid, err=err)
            return None

    def sync_pod_now(self, pod: v1.Pod) -> None:
        """Have the pod synced, and have the PLEG inspect the outcome. Any thread may call this method.

        DIVERGES (fault of Go): the kubelet ignores a pod without a worker, because the pod is not admitted yet.
        Go: pkg/kubelet/kubelet.go, (*Kubelet).syncPodNow: the Go kubelet creates a worker for the pod.
        Why: the worker could start a pod that admission would reject.
        Test: kubelet_test.py:test_pod_is_synced_out_of_turn_only_once_the_sync_loop_has_admitted_it
        """
        if not self.pod_workers.has_worker(pod.metadata.uid):
            return
        self.handle_pod_syncs(golang.background(), [pod])
        self.request_pod_relist(pod.metadata.uid)

    def retry_pod_now(self, pod: v1.Pod) -> None:
        """Have the pod synced now, without backoff, because an object that it refers to was created or changed."""
        self.volume_manager.forget_failures(pod.metadata.uid)
        self.sync_pod_now(pod)

    def request_pod_relist(self, pod_uid: types.UID) -> None:
        """Have the PLEG inspect one pod now."""
        self.pleg.request_relist(pod_uid)

    def request_pod_reinspect(self, pod_uid: types.UID) -> None:
        """Have the PLEG inspect one pod at its next relist, even if the pod did not change."""
        self.pleg.request_reinspect(pod_uid)

    def prepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Prepare the pod's resource claims. Raise the error that prevents it."""
        self.container_manager.prepare_dynamic_resources(ctx, pod)

    def unprepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        self.container_manager.unprepare_dynamic_resources(ctx, pod)

    def on_pod_sandbox_ready(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Set the condition that the pod has its sandbox, network and volumes, without waiting for image pulls."""
        known = self.status_manager.get_pod_status(pod.metadata.uid)
        new = v1.deepcopy(pod.status if known is None else known)
        generation = podutil.calculate_pod_condition_observed_generation(
            new, pod.metadata.generation, v1.POD_READY_TO_START_CONTAINERS
        )
        condition = v1.PodCondition(
            type=v1.POD_READY_TO_START_CONTAINERS, status=v1.CONDITION_TRUE, observed_generation=generation
        )
        new.conditions = utilpod.replace_or_append_pod_condition(new.conditions, condition)
        self.status_manager.set_pod_status(pod, new)

    # ---- The runtime's health ----

    def update_runtime_up(self, ctx: golang.Context) -> None:
        """Query the runtime's status and record it; start the modules that need the runtime once it is ready."""
        with self.update_runtime_mux:
            try:
                runtime_status = self.container_runtime.status(ctx)
            except Exception as err:
                # One failed call does not make the node NotReady; only a long time without a successful call does.
                klog.error_s(err, "Container runtime sanity check failed")
                return
            klog.v(4).info_s("Container runtime status", status=runtime_status)
            # While the node is starting, the runtime need not be ready yet, so log this only at a high verbosity.
            level = 0 if self.container_runtime_ready_expected or self.kube_client is None else 4
            network_ready = runtime_status.get_runtime_condition(kubecontainer.NETWORK_READY)
            network_error = _condition_error("container runtime network not ready", network_ready)
            if network_error is not None:
                klog.v(level).info_s("Container runtime network not ready", networkReady=network_ready)
            self.runtime_state.set_network_state(network_error)
            runtime_ready = runtime_status.get_runtime_condition(kubecontainer.RUNTIME_READY)
            runtime_error = _condition_error("container runtime not ready", runtime_ready)
            self.runtime_state.set_runtime_state(runtime_error)
            if runtime_error is not None:
                klog.v(level).info_s("Container runtime not ready", runtimeReady=runtime_ready)
                return
            self.runtime_state.set_runtime_handlers(runtime_status.handlers)
            self.runtime_state.set_runtime_features(runtime_status.features)
            if not self.runtime_modules_started:
                # The context ends what a failed attempt has started, because the next attempt starts all of it again.
                attempt, cancel = golang.with_cancel(ctx)
                try:
                    self.initialize_runtime_dependent_modules(attempt)
                except (golang.ThreadError, MemoryError) as err:
                    # The next check tries again: a new process would not help a node that lacks threads or memory.
                    cancel()
                    klog.error_s(err, "Failed to start ContainerManager")
                    return
                except Exception as err:  # Any other failure ends the process, so that the service manager sees it.
                    klog.error_s(err, "Failed to start ContainerManager")
                    self.failed.try_send(err)
                    return
                self.runtime_modules_started = True
            self.runtime_state.set_runtime_sync(self.clock.monotonic())

    def listen_and_serve(
        self,
        ctx: golang.Context,
        kube_cfg: kubeletconfig.KubeletConfiguration,
        tls_config: server.TLSConfig | None,
        auth: serverauth.KubeletAuth | None,
        flagz: flagzlib.Reader | None,
        tracer_provider: tracing.TracerProvider,
        debug_pages: Sequence[server.InstallPages],
    ) -> None:
        """Bind the server's port, and serve in a separate thread until ctx ends.

        Raise OSError if the port cannot be bound, which ends the start. In Go the goroutine ends the process itself.
        """
        checkers = self.container_manager.get_health_checkers()
        handler = server.Server(self, self.resource_analyzer, checkers, flagz, auth, kube_cfg, debug_pages)
        self._trace_requests(handler, tracer_provider, public_endpoint=False)
        bound = server.listen_kubelet_server(handler, kube_cfg, tls_config, authenticates=auth is not None)
        golang.go(bound.serve, ctx, name="kubelet-server")

    def listen_and_serve_read_only(
        self, ctx: golang.Context, address: str, port: int, tracer_provider: tracing.TracerProvider
    ) -> None:
        """Bind the read-only port, and serve in a separate thread until ctx ends. Raise OSError on failure."""
        handler = server.Server(self, self.resource_analyzer, self.container_manager.get_health_checkers())
        self._trace_requests(handler, tracer_provider, public_endpoint=True)
        bound = server.listen_kubelet_read_only_server(handler, address, port)
        golang.go(bound.serve, ctx, name="read-only-server")

    def listen_and_serve_debug(self, ctx: golang.Context, debug_pages: Sequence[server.InstallPages]) -> None:
        """Serve debug pages on a socket that only root may use, for `kubelet explain`. Go has no counterpart."""
        path = self.get_debug_socket()
        try:
            bound = server.listen_debug_server(debug_pages, path)
        except OSError as err:
            # The path may be too long for a socket. Only `kubelet explain` needs the socket.
            klog.error_s(err, "Failed to listen on the debug socket", path=path)
            return
        golang.go(bound.serve, ctx, name="debug-server")

    def _trace_requests(
        self, handler: server.Server, tracer_provider: tracing.TracerProvider, *, public_endpoint: bool
    ) -> None:
        if tracer_provider.enabled:
            handler.install_filter(tracing.with_tracing(tracer_provider, "kubelet", public_endpoint=public_endpoint))

    def list_metric_descriptors(self, ctx: golang.Context) -> Sequence[runtimeapi.MetricDescriptor]:
        """List the metrics that the runtime provides. Raise the runtime's error."""
        return self.runtime_service.list_metric_descriptors(ctx)

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> Sequence[runtimeapi.PodSandboxMetrics]:
        """List the runtime's metrics of each sandbox. Raise the runtime's error."""
        return self.runtime_service.list_pod_sandbox_metrics(ctx)

    def checkpoint_container(
        self,
        ctx: golang.Context,
        pod_uid: types.UID,
        pod_full_name: str,
        container_name: str,
        options: runtimeapi.CheckpointContainerRequest,
    ) -> None:
        """Have the runtime write a checkpoint of the running container into an archive.

        Write the archive's name into `options`. Raise LookupError without the container, or the runtime's error.
        """
        container = self.find_container(ctx, pod_full_name, pod_uid, container_name)
        if container is None:
            raise LookupError(f"container {container_name} not found")
        # The time has the format of Go's time.RFC3339, in the node's time zone.
        now = self.clock.now().astimezone().isoformat(timespec="seconds").replace("+00:00", "Z")
        archive = f"checkpoint-{pod_full_name}-{container_name}-{now}.tar"
        options.location = os.path.join(self.get_checkpoints_dir(), archive)
        options.container_id = container.id.id
        self.container_runtime.checkpoint_container(ctx, options)

    def latest_loop_entry_time(self) -> datetime.datetime | None:
        """Return the time at which an iteration of the sync loop last began or ended; None before the first."""
        return self.sync_loop_monitor


def is_sync_pod_worthy(event: kubepleg.PodLifecycleEvent) -> bool:
    """Report whether the event requires a sync of the pod; the removal of a dead container does not."""
    return event.type is not kubepleg.CONTAINER_REMOVED


def _rejection_label(reason: str) -> str:
    """Return the metric's label for a reason. Unknown reasons share a label, because their number is unlimited."""
    if reason in _REJECTION_REASONS:
        return reason
    return "OutOfExtendedResources" if reason.startswith(lifecycle.INSUFFICIENT_RESOURCE_PREFIX) else "Other"


def _is_ever_restarted(spec: v1.PodSpec) -> bool:
    """Report whether the kubelet would restart any container of the pod after it has been stopped."""
    if spec.restart_policy != v1.RESTART_POLICY_NEVER:
        return True
    return any(podutil.is_container_restartable(spec, container) for container in spec.containers)


def _restarts_all_containers(api_status: v1.PodStatus) -> bool:
    """Report whether all containers of the pod are being restarted in place."""
    return any(
        condition.type == v1.ALL_CONTAINERS_RESTARTING and condition.status == v1.CONDITION_TRUE
        for condition in api_status.conditions
    )


def _condition_error(message: str, condition: kubecontainer.RuntimeCondition | None) -> Exception | None:
    if condition is not None and condition.status:
        return None
    return NotReadyError(f"{message}: {condition}")


@contextmanager
def _logged(sync: str, pod: v1.Pod) -> Iterator[None]:
    """Log the beginning and the end of a pod's sync. `sync` is the name of its method in Go."""
    klog.v(4).info_s(f"{sync} enter", pod=klog.kobj(pod), podUID=pod.metadata.uid)
    try:
        yield
    finally:
        klog.v(4).info_s(f"{sync} exit", pod=klog.kobj(pod), podUID=pod.metadata.uid)


def _ends(status: kubecontainer.PodStatus) -> list[dict[str, object]]:
    """Return the final states of the containers, sorted by name, for the log."""
    return [
        {
            "Name": container.name,
            "State": str(container.state),
            "ExitCode": container.exit_code,
            "FinishedAt": "" if container.finished_at is None else container.finished_at.isoformat(),
        }
        for container in sorted(status.container_statuses, key=lambda each: each.name)
    ]


def _span_attributes(pod: v1.Pod) -> dict[str, str]:
    return {
        "k8s.pod.uid": pod.metadata.uid,
        "k8s.pod": klog.kobj(pod),
        "k8s.pod.name": pod.metadata.name,
        "k8s.namespace.name": pod.metadata.namespace,
    }


def _first_seen(pod: v1.Pod) -> datetime.datetime | None:
    """Return the time at which the kubelet first saw the pod, or None if the pod has no such annotation."""
    text = pod.metadata.annotations.get(kubetypes.CONFIG_FIRST_SEEN_ANNOTATION_KEY)
    return kubetypes.convert_to_timestamp(text).get() if text else None
