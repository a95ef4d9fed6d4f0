"""Measure the volumes of one pod.

Go: pkg/kubelet/server/stats/volume_stat_calculator.go
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubelet.apis.stats import v1alpha1 as stats
from pkg import features, golang, klog, volume
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util.runtime import contain
from pkg.client_go.tools import record
from pkg.component_helpers.storage import ephemeral
from pkg.volume import util

if TYPE_CHECKING:
    from kubelet.server.stats.handler import Provider

# The calculator waits this time, in seconds, for a volume before it asks the pod's next one. It does not ask a volume
# again while an earlier request is pending.
ANSWER_TIMEOUT = 5.0
# At most this many volumes of one pod may have a pending request. Each one has a thread, which holds up to
# filetree.HELD_LEVELS directories open while it counts the volume's contents, and a pod may have thousands of volumes.
MAX_ASKED = 4
# A measurement that takes longer than this, in seconds, is logged.
_LONG = 1.0
# The summary's numbers have 64 bits.
_LARGEST = 2**64 - 1


@dataclass(frozen=True, slots=True)
class PodVolumeStats:
    """Hold the volumes that share the pod's lifetime and are on the node's own disk, and the other volumes.

    `stale` contains the names of the volumes that did not respond the last time. The time in their statistics shows the
    age of these.
    """

    ephemeral_volumes: list[stats.VolumeStats] = field(default_factory=list)
    persistent_volumes: list[stats.VolumeStats] = field(default_factory=list)
    stale: frozenset[str] = frozenset()


class VolumeStatCalculator:
    """Measure the volumes of a pod.

    Only one thread at a time may call `calc_and_store_stats`; any thread may call `get_latest`.

    DIVERGES (safer): a volume that does not respond does not prevent the measurement of the pod's other volumes, unless
    MAX_ASKED volumes do not respond.
    Go: pkg/kubelet/server/stats/volume_stat_calculator.go, (*volumeStatCalculator).calcAndStoreStats: the Go kubelet
    waits for each volume without a limit.
    Why: the server of one volume may be dead, and evictions for local storage depend on the statistics of the others.
    Test: volume_stat_calculator_test.py:test_dead_server_costs_nobody_but_itself
    """

    def __init__(
        self,
        stats_provider: Provider,
        pod: v1.Pod,
        event_recorder: record.EventRecorder,
        clock: clocklib.Clock | None = None,
    ) -> None:
        self._stats_provider = stats_provider
        self._pod = pod
        self._event_recorder = event_recorder
        self._clock = clock or clocklib.RealClock()
        self._latest: PodVolumeStats | None = None
        # The keys are volume names. The fields hold the latest statistics, and the channel of each pending request. The
        # channel receives None from a volume that cannot be measured.
        self._known: dict[str, stats.VolumeStats] = {}
        self._asked: dict[str, golang.Channel[volume.Metrics | None]] = {}

    def get_latest(self) -> PodVolumeStats | None:
        """Return the latest statistics, or None before the first measurement."""
        return self._latest

    def calc_and_store_stats(self) -> None:
        """Measure all volumes. Wait at most ANSWER_TIMEOUT seconds for each volume without a pending request."""
        providers = self._metrics_providers()
        if not providers:
            # No volume is mounted yet, or all have been unmounted.
            return
        for gone in (self._known.keys() | self._asked.keys()) - providers.keys():
            self._known.pop(gone, None)
            self._asked.pop(gone, None)
        stale = frozenset(name for name, provider in providers.items() if not self._measure(name, provider))
        specs = {spec.name: spec for spec in self._pod.spec.volumes}
        ephemeral_volumes: list[stats.VolumeStats] = []
        persistent_volumes: list[stats.VolumeStats] = []
        for name, found in self._known.items():
            local = name in specs and util.is_local_ephemeral_volume(specs[name])
            (ephemeral_volumes if local else persistent_volumes).append(found)
        self._latest = PodVolumeStats(ephemeral_volumes, persistent_volumes, stale)

    def _metrics_providers(self) -> dict[str, volume.MetricsProvider]:
        uid = self._pod.metadata.uid
        providers: dict[str, volume.MetricsProvider] = dict(self._stats_provider.list_volumes_for_pod(uid))
        for name, mapper in self._stats_provider.list_block_volumes_for_pod(uid).items():
            if mapper.supports_metrics():
                providers[name] = mapper
        return providers

    def _measure(self, name: str, provider: volume.MetricsProvider) -> bool:
        """Report whether the volume has responded, even if only to say that it cannot be measured."""
        asked_before = name in self._asked
        if not asked_before:
            if len(self._asked) >= MAX_ASKED:
                # This volume is measured when one of the pending requests has ended.
                return False
            self._start_to_ask(name, provider)
        metrics, has_answered = self._asked[name].recv(timeout=0 if asked_before else ANSWER_TIMEOUT)
        if not has_answered:
            if not asked_before:
                klog.warning_s(
                    "Volume does not return its metrics, keeping the last ones",
                    pod=klog.kobj(self._pod),
                    podUID=self._pod.metadata.uid,
                    volumeName=name,
                )
            return False
        del self._asked[name]
        if metrics is None:
            self._known.pop(name, None)
        else:
            self._known[name] = self._to_volume_stats(name, metrics)
            self._tell_of_health(name, metrics)
        return True

    def _start_to_ask(self, name: str, provider: volume.MetricsProvider) -> None:
        answer: golang.Channel[volume.Metrics | None] = golang.Channel(1)
        golang.go(self._ask, name, provider, answer, name=f"volume-stats-{self._pod.metadata.uid}-{name}")
        # The channel is stored only after the thread has started, because without the thread nothing would ever be
        # sent.
        self._asked[name] = answer

    def _ask(self, name: str, provider: volume.MetricsProvider, answer: golang.Channel[volume.Metrics | None]) -> None:
        metrics: volume.Metrics | None = None
        try:
            with contain("Failed to calculate volume metrics", golang.background(), volumeName=name):
                metrics = self._get_metrics(name, provider)
        finally:
            answer.send(metrics)

    def _get_metrics(self, name: str, provider: volume.MetricsProvider) -> volume.Metrics | None:
        started = self._clock.monotonic()
        metrics: volume.Metrics | None = None
        try:
            metrics = provider.get_metrics()
        except Exception as err:
            # A plugin may raise any error. The volume then has no statistics.
            if not volume.is_not_supported(err):
                klog.v(4).info_s(
                    "Failed to calculate volume metrics",
                    pod=klog.kobj(self._pod),
                    podUID=self._pod.metadata.uid,
                    volumeName=name,
                    err=err,
                )
        seconds = self._clock.monotonic() - started
        if seconds > _LONG:
            klog.info_s(
                "Calculating volume metrics took a long time",
                pod=klog.kobj(self._pod),
                volumeName=name,
                seconds=seconds,
            )
        return metrics

    def _to_volume_stats(self, name: str, metrics: volume.Metrics) -> stats.VolumeStats:
        spec = next((spec for spec in self._pod.spec.volumes if spec.name == name), None)
        return parse_pod_volume_stats(name, self._pvc_ref(spec), metrics)

    def _pvc_ref(self, spec: v1.Volume | None) -> stats.PVCReference | None:
        """Return the claim behind the volume."""
        if spec is None:
            return None
        namespace = self._pod.metadata.namespace
        if spec.persistent_volume_claim is not None:
            return stats.PVCReference(name=spec.persistent_volume_claim.claim_name, namespace=namespace)
        if spec.ephemeral is not None:
            return stats.PVCReference(name=ephemeral.volume_claim_name(self._pod, spec), namespace=namespace)
        return None

    def _tell_of_health(self, name: str, metrics: volume.Metrics) -> None:
        if not features.feature_gate.enabled(features.CSI_VOLUME_HEALTH):
            return
        if metrics.abnormal and metrics.message is not None:
            message = f"Volume {name}: {metrics.message}"
            self._event_recorder.event(self._pod, v1.EVENT_TYPE_WARNING, "VolumeConditionAbnormal", message)


def parse_pod_volume_stats(name: str, pvc_ref: stats.PVCReference | None, metrics: volume.Metrics) -> stats.VolumeStats:
    """Return the volume's metrics in the form of the summary, with 0 for unknown values."""
    health = None if metrics.abnormal is None else stats.VolumeHealthStats(abnormal=metrics.abnormal)
    return stats.VolumeStats(
        name=name,
        pvc_ref=pvc_ref,
        time=metrics.time,
        available_bytes=_value(metrics.available),
        capacity_bytes=_value(metrics.capacity),
        used_bytes=_value(metrics.used),
        inodes=_value(metrics.inodes),
        inodes_free=_value(metrics.inodes_free),
        inodes_used=_value(metrics.inodes_used),
        volume_health_stats=health,
    )


def _value(quantity: Quantity | None) -> int:
    """Return the quantity's value, limited to 64 bits without a sign.

    Clients reject the whole summary for a negative number or one with more than 64 bits.

    DIVERGES (fault of Go): a value of a volume below 0 or above 2**64-1 is limited to that bound.
    Go: pkg/kubelet/server/stats/volume_stat_calculator.go, (*volumeStatCalculator).parsePodVolumeStats: the conversion
    in the Go kubelet wraps around.
    Why: a volume that reports -1 would be shown with 16 exbibytes.
    Test: volume_stat_calculator_test.py:test_absurd_figures_are_cut_to_what_a_summary_can_hold
    """
    return 0 if quantity is None else min(max(quantity.value(), 0), _LARGEST)
