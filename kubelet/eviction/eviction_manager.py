"""Check every ten seconds whether the node runs short of a resource, and evict pods if nothing else helps.

Go: pkg/kubelet/eviction/eviction_manager.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kubelet import lifecycle, metrics
from kubelet import types as kubetypes
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.eviction import api as evictionapi
from kubelet.eviction import helpers
from kubelet.eviction.preview import BrokenLimit, Preview, SignalPreview, ThresholdState
from kubelet.eviction.types import (
    ActivePodsFunc,
    Config,
    ContainerGC,
    DiskInfoProvider,
    ImageGC,
    KillPodFunc,
    Manager,
    NodeConditionsObservedAt,
    NodeReclaimFunc,
    PodCleanedUpFunc,
    RankFunc,
    SignalObservation,
    SignalObservations,
    StatsFunc,
    SummaryProvider,
    ThresholdNotifier,
    ThresholdsObservedAt,
)
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.apis.core.v1.helper import qos as v1qos
from pkg.client_go.tools import record
from pkg.component_helpers import resource as resourcehelper
from pkg.component_helpers.scheduling import corev1 as corev1helpers

# The times are in seconds.
POD_CLEANUP_TIMEOUT = 30.0
POD_CLEANUP_POLL_FREQ = 1.0
# The manager waits this long for a pod that terminates with its own grace period, see _grace_period. After this time
# the pod continues to terminate, and the manager checks the node again.
LONGEST_WAIT_FOR_POD = 60.0
NOTIFIER_REFRESH_INTERVAL = 10.0
# This is the minimum time between two checks.
# DIVERGES (safer): the manager checks the node at most once a second, however often usage crosses a memory threshold.
# Go: pkg/kubelet/eviction/eviction_manager.go, (*managerImpl).Start: the Go kubelet has no limit.
# Why: when usage oscillates around the threshold, the kubelet would do nothing but measure the node.
# Test: eviction_manager_test.py:test_crossed_threshold_has_the_loop_look_and_not_too_often
MIN_INTERVAL = 1.0
# This is the grace period of pods that are evicted immediately.
IMMEDIATE_EVICTION_GRACE_PERIOD_SECONDS = 1

# The eviction metric uses these names for the limits that a pod has exceeded.
SIGNAL_EPHEMERAL_CONTAINER_FS_LIMIT = "ephemeralcontainerfs.limit"
SIGNAL_EPHEMERAL_POD_FS_LIMIT = "ephemeralpodfs.limit"
SIGNAL_EMPTY_DIR_FS_LIMIT = "emptydirfs.limit"


class EvictionError(Exception):
    """Signal that the manager cannot determine whether the node runs short of a resource."""


class ManagerImpl:
    """Run the eviction manager, which is also a lifecycle.PodAdmitHandler that rejects pods the node cannot sustain.

    Only the thread that `start` creates calls `synchronize`.

    DIVERGES (fault of Go): a crossed memory threshold wakes the one thread that evicts pods.
    Go: pkg/kubelet/eviction/eviction_manager.go, (*managerImpl).Start: the notifier's goroutine calls synchronize
    itself, concurrently with the loop.
    Why: concurrent calls may evict two pods where one would have been enough.
    Test: eviction_manager_test.py:test_crossed_threshold_has_the_loop_look_and_not_too_often
    """

    def __init__(
        self,
        summary_provider: SummaryProvider,
        config: Config,
        kill_pod_func: KillPodFunc,
        image_gc: ImageGC,
        container_gc: ContainerGC,
        recorder: record.EventRecorder,
        node_ref: v1.ObjectReference,
        clock: clocklib.Clock,
        local_storage_capacity_isolation: bool,
    ) -> None:
        self._summary_provider = summary_provider
        self._config = config
        self._kill_pod_func = kill_pod_func
        self._image_gc = image_gc
        self._container_gc = container_gc
        self._recorder = recorder
        self._node_ref = node_ref
        self._clock = clock
        self._local_storage_capacity_isolation = local_storage_capacity_isolation
        self._threshold_notifiers: list[ThresholdNotifier] = []
        # This is a time of the monotonic clock, or None before the first update.
        self._thresholds_last_updated: float | None = None
        # A value in this channel means that usage may have crossed a memory threshold.
        self._crossed: golang.Channel[str] = golang.Channel(1)
        # The thresholds of the containers' file system depend on the layout of the disks, so the configured ones are
        # kept.
        self._configured_thresholds = tuple(config.thresholds)
        # The first field is None until the runtime has reported the layout of the disks. The second one says whether it
        # has reported the whole layout.
        self._dedicated_image_fs: bool | None = None
        self._disks_are_known = False
        self._signal_to_rank_func: dict[evictionapi.Signal, RankFunc] = {}
        self._signal_to_node_reclaim_funcs: dict[evictionapi.Signal, list[NodeReclaimFunc]] = {}
        # `start` sets this function.
        self._pod_func: ActivePodsFunc = list
        # The lock guards the fields below. They are replaced as a whole and never modified.
        self._lock = threading.Lock()
        # These are the conditions that were observed within the transition period.
        self._node_conditions: list[str] = []
        self._node_conditions_last_observed_at: NodeConditionsObservedAt = {}
        self._thresholds_first_observed_at: ThresholdsObservedAt = {}
        # These thresholds were met for their grace period, and the minimum has not been reclaimed since.
        self._thresholds_met: list[evictionapi.Threshold] = []
        self._last_observations: SignalObservations = {}

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        """Reject best-effort pods under memory pressure, and all but critical pods under other pressure.

        Critical pods are always admitted because the system needs them (kubernetes/kubernetes issue 40573). Under
        memory pressure a best-effort pod is still admitted if it tolerates that taint.
        """
        with self._lock:
            conditions = self._node_conditions
        if not conditions or kubetypes.is_critical_pod(attrs.pod):
            return lifecycle.PodAdmitResult(admit=True)
        if conditions == [v1.NODE_MEMORY_PRESSURE]:
            if v1qos.get_pod_qos(attrs.pod) != v1.POD_QOS_BEST_EFFORT:
                return lifecycle.PodAdmitResult(admit=True)
            taint = v1.Taint(key=v1.TAINT_NODE_MEMORY_PRESSURE, effect=v1.TAINT_EFFECT_NO_SCHEDULE)
            compare = features.feature_gate.enabled(features.TAINT_TOLERATION_COMPARISON_OPERATORS)
            if corev1helpers.tolerations_tolerate_taint(attrs.pod.spec.tolerations, taint, compare):
                return lifecycle.PodAdmitResult(admit=True)
        message = f"The node had condition: [{' '.join(conditions)}]. "
        return lifecycle.PodAdmitResult(admit=False, reason=helpers.REASON, message=message)

    def start(
        self,
        ctx: golang.Context,
        disk_info_provider: DiskInfoProvider,
        pod_func: ActivePodsFunc,
        pod_cleaned_up_func: PodCleanedUpFunc,
        monitoring_interval: float,
    ) -> None:
        klog.info_s("Eviction manager: starting control loop")
        self._pod_func = pod_func
        if self._config.kernel_memcg_notification:
            self._start_notifiers(ctx)
        golang.go(
            self._run,
            ctx,
            disk_info_provider,
            pod_func,
            pod_cleaned_up_func,
            monitoring_interval,
            name="eviction-manager",
        )

    def _start_notifiers(self, ctx: golang.Context) -> None:
        # This import is late because few kubelets use a notifier.
        from kubelet.eviction import memory_threshold_notifier

        # The notifiers of an earlier start have ended with it, because another part of the kubelet failed to start.
        self._threshold_notifiers = []
        for threshold in self._config.thresholds:
            if threshold.signal not in helpers.MEMORY_SIGNALS:
                continue
            try:
                notifier = memory_threshold_notifier.LinuxMemoryThresholdNotifier(
                    threshold,
                    self._config.pod_cgroup_root,
                    memory_threshold_notifier.CgroupNotifierFactory(),
                    self._crossed.try_send,
                )
            except OSError as err:
                klog.info_s("Eviction manager: failed to create memory threshold notifier", err=err)
                continue
            golang.go(notifier.start, ctx, name="eviction-memory-threshold")
            self._threshold_notifiers.append(notifier)

    def _run(
        self,
        ctx: golang.Context,
        disk_info_provider: DiskInfoProvider,
        pod_func: ActivePodsFunc,
        pod_cleaned_up_func: PodCleanedUpFunc,
        monitoring_interval: float,
    ) -> None:
        while ctx.err() is None:
            looked = self._clock.monotonic()
            try:
                evicted = self.synchronize(ctx, disk_info_provider, pod_func)
                if evicted:
                    klog.info_s(
                        "Eviction manager: pods evicted, waiting for pod to be cleaned up", pods=klog.kobjs(evicted)
                    )
                    self._wait_for_pods_cleanup(ctx, pod_cleaned_up_func, evicted)
                    continue
            except Exception as err:
                # The manager must continue to watch the node after any error.
                if ctx.err() is not None:
                    return
                klog.error_s(err, "Eviction manager: failed to synchronize")
            timer = self._clock.new_timer(monitoring_interval)
            selected = golang.select(self._crossed, timer.channel, ctx.done())
            timer.stop()
            if crossed := selected.took(self._crossed):
                klog.info_s(crossed.value)
                wait.sleep(ctx, looked + MIN_INTERVAL - self._clock.monotonic(), self._clock)

    def is_under_memory_pressure(self) -> bool:
        return self._has_node_condition(v1.NODE_MEMORY_PRESSURE)

    def is_under_disk_pressure(self) -> bool:
        return self._has_node_condition(v1.NODE_DISK_PRESSURE)

    def is_under_pid_pressure(self) -> bool:
        return self._has_node_condition(v1.NODE_PID_PRESSURE)

    def _has_node_condition(self, condition: str) -> bool:
        with self._lock:
            return condition in self._node_conditions

    def synchronize(
        self, ctx: golang.Context, disk_info_provider: DiskInfoProvider, pod_func: ActivePodsFunc
    ) -> list[v1.Pod]:
        """Check the node once, and reclaim resources if necessary. Return the evicted pods; raise EvictionError."""
        if not self._config.thresholds and not self._local_storage_capacity_isolation:
            return []
        klog.v(3).info_s("Eviction manager: synchronize housekeeping")
        if not self._disks_are_known:
            self._detect_file_systems(ctx, disk_info_provider)
        active_pods = pod_func()
        limited = self._local_storage_capacity_isolation and any(map(helpers.has_storage_limit, active_pods))
        observed = self._observe(ctx, self._summary_provider.get_disks if limited else self._summary_provider.get_node)
        if observed is not None and self._thresholds_met_now(observed[0]):
            # Pods are measured only when a threshold is met. In Go this is not necessary, because cAdvisor measures
            # them all the time.
            observed = self._observe(ctx, self._summary_provider.get)
        if observed is None:
            return []
        observations, stats_func = observed
        thresholds = self._evaluate(observations)
        if self._local_storage_capacity_isolation:
            evicted = self._local_storage_eviction(active_pods, stats_func)
            if evicted:
                return evicted
        if not thresholds:
            klog.v(3).info_s("Eviction manager: no resources are starved")
            return []
        return self._reclaim(ctx, thresholds, active_pods, stats_func, observations)

    def _detect_file_systems(self, ctx: golang.Context, disk_info_provider: DiskInfoProvider) -> None:
        """Detect the layout of the disks. Raise EvictionError while the layout is unknown.

        DIVERGES (safer): the manager asks the runtime for the location of the containers' layers until the runtime has
        responded.
        Go: pkg/kubelet/eviction/eviction_manager.go, (*managerImpl).synchronize: the Go kubelet concludes permanently
        from an error that layers are where images are.
        Why: after one failed call, the thresholds would concern the wrong disk until the kubelet restarts.
        Test: eviction_manager_test.py:test_it_is_asked_where_layers_are_until_that_is_known
        """
        try:
            has_image_fs = disk_info_provider.has_dedicated_image_fs(ctx)
        except golang.ContextError:
            raise
        except Exception as err:
            # After any error the manager asks the runtime again in the next check.
            if self._dedicated_image_fs is not None:
                return
            raise EvictionError(f"eviction manager: failed to get HasDedicatedImageFs: {err}") from err
        try:
            split, is_known = disk_info_provider.has_dedicated_container_fs(ctx), True
        except golang.ContextError:
            raise
        except Exception as err:
            # Most runtimes keep everything on one file system and need not report it, so an error is common here.
            klog.error_s(err, "eviction manager: failed to check if we have separate container filesystem. Ignoring.")
            split = is_known = False
        if split and not features.feature_gate.enabled(features.KUBELET_SEPARATE_DISK_GC):
            raise EvictionError("KubeletSeparateDiskGC is turned off but we still have a split filesystem")
        thresholds, ignored = helpers.update_container_fs_thresholds(self._configured_thresholds, has_image_fs, split)
        for message in ignored:
            klog.error_s(ValueError(message), "eviction manager: found conflicting containerfs eviction. Ignoring.")
        self._config.thresholds = thresholds
        self._signal_to_rank_func = helpers.build_signal_to_rank_func(has_image_fs, split)
        self._signal_to_node_reclaim_funcs = helpers.build_signal_to_node_reclaim_funcs(
            self._image_gc, self._container_gc, has_image_fs, split
        )
        self._dedicated_image_fs, self._disks_are_known = has_image_fs, is_known
        klog.v(3).info_s("FileSystem detection", DedicatedImageFs=has_image_fs, SplitImageFs=split)

    def _observe(
        self, ctx: golang.Context, summarise: Callable[[golang.Context, bool], statsapi.Summary]
    ) -> tuple[SignalObservations, StatsFunc] | None:
        """Return the current observation of each signal and a function for pod statistics.

        Without statistics, log an error and return None.
        """
        summary = self._summary(ctx, summarise, "Eviction manager: failed to get summary stats")
        if summary is None:
            return None
        self._update_notifiers(ctx, summary)
        observations, stats_func = helpers.make_signal_observations(summary)
        helpers.debug_log_observations("observations", observations)
        return observations, stats_func

    def _summary(
        self, ctx: golang.Context, summarise: Callable[[golang.Context, bool], statsapi.Summary], complaint: str
    ) -> statsapi.Summary | None:
        try:
            return summarise(ctx, True)
        except golang.ContextError:
            raise
        except Exception as err:
            # The runtime may be restarting, and the manager asks again in the next check.
            klog.error_s(err, complaint)
            return None

    def _update_notifiers(self, ctx: golang.Context, summary: statsapi.Summary) -> None:
        """Tell the kernel at which memory usage to notify the kubelet, but not too often."""
        last, now = self._thresholds_last_updated, self._clock.monotonic()
        if not self._threshold_notifiers or (last is not None and now - last <= NOTIFIER_REFRESH_INTERVAL):
            return
        self._thresholds_last_updated = now
        for notifier in self._threshold_notifiers:
            try:
                notifier.update_threshold(ctx, summary)
            except Exception as err:
                # Even without a notifier the manager checks the node every ten seconds.
                klog.info_s("Eviction manager: failed to update notifier", notifier=notifier.description(), err=err)

    def _thresholds_met_now(self, observations: SignalObservations) -> list[evictionapi.Threshold]:
        """Return the thresholds that are met now, and those that were met and whose minimum is not yet reclaimed."""
        log = helpers.debug_log_thresholds_with_observation
        thresholds = helpers.thresholds_met(self._config.thresholds, observations, False)
        log("thresholds - ignoring grace period", thresholds, observations)
        if self._thresholds_met:
            not_yet_resolved = helpers.thresholds_met(self._thresholds_met, observations, True)
            thresholds = helpers.merge_thresholds(thresholds, not_yet_resolved)
        log("thresholds - reclaim not satisfied", thresholds, observations)
        return thresholds

    def _evaluate(self, observations: SignalObservations) -> list[evictionapi.Threshold]:
        """Record the observations. Return the thresholds on which the manager must act."""
        log = helpers.debug_log_thresholds_with_observation
        thresholds = self._thresholds_met_now(observations)
        now = self._clock.steady()
        first_observed_at = helpers.thresholds_first_observed_at(thresholds, self._thresholds_first_observed_at, now)
        conditions = helpers.node_conditions(thresholds)
        if conditions:
            klog.v(3).info_s("Eviction manager: node conditions - observed", nodeCondition=conditions)
        conditions_last_observed_at = helpers.node_conditions_last_observed_at(
            conditions, self._node_conditions_last_observed_at, now
        )
        conditions = helpers.node_conditions_observed_since(
            conditions_last_observed_at, self._config.pressure_transition_period, now
        )
        if conditions:
            klog.v(3).info_s("Eviction manager: node conditions - transition period not met", nodeCondition=conditions)
        thresholds = helpers.thresholds_met_grace_period(first_observed_at, now)
        log("thresholds - grace periods satisfied", thresholds, observations)
        with self._lock:
            self._node_conditions = conditions
            self._thresholds_first_observed_at = first_observed_at
            self._node_conditions_last_observed_at = conditions_last_observed_at
            self._thresholds_met = thresholds
            thresholds = helpers.thresholds_updated_stats(thresholds, observations, self._last_observations)
            self._last_observations = observations
        log("thresholds - updated stats", thresholds, observations)
        return sorted(thresholds, key=helpers.by_eviction_priority)

    def _reclaim(
        self,
        ctx: golang.Context,
        thresholds: Sequence[evictionapi.Threshold],
        active_pods: Sequence[v1.Pod],
        stats_func: StatsFunc,
        observations: SignalObservations,
    ) -> list[v1.Pod]:
        """Reclaim the resource of the first threshold: remove garbage, or else evict a pod and return it."""
        threshold = thresholds[0]
        name = helpers.SIGNAL_TO_RESOURCE[threshold.signal]
        klog.info_s("Eviction manager: attempting to reclaim", resourceName=name)
        self._recorder.eventf(
            self._node_ref, v1.EVENT_TYPE_WARNING, "EvictionThresholdMet", "Attempting to reclaim %s", name
        )
        if self._reclaim_node_level_resources(ctx, threshold.signal, name):
            klog.info_s("Eviction manager: able to reduce resource pressure without evicting pods.", resourceName=name)
            return []
        klog.info_s("Eviction manager: must evict pod(s) to reclaim", resourceName=name)
        if not active_pods:
            klog.error_s(None, "Eviction manager: eviction thresholds have been met, but no pods are active to evict")
            return []
        ranking = self._signal_to_rank_func[threshold.signal](active_pods, stats_func)
        klog.info_s("Eviction manager: pods ranked for eviction", pods=klog.kobjs(ranked.pod for ranked in ranking))
        self._observe_stats_age(thresholds, observations)
        for index, ranked in enumerate(ranking):
            pod = ranked.pod
            # If this pod cannot be evicted, the manager tries the next one.
            with contain("Eviction manager: failed to evict a pod", pod=klog.kobj(pod)):
                message, annotations = helpers.eviction_message(name, pod, stats_func, thresholds, observations)
                klog.info_s(
                    "Eviction manager: evicting a pod",
                    pod=klog.kobj(pod),
                    rank=index + 1,
                    rankedPods=len(ranking),
                    reason=str(ranked),
                )
                if self._evict_pod(pod, self._grace_period(threshold, pod), message, annotations, disrupts=True):
                    metrics.EVICTIONS.labels(threshold.signal).inc()
                    # The manager evicts at most one pod at a time, because what this pod frees may be enough.
                    return [pod]
        klog.info_s("Eviction manager: unable to evict any pods from the node")
        return []

    def _grace_period(self, threshold: evictionapi.Threshold, pod: v1.Pod) -> int | None:
        """Return the grace period in seconds, or None for the pod's own.

        DIVERGES (fault of Go): with a negative evictionMaxPodGracePeriod, a pod gets its own grace period.
        Go: pkg/kubelet/eviction/eviction_manager.go, (*managerImpl).synchronize: the Go kubelet passes the negative
        number on, and the pod gets one second.
        Why: the documentation of --eviction-max-pod-grace-period says that a negative value defers to the pod.
        Test: eviction_manager_test.py:test_the_grace_period_of_a_soft_threshold
        """
        if helpers.is_hard_eviction_threshold(threshold):
            return IMMEDIATE_EVICTION_GRACE_PERIOD_SECONDS
        longest = self._config.max_pod_grace_period_seconds
        if longest < 0:
            return None
        own = pod.spec.termination_grace_period_seconds
        return longest if own is None else min(longest, own)

    def _observe_stats_age(self, thresholds: Iterable[evictionapi.Threshold], observations: SignalObservations) -> None:
        """Record the age of the statistics on which the eviction is based."""
        for threshold in thresholds:
            time = observations[threshold.signal].time
            if time is not None:
                # time of day: the runtime may have set this time.
                metrics.EVICTION_STATS_AGE.labels(threshold.signal).observe(self._clock.since(time))

    def _wait_for_pods_cleanup(
        self, ctx: golang.Context, pod_cleaned_up_func: PodCleanedUpFunc, pods: list[v1.Pod]
    ) -> None:
        timeout = self._clock.new_timer(POD_CLEANUP_TIMEOUT)
        ticker = self._clock.new_ticker(POD_CLEANUP_POLL_FREQ)
        try:
            while True:
                selected = golang.select(timeout.channel, ticker.channel, ctx.done())
                if selected.took(timeout.channel):
                    klog.info_s("Eviction manager: timed out waiting for pods to be cleaned up", pods=klog.kobjs(pods))
                    return
                if selected.took(ctx.done()):
                    return
                if all(map(pod_cleaned_up_func, pods)):
                    klog.info_s("Eviction manager: pods successfully cleaned up", pods=klog.kobjs(pods))
                    return
        finally:
            timeout.stop()
            ticker.stop()

    def _reclaim_node_level_resources(self, ctx: golang.Context, signal: evictionapi.Signal, name: str) -> bool:
        """Remove garbage. Report whether no threshold is met any longer."""
        reclaim_funcs = self._signal_to_node_reclaim_funcs.get(signal, [])
        for reclaim in reclaim_funcs:
            try:
                reclaim(ctx)
            except golang.ContextError:
                raise
            except Exception as err:
                # A failed removal does not matter by itself: the thresholds are evaluated again below.
                klog.info_s(
                    "Eviction manager: unexpected error when attempting to reduce resource pressure",
                    resourceName=name,
                    err=err,
                )
        if not reclaim_funcs:
            return False
        complaint = "Eviction manager: failed to get summary stats after resource reclaim"
        summary = self._summary(ctx, self._summary_provider.get_node, complaint)
        if summary is None:
            return False
        observations, _ = helpers.make_signal_observations(summary)
        helpers.debug_log_observations("observations after resource reclaim", observations)
        thresholds = helpers.thresholds_met(self._config.thresholds, observations, True)
        helpers.debug_log_thresholds_with_observation(
            "thresholds after resource reclaim - ignoring grace period", thresholds, observations
        )
        return not thresholds

    # ---- Limits of single pods ----

    def _local_storage_eviction(self, pods: Iterable[v1.Pod], stats_func: StatsFunc) -> list[v1.Pod]:
        """Evict every pod that exceeds a limit on local storage: its own, a container's or a volume's."""
        evicted = []
        for pod in pods:
            # A fault of this pod must not affect the limits of other pods or the node's thresholds.
            with contain("Eviction manager: failed to check the limits of a pod", pod=klog.kobj(pod)):
                broken = self._broken_limit(stats_func(pod), pod)
                if broken is None:
                    continue
                signal, message = broken
                if self._evict_pod(pod, IMMEDIATE_EVICTION_GRACE_PERIOD_SECONDS, message, {}, disrupts=False):
                    metrics.EVICTIONS.labels(signal).inc()
                    evicted.append(pod)
        return evicted

    def _broken_limit(self, pod_stats: statsapi.PodStats | None, pod: v1.Pod) -> tuple[str, str] | None:
        """Return the limit that the pod has exceeded, as its name in the metric and as a message, or None."""
        if pod_stats is None:
            return None
        for signal, check in (
            (SIGNAL_EMPTY_DIR_FS_LIMIT, self._empty_dir_limit_eviction),
            (SIGNAL_EPHEMERAL_POD_FS_LIMIT, self._pod_ephemeral_storage_limit_eviction),
            (SIGNAL_EPHEMERAL_CONTAINER_FS_LIMIT, self._container_ephemeral_storage_limit_eviction),
        ):
            if message := check(pod_stats, pod):
                return signal, message
        return None

    def _empty_dir_limit_eviction(self, pod_stats: statsapi.PodStats, pod: v1.Pod) -> str:
        """Return why the pod must be evicted, or an empty string. The next two methods do the same."""
        used = {volume.name: helpers.disk_usage(volume) for volume in pod_stats.volume_stats}
        for volume in pod.spec.volumes:
            limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
            if limit is None or limit.sign() <= 0 or volume.name not in used or used[volume.name].cmp(limit) <= 0:
                continue
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". '
        return ""

    def _pod_ephemeral_storage_limit_eviction(self, pod_stats: statsapi.PodStats, pod: v1.Pod) -> str:
        limits = resourcehelper.pod_limits(pod, resourcehelper.PodResourcesOptions())
        limit = limits.get(v1.RESOURCE_EPHEMERAL_STORAGE)
        if limit is None or helpers.disk_usage(pod_stats.ephemeral_storage).cmp(limit) <= 0:
            return ""
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "

    def _container_ephemeral_storage_limit_eviction(self, pod_stats: statsapi.PodStats, pod: v1.Pod) -> str:
        limits: dict[str, Quantity] = {}
        for container in pod.spec.containers:
            limit = container.resources.limits.get(v1.RESOURCE_EPHEMERAL_STORAGE)
            if limit is not None and not limit.is_zero():
                limits[container.name] = limit
        for stats in pod_stats.containers:
            if stats.name not in limits:
                continue
            used = helpers.disk_usage(stats.logs)
            if not self._dedicated_image_fs:
                used = used.add(helpers.disk_usage(stats.rootfs))
            if used.cmp(limits[stats.name]) > 0:
                return f'Container {stats.name} exceeded its local ephemeral storage limit "{limits[stats.name]}". '
        return ""

    def _evict_pod(
        self,
        pod: v1.Pod,
        grace_period_override: int | None,
        message: str,
        annotations: dict[str, str],
        *,
        disrupts: bool,
    ) -> bool:
        """Evict a pod, and wait until it has terminated or the time is over.

        Return False for a pod that must not be evicted. Critical pods, among them static pods, are never evicted: a
        static pod would not be admitted again (kubernetes/kubernetes issue 40573). `disrupts` means that the pod did
        not cause the eviction by exceeding its own limits.
        """
        if kubetypes.is_critical_pod(pod):
            klog.error_s(None, "Eviction manager: cannot evict a critical pod", pod=klog.kobj(pod))
            return False
        self._recorder.annotated_eventf(pod, annotations, v1.EVENT_TYPE_WARNING, helpers.REASON, "%s", message)
        klog.v(3).info_s("Evicting pod", pod=klog.kobj(pod), podUID=pod.metadata.uid, message=message)

        def set_evicted(status: v1.PodStatus) -> None:
            status.phase = v1.POD_FAILED
            status.reason = helpers.REASON
            status.message = message
            if disrupts:
                # The condition is created again each time because the status keeps the object.
                podutil.update_pod_condition(status, _disruption_target(status, pod, message))

        try:
            self._kill_pod_func(pod, True, grace_period_override, set_evicted)
        except golang.ContextError:
            raise
        except Exception as err:
            # The pod worker continues to terminate the pod.
            klog.error_s(err, "Eviction manager: pod failed to evict", pod=klog.kobj(pod))
        else:
            klog.info_s("Eviction manager: pod is evicted successfully", pod=klog.kobj(pod))
        return True

    # ---- The live view ----

    def preview(self, ctx: golang.Context) -> Preview:
        """Return which pods would be evicted now, and why, without evicting any.

        Any thread may call this method. Raise the errors of the summary provider.
        """
        pods = self._pod_func()
        observations, stats_func = helpers.make_signal_observations(self._summary_provider.get(ctx, False))
        with self._lock:
            conditions, since = self._node_conditions, self._thresholds_first_observed_at
            last_observed, pending = self._node_conditions_last_observed_at, self._thresholds_met
        thresholds = sorted(self._config.thresholds, key=helpers.by_eviction_priority)
        signals: dict[evictionapi.Signal, SignalPreview] = {}
        for threshold in thresholds:
            signal, observed = threshold.signal, observations.get(threshold.signal)
            first = since.get(threshold)
            first = None if first is None else clocklib.from_steady(self._clock, first)
            if signal not in signals:
                signals[signal] = self._preview_signal(signal, observed, pods, stats_func)
            if observed is None:
                state = ThresholdState(threshold, None, None, False, first)
            else:
                quantity, reclaim_quantity = (
                    helpers.threshold_quantity(threshold, observed, enforce) for enforce in (False, True)
                )
                met = (reclaim_quantity if threshold in pending else quantity).cmp(observed.available) > 0
                state = ThresholdState(threshold, quantity, reclaim_quantity, met, first)
            signals[signal].thresholds.append(state)
        return Preview(
            conditions_last_observed={c: clocklib.from_steady(self._clock, at) for c, at in last_observed.items()},
            conditions=conditions,
            pressure_transition_period=self._config.pressure_transition_period,
            signals=list(signals.values()),
            broken_limits=self._preview_limits(pods, stats_func),
        )

    def _preview_signal(
        self,
        signal: evictionapi.Signal,
        observed: SignalObservation | None,
        pods: Sequence[v1.Pod],
        stats_func: StatsFunc,
    ) -> SignalPreview:
        # Before the first check the layout of the disks is unknown, and the ranking depends on it.
        rank = self._signal_to_rank_func.get(signal)
        containers = self._container_gc.delete_all_unused_containers
        return SignalPreview(
            signal=signal,
            resource=helpers.SIGNAL_TO_RESOURCE[signal],
            condition=helpers.SIGNAL_TO_NODE_CONDITION[signal],
            observation=observed,
            thresholds=[],
            reclaims=[
                "dead containers" if func == containers else "unused images"
                for func in self._signal_to_node_reclaim_funcs.get(signal, [])
            ],
            ranking=rank(pods, stats_func) if rank is not None else [],
        )

    def _preview_limits(self, pods: Sequence[v1.Pod], stats_func: StatsFunc) -> list[BrokenLimit]:
        if not self._local_storage_capacity_isolation:
            return []
        found = ((pod, self._broken_limit(stats_func(pod), pod)) for pod in pods)
        return [
            BrokenLimit(pod, *broken, spared=kubetypes.is_critical_pod(pod))
            for pod, broken in found
            if broken is not None
        ]


def _disruption_target(status: v1.PodStatus, pod: v1.Pod, message: str) -> v1.PodCondition:
    return v1.PodCondition(
        type=v1.DISRUPTION_TARGET,
        observed_generation=podutil.calculate_pod_condition_observed_generation(
            status, pod.metadata.generation, v1.DISRUPTION_TARGET
        ),
        status=v1.CONDITION_TRUE,
        reason=v1.POD_REASON_TERMINATION_BY_KUBELET,
        message=message,
    )


if TYPE_CHECKING:

    def _check(manager: ManagerImpl) -> tuple[Manager, lifecycle.PodAdmitHandler]:
        return manager, manager
