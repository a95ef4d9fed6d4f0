"""Parse thresholds, measure signals, compare the two, and rank pods.

Go: pkg/kubelet/eviction/helpers.go, helpers_others.go
"""

from __future__ import annotations

import datetime
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kubelet import types as kubetypes
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.eviction import api as evictionapi
from kubelet.eviction.types import (
    ContainerGC,
    FsStatsType,
    ImageGC,
    NodeConditionsObservedAt,
    NodeReclaimFunc,
    RankedPod,
    RankFunc,
    SignalObservation,
    SignalObservations,
    StatsFunc,
    ThresholdsObservedAt,
)
from pkg import features, klog
from pkg.api.core import v1
from pkg.api.v1 import resource as v1resource
from pkg.apimachinery.api import resource
from pkg.apimachinery.api.resource import Quantity
from pkg.component_base.cli.flag import format_duration, parse_duration
from pkg.component_helpers import resource as resourcehelper
from pkg.golang import strconv
from pkg.volume.util import is_local_ephemeral_volume

# This is the reason in the status of a pod that was evicted because the node was short of a resource.
REASON = "Evicted"
# These annotations of eviction events name the containers or the pod that used more than requested, the usage, and the
# resource of which the node was short.
OFFENDING_CONTAINERS_KEY = "offending_containers"
OFFENDING_CONTAINERS_USAGE_KEY = "offending_containers_usage"
OFFENDING_POD_KEY = "offending_pod"
OFFENDING_POD_USAGE_KEY = "offending_pod_usage"
STARVED_RESOURCE_KEY = "starved_resource"

# These resources exist only for eviction.
RESOURCE_INODES = "inodes"
RESOURCE_PIDS = "pids"

Signal = evictionapi.Signal
MEMORY_SIGNALS = frozenset({Signal.MEMORY_AVAILABLE, Signal.ALLOCATABLE_MEMORY_AVAILABLE})

SIGNAL_TO_NODE_CONDITION: Mapping[Signal, str] = {
    Signal.MEMORY_AVAILABLE: v1.NODE_MEMORY_PRESSURE,
    Signal.ALLOCATABLE_MEMORY_AVAILABLE: v1.NODE_MEMORY_PRESSURE,
    Signal.IMAGE_FS_AVAILABLE: v1.NODE_DISK_PRESSURE,
    Signal.CONTAINER_FS_AVAILABLE: v1.NODE_DISK_PRESSURE,
    Signal.NODE_FS_AVAILABLE: v1.NODE_DISK_PRESSURE,
    Signal.IMAGE_FS_INODES_FREE: v1.NODE_DISK_PRESSURE,
    Signal.NODE_FS_INODES_FREE: v1.NODE_DISK_PRESSURE,
    Signal.CONTAINER_FS_INODES_FREE: v1.NODE_DISK_PRESSURE,
    Signal.PID_AVAILABLE: v1.NODE_PID_PRESSURE,
}

SIGNAL_TO_RESOURCE: Mapping[Signal, str] = {
    Signal.MEMORY_AVAILABLE: v1.RESOURCE_MEMORY,
    Signal.ALLOCATABLE_MEMORY_AVAILABLE: v1.RESOURCE_MEMORY,
    Signal.IMAGE_FS_AVAILABLE: v1.RESOURCE_EPHEMERAL_STORAGE,
    Signal.IMAGE_FS_INODES_FREE: RESOURCE_INODES,
    Signal.CONTAINER_FS_AVAILABLE: v1.RESOURCE_EPHEMERAL_STORAGE,
    Signal.CONTAINER_FS_INODES_FREE: RESOURCE_INODES,
    Signal.NODE_FS_AVAILABLE: v1.RESOURCE_EPHEMERAL_STORAGE,
    Signal.NODE_FS_INODES_FREE: RESOURCE_INODES,
    Signal.PID_AVAILABLE: RESOURCE_PIDS,
}

_T = TypeVar("_T")
# This is the syntax of Go's ParseFloat without hexadecimal numbers, infinity and NaN, which make no sense as
# thresholds.
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BINARY = resource.Format.BINARY_SI
_DECIMAL = resource.Format.DECIMAL_SI


# ---- Thresholds of the configuration ----


class ThresholdsError(ValueError):
    """Signal that thresholds in the configuration are invalid. The error contains all faults."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")
        self.faults = faults


def parse_threshold_config(
    allocatable_config: Iterable[str],
    eviction_hard: Mapping[str, str],
    eviction_soft: Mapping[str, str],
    eviction_soft_grace_period: Mapping[str, str],
    eviction_minimum_reclaim: Mapping[str, str],
) -> list[evictionapi.Threshold]:
    """Return all thresholds. With "pods" in allocatable_config, include the threshold for the memory of all pods.

    Raise ThresholdsError.

    DIVERGES (safer): the error about eviction thresholds names all faults, and the field of each.
    Go: pkg/kubelet/eviction/helpers.go, ParseThresholdConfig: the Go kubelet names the first fault, without a field.
    Why: a kubelet does not start with a fault, and an administrator can correct all faults at once.
    Test: helpers_test.py:test_all_faults_are_told
    """
    faults: list[str] = []
    hard = _parse_each("evictionHard", eviction_hard, _parse_threshold_statement, faults)
    soft = _parse_each("evictionSoft", eviction_soft, _parse_threshold_statement, faults)
    grace_periods = _parse_each("evictionSoftGracePeriod", eviction_soft_grace_period, _parse_grace_period, faults)
    min_reclaims = _parse_each("evictionMinimumReclaim", eviction_minimum_reclaim, _parse_minimum_reclaim, faults)
    results = [threshold for threshold in hard.values() if threshold is not None]
    for signal, threshold in soft.items():
        if threshold is None:
            continue
        if signal not in eviction_soft_grace_period:
            faults.append(f"grace period must be specified for the soft eviction threshold {signal}")
        results.append(replace(threshold, grace_period=grace_periods.get(signal, 0.0)))
    if faults:
        raise ThresholdsError(faults)
    results = [replace(threshold, min_reclaim=min_reclaims.get(threshold.signal)) for threshold in results]
    if kubetypes.NODE_ALLOCATABLE_ENFORCEMENT_KEY in allocatable_config:
        results += _allocatable_thresholds(results)
    return results


def _parse_each(
    field: str, statements: Mapping[str, str], parse: Callable[[Signal, str], _T], faults: list[str]
) -> dict[Signal, _T]:
    """Parse each statement. An error of `parse` becomes a fault of the field."""
    results: dict[Signal, _T] = {}
    for signal, text in statements.items():
        try:
            known = Signal(signal)
        except ValueError:
            faults.append(f"{field}: unsupported eviction signal {signal}")
            continue
        try:
            results[known] = parse(known, text)
        except ValueError as err:
            faults.append(f"{field}: {err}")
    return results


def _allocatable_thresholds(thresholds: Iterable[evictionapi.Threshold]) -> list[evictionapi.Threshold]:
    """Return the hard threshold of the node's memory again, as a threshold for the memory of all pods."""
    return [
        replace(threshold, signal=Signal.ALLOCATABLE_MEMORY_AVAILABLE)
        for threshold in thresholds
        if threshold.signal is Signal.MEMORY_AVAILABLE and is_hard_eviction_threshold(threshold)
    ]


def update_container_fs_thresholds(
    thresholds: Iterable[evictionapi.Threshold], image_fs: bool, separate_container_image_fs: bool
) -> tuple[list[evictionapi.Threshold], list[str]]:
    """Return the thresholds, with those of the containers' file system copied from the file system that it shares.

    Configured thresholds of the containers' file system are ignored, and returned as texts to log. Go adds thresholds
    without a value when there is nothing to copy; this function adds none.
    """
    ignored: list[str] = []
    results: list[evictionapi.Threshold] = []
    for threshold in thresholds:
        if threshold.signal in (Signal.CONTAINER_FS_AVAILABLE, Signal.CONTAINER_FS_INODES_FREE):
            kind = "hard" if is_hard_eviction_threshold(threshold) else "soft"
            ignored.append(f"found {threshold.signal} for {kind} eviction. ignoring")
        else:
            results.append(threshold)
    shared = {
        Signal.NODE_FS_AVAILABLE: Signal.CONTAINER_FS_AVAILABLE,
        Signal.NODE_FS_INODES_FREE: Signal.CONTAINER_FS_INODES_FREE,
    }
    if image_fs and not separate_container_image_fs:
        shared = {
            Signal.IMAGE_FS_AVAILABLE: Signal.CONTAINER_FS_AVAILABLE,
            Signal.IMAGE_FS_INODES_FREE: Signal.CONTAINER_FS_INODES_FREE,
        }
    results += [replace(found, signal=shared[found.signal]) for found in results if found.signal in shared]
    return results, ignored


def _parse_threshold_statement(signal: Signal, text: str) -> evictionapi.Threshold | None:
    if text.endswith("%"):
        if text in ("0%", "100%"):
            return None
        percentage = _parse_percentage(f"eviction percentage threshold {signal}", text)
        if percentage < 0:
            raise ValueError(f"eviction percentage threshold {signal} must be >= 0%: {text}")
        if percentage > 1:
            raise ValueError(f"eviction percentage threshold {signal} must be <= 100%: {text}")
        return evictionapi.Threshold(signal, evictionapi.ThresholdValue(percentage=percentage))
    quantity = _parse_quantity(f"eviction threshold {signal}", text)
    if quantity.sign() <= 0:
        raise ValueError(f"eviction threshold {signal} must be positive: {quantity}")
    return evictionapi.Threshold(signal, evictionapi.ThresholdValue(quantity=quantity))


def _parse_grace_period(signal: Signal, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as err:
        raise ValueError(f"eviction grace period {signal}: {err}") from err
    if seconds < 0:
        raise ValueError(f"invalid eviction grace period specified: {text}, must be a positive value")
    return seconds


def _parse_minimum_reclaim(signal: Signal, text: str) -> evictionapi.ThresholdValue:
    if text.endswith("%"):
        percentage = _parse_percentage(f"eviction percentage minimum reclaim {signal}", text)
        if percentage <= 0:
            raise ValueError(f"eviction percentage minimum reclaim {signal} must be positive: {text}")
        return evictionapi.ThresholdValue(percentage=percentage)
    quantity = _parse_quantity(f"eviction minimum reclaim {signal}", text)
    if quantity.sign() < 0:
        raise ValueError(f"negative eviction minimum reclaim specified for {signal}")
    return evictionapi.ThresholdValue(quantity=quantity)


def _parse_quantity(what: str, text: str) -> Quantity:
    try:
        return resource.parse_quantity(text)
    except ValueError as err:
        raise ValueError(f"{what}: {err}") from err


def _parse_percentage(what: str, text: str) -> float:
    number = text.rstrip("%")
    if not _FLOAT.fullmatch(number):
        raise ValueError(f'{what}: "{text}" is not a percentage')
    try:
        return _float32(_float32(strconv.parse_float(number)) / 100)
    except (ValueError, OverflowError) as err:
        raise ValueError(f"{what}: {err}") from err


def _float32(number: float) -> float:
    """Round to 32 bits as Go does for percentages, because the node's allocatable storage shows the difference."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


def is_hard_eviction_threshold(threshold: evictionapi.Threshold) -> bool:
    """Report whether pods are evicted immediately when the threshold is met."""
    return threshold.grace_period == 0


def is_allocatable_eviction_threshold(threshold: evictionapi.Threshold) -> bool:
    """Report whether the threshold concerns all pods together and not the node."""
    return threshold.signal is Signal.ALLOCATABLE_MEMORY_AVAILABLE


def format_threshold(threshold: evictionapi.Threshold) -> str:
    """Return the threshold as text for the log."""
    grace_period = format_duration(threshold.grace_period)
    return f"threshold(signal={threshold.signal}, value={format_value(threshold.value)}, gracePeriod={grace_period})"


def format_value(value: evictionapi.ThresholdValue) -> str:
    """Return the value as in the configuration: 100Mi, 15%."""
    return f"{value.percentage * 100:.4g}%" if value.quantity is None else str(value.quantity)


# ---- Usage of pods ----


def _quantity(number: int | None, format: resource.Format) -> Quantity:
    return resource.new_quantity(number or 0, format)


def disk_usage(fs_stats: statsapi.FsStats | None) -> Quantity:
    """Return the used bytes, or 0 if unknown."""
    return _quantity(fs_stats.used_bytes if fs_stats is not None else None, _BINARY)


def inode_usage(fs_stats: statsapi.FsStats | None) -> Quantity:
    """Return the used inodes, or 0 if unknown."""
    return _quantity(fs_stats.inodes_used if fs_stats is not None else None, _DECIMAL)


def memory_usage(memory_stats: statsapi.MemoryStats | None) -> Quantity:
    """Return the working set in bytes, or 0 if unknown."""
    return _quantity(memory_stats.working_set_bytes if memory_stats is not None else None, _BINARY)


def process_usage(process_stats: statsapi.ProcessStats | None) -> int:
    """Return the number of processes, or 0 if unknown."""
    return (process_stats.process_count or 0) if process_stats is not None else 0


def local_volume_names(pod: v1.Pod) -> set[str]:
    """Return the names of the volumes that are on the node's disk."""
    return {v.name for v in pod.spec.volumes if v.host_path is not None or is_local_ephemeral_volume(v)}


def pod_disk_usage(
    pod_stats: statsapi.PodStats, pod: v1.Pod, stats_to_measure: Iterable[FsStatsType]
) -> dict[str, Quantity]:
    """Return the ephemeral storage and the inodes that these parts of the pod use."""
    measured: list[statsapi.FsStats | None] = []
    if FsStatsType.ROOT in stats_to_measure:
        measured += [container.rootfs for container in pod_stats.containers]
    if FsStatsType.LOGS in stats_to_measure:
        measured += [container.logs for container in pod_stats.containers]
    if FsStatsType.LOCAL_VOLUME_SOURCE in stats_to_measure:
        local = local_volume_names(pod)
        measured += [volume for volume in pod_stats.volume_stats if volume.name in local]
    return {
        v1.RESOURCE_EPHEMERAL_STORAGE: _quantity(sum((fs.used_bytes or 0) for fs in measured if fs), _BINARY),
        RESOURCE_INODES: _quantity(sum((fs.inodes_used or 0) for fs in measured if fs), _DECIMAL),
    }


def has_storage_limit(pod: v1.Pod) -> bool:
    """Report whether the pod has a limit on local storage for which it may be evicted."""
    if any(v.empty_dir is not None and v.empty_dir.size_limit is not None for v in pod.spec.volumes):
        return True
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return any(v1.RESOURCE_EPHEMERAL_STORAGE in c.resources.limits for c in containers)


def cached_stats_func(pod_stats: Iterable[statsapi.PodStats]) -> StatsFunc:
    """Return a function that looks up the statistics of a pod."""
    by_uid = {stats.pod_ref.uid: stats for stats in pod_stats}
    return lambda pod: by_uid.get(pod.metadata.uid)


# ---- Ranking ----


def rank_memory_pressure(pods: Sequence[v1.Pod], stats: StatsFunc) -> list[RankedPod]:
    """Rank pods that exceed their request first, then by lower priority, then by usage above the request."""
    ranked = []
    for pod in pods:
        found = stats(pod)
        usage = memory_usage(found.memory) if found is not None else None
        ranked.append(_ranked(pod, v1.RESOURCE_MEMORY, usage))
    return sorted(ranked, key=_by_request)


def rank_pid_pressure(pods: Sequence[v1.Pod], stats: StatsFunc) -> list[RankedPod]:
    """Rank pods by lower priority, then by the number of processes."""
    ranked = []
    for pod in pods:
        found = stats(pod)
        usage = resource.new_quantity(process_usage(found.process_stats)) if found is not None else None
        ranked.append(_ranked(pod, RESOURCE_PIDS, usage))
    return sorted(ranked, key=lambda r: (r.priority, *_by_usage(r)))


def rank_disk_pressure_func(fs_stats_to_measure: Sequence[FsStatsType], disk_resource: str) -> RankFunc:
    """Return a function that ranks pods like rank_memory_pressure, by the disk usage of these parts."""

    def rank(pods: Sequence[v1.Pod], stats: StatsFunc) -> list[RankedPod]:
        ranked = []
        for pod in pods:
            found = stats(pod)
            usage = pod_disk_usage(found, pod, fs_stats_to_measure)[disk_resource] if found is not None else None
            ranked.append(_ranked(pod, disk_resource, usage))
        return sorted(ranked, key=_by_request)

    return rank


def _ranked(pod: v1.Pod, name: str, usage: Quantity | None) -> RankedPod:
    requestable = name in (v1.RESOURCE_MEMORY, v1.RESOURCE_EPHEMERAL_STORAGE)
    request = v1resource.get_resource_request_quantity(pod, name) if requestable else None
    return RankedPod(pod, name, pod.spec.priority or 0, usage, request)


def _by_request(ranked: RankedPod) -> tuple[int, ...]:
    """Return a sort key with which the pod to evict first comes first.

    DIVERGES (fault of Go): when inodes are short, pods are ranked by the inodes that they use.
    Go: pkg/kubelet/eviction/helpers.go, disk: the Go kubelet subtracts the storage request of the pod, in bytes, from
    its number of inodes.
    Why: a pod with many files and a request would be evicted after a pod with few files and no request.
    Test: helpers_test.py:test_ranking
    """
    return ranked.usage is not None, not ranked.exceeds_request, ranked.priority, *_by_usage(ranked)


def _by_usage(ranked: RankedPod) -> tuple[int, int]:
    """Return a sort key: pods without statistics first, then by usage above the request.

    The usage of pods without statistics is unknown.
    """
    if ranked.usage is None:
        return 0, 0
    return 1, (ranked.request.nanos if ranked.request is not None else 0) - ranked.usage.nanos


def by_eviction_priority(threshold: evictionapi.Threshold) -> bool:
    """Return a sort key that puts memory first, because a node without memory can do nothing else."""
    return threshold.signal not in MEMORY_SIGNALS


_DISK_SIGNALS = (
    (Signal.NODE_FS_AVAILABLE, Signal.IMAGE_FS_AVAILABLE, Signal.CONTAINER_FS_AVAILABLE, v1.RESOURCE_EPHEMERAL_STORAGE),
    (Signal.NODE_FS_INODES_FREE, Signal.IMAGE_FS_INODES_FREE, Signal.CONTAINER_FS_INODES_FREE, RESOURCE_INODES),
)


def build_signal_to_rank_func(with_image_fs: bool, image_container_split_fs: bool) -> dict[Signal, RankFunc]:
    """Return the ranking function of each signal. Only usage on the affected disk counts."""
    logs_and_volumes = [FsStatsType.LOGS, FsStatsType.LOCAL_VOLUME_SOURCE]
    if with_image_fs and not image_container_split_fs:
        on_node_fs = logs_and_volumes
        on_image_fs = on_container_fs = [FsStatsType.ROOT, FsStatsType.IMAGES]
    elif with_image_fs:
        on_node_fs = on_container_fs = [*logs_and_volumes, FsStatsType.ROOT]
        on_image_fs = [FsStatsType.IMAGES]
    else:
        on_node_fs = on_image_fs = on_container_fs = [FsStatsType.IMAGES, FsStatsType.ROOT, *logs_and_volumes]
    funcs: dict[Signal, RankFunc] = {
        Signal.MEMORY_AVAILABLE: rank_memory_pressure,
        Signal.ALLOCATABLE_MEMORY_AVAILABLE: rank_memory_pressure,
        Signal.PID_AVAILABLE: rank_pid_pressure,
    }
    for node_fs, image_fs, container_fs, name in _DISK_SIGNALS:
        funcs[node_fs] = rank_disk_pressure_func(on_node_fs, name)
        funcs[image_fs] = rank_disk_pressure_func(on_image_fs, name)
        funcs[container_fs] = rank_disk_pressure_func(on_container_fs, name)
    return funcs


def build_signal_to_node_reclaim_funcs(
    image_gc: ImageGC, container_gc: ContainerGC, with_image_fs: bool, split_container_image_fs: bool
) -> dict[Signal, list[NodeReclaimFunc]]:
    """Return what is removed for each signal, in order, before a pod is evicted.

    Nothing can be removed for memory and process IDs.
    """
    containers: list[NodeReclaimFunc] = [container_gc.delete_all_unused_containers]
    images: list[NodeReclaimFunc] = [image_gc.delete_unused_images]
    if with_image_fs and not split_container_image_fs:
        for_node_fs: list[NodeReclaimFunc] = []
        for_image_fs = for_container_fs = containers + images
    elif with_image_fs:
        for_node_fs = for_container_fs = containers
        for_image_fs = images
    else:
        for_node_fs = for_image_fs = for_container_fs = containers + images
    funcs: dict[Signal, list[NodeReclaimFunc]] = {}
    for node_fs, image_fs, container_fs, _ in _DISK_SIGNALS:
        funcs[node_fs], funcs[image_fs], funcs[container_fs] = for_node_fs, for_image_fs, for_container_fs
    return funcs


# ---- Observations ----


def make_signal_observations(summary: statsapi.Summary) -> tuple[SignalObservations, StatsFunc]:
    """Return the observation of each signal that could be measured, and a function that looks up pod statistics."""
    result: SignalObservations = {}
    node = summary.node

    def observe(signal: Signal, observation: SignalObservation | None) -> None:
        if observation is not None:
            result[signal] = observation

    observe(Signal.MEMORY_AVAILABLE, _observe_memory(node.memory))
    try:
        pods = get_sys_container(node.system_containers, statsapi.SYSTEM_CONTAINER_PODS)
        observe(Signal.ALLOCATABLE_MEMORY_AVAILABLE, _observe_memory(pods.memory))
    except LookupError as err:
        # DIVERGES (fault of Go): on a node without a cgroup for all pods, the kubelet logs no error for this signal.
        # Go: pkg/kubelet/eviction/helpers.go, makeSignalObservations: the Go kubelet logs an error every ten seconds.
        # Why: on a node with cgroupsPerQOS: false, nothing is wrong.
        # Test: helpers_test.py:test_node_without_a_cgroup_of_all_pods_logs_no_error
        klog.v(3).info_s(
            "Eviction manager: failed to construct signal", signal=Signal.ALLOCATABLE_MEMORY_AVAILABLE, err=err
        )
    runtime = node.runtime or statsapi.RuntimeStats()
    observe(Signal.NODE_FS_AVAILABLE, _observe_fs(node.fs))
    observe(Signal.NODE_FS_INODES_FREE, _observe_inodes(node.fs))
    observe(Signal.IMAGE_FS_AVAILABLE, _observe_fs(runtime.image_fs))
    observe(Signal.IMAGE_FS_INODES_FREE, _observe_inodes(runtime.image_fs))
    observe(Signal.CONTAINER_FS_AVAILABLE, _observe_fs(runtime.container_fs))
    observe(Signal.CONTAINER_FS_INODES_FREE, _observe_inodes(runtime.container_fs))
    rlimit = node.rlimit
    if rlimit is not None and rlimit.num_of_running_processes is not None and rlimit.max_pid is not None:
        available = rlimit.max_pid - rlimit.num_of_running_processes
        observe(Signal.PID_AVAILABLE, _observation(rlimit.max_pid, available, _DECIMAL, rlimit.time))
    return result, cached_stats_func(summary.pods)


def _observation(
    capacity: int, available: int, format: resource.Format, time: datetime.datetime | None
) -> SignalObservation:
    return SignalObservation(_quantity(capacity, format), _quantity(available, format), time)


def _observe_memory(memory: statsapi.MemoryStats | None) -> SignalObservation | None:
    """Return the observation, or None for memory without a limit, for which the rest is unknown."""
    if memory is None or memory.available_bytes is None or memory.working_set_bytes is None:
        return None
    capacity = memory.available_bytes + memory.working_set_bytes
    return _observation(capacity, memory.available_bytes, _BINARY, memory.time)


def _observe_fs(fs: statsapi.FsStats | None) -> SignalObservation | None:
    if fs is None or fs.available_bytes is None or fs.capacity_bytes is None:
        return None
    return _observation(fs.capacity_bytes, fs.available_bytes, _BINARY, fs.time)


def _observe_inodes(fs: statsapi.FsStats | None) -> SignalObservation | None:
    if fs is None or fs.inodes_free is None or fs.inodes is None:
        return None
    return _observation(fs.inodes, fs.inodes_free, _DECIMAL, fs.time)


def get_sys_container(sys_containers: Iterable[statsapi.ContainerStats], name: str) -> statsapi.ContainerStats:
    """Return the system container of that name. Raise LookupError if there is none."""
    for container in sys_containers:
        if container.name == name:
            return container
    raise LookupError(f'system container "{name}" not found in metrics')


def debug_log_observations(log_prefix: str, observations: SignalObservations) -> None:
    """Log all observations at verbosity 3."""
    if not klog.v(3).enabled:
        return
    for signal, observed in observations.items():
        time = {} if observed.time is None else {"time": observed.time}
        klog.v(3).info_s(
            "Eviction manager:",
            log=log_prefix,
            signal=signal,
            resourceName=SIGNAL_TO_RESOURCE[signal],
            available=observed.available,
            capacity=observed.capacity,
            **time,
        )


def debug_log_thresholds_with_observation(
    log_prefix: str, thresholds: Iterable[evictionapi.Threshold], observations: SignalObservations
) -> None:
    """Log all thresholds with their observations at verbosity 3."""
    if not klog.v(3).enabled:
        return
    for threshold in thresholds:
        observed = observations.get(threshold.signal)
        if observed is None:
            klog.v(3).info_s("Eviction manager: threshold had no observation", log=log_prefix, signal=threshold.signal)
            continue
        klog.v(3).info_s(
            "Eviction manager: threshold observed resource",
            log=log_prefix,
            signal=threshold.signal,
            resourceName=SIGNAL_TO_RESOURCE[threshold.signal],
            quantity=evictionapi.get_threshold_quantity(threshold.value, observed.capacity),
            available=observed.available,
        )


# ---- Evaluation of thresholds ----


def _observed(
    thresholds: Iterable[evictionapi.Threshold], observations: SignalObservations
) -> Iterator[tuple[evictionapi.Threshold, SignalObservation]]:
    """Yield the thresholds whose signals were observed, with the observations. Log the others."""
    for threshold in thresholds:
        observed = observations.get(threshold.signal)
        if observed is None:
            klog.info_s("Eviction manager: no observation found for eviction signal", signal=threshold.signal)
            continue
        yield threshold, observed


def thresholds_met(
    thresholds: Iterable[evictionapi.Threshold], observations: SignalObservations, enforce_min_reclaim: bool
) -> list[evictionapi.Threshold]:
    """Return the thresholds that are met, which means that less is left than they demand.

    With enforce_min_reclaim, a threshold also demands its minimum to reclaim.
    """
    results = []
    for threshold, observed in _observed(thresholds, observations):
        if threshold_quantity(threshold, observed, enforce_min_reclaim).cmp(observed.available) > 0:
            results.append(threshold)
    return results


def threshold_quantity(
    threshold: evictionapi.Threshold, observed: SignalObservation, enforce_min_reclaim: bool
) -> Quantity:
    """Return the quantity that must be left, given this observation."""
    quantity = evictionapi.get_threshold_quantity(threshold.value, observed.capacity)
    if enforce_min_reclaim and threshold.min_reclaim is not None:
        quantity = quantity.add(evictionapi.get_threshold_quantity(threshold.min_reclaim, observed.capacity))
    return quantity


def thresholds_updated_stats(
    thresholds: Iterable[evictionapi.Threshold], observations: SignalObservations, last_observations: SignalObservations
) -> list[evictionapi.Threshold]:
    """Return the thresholds that were measured again since the last check."""
    results = []
    for threshold, observed in _observed(thresholds, observations):
        last = last_observations.get(threshold.signal)
        # A time before the last one is also new: the clock was set back.
        if last is None or last.time is None or observed.time is None or observed.time != last.time:
            results.append(threshold)
    return results


def thresholds_first_observed_at(
    thresholds: Iterable[evictionapi.Threshold], last_observed_at: ThresholdsObservedAt, now: datetime.datetime
) -> ThresholdsObservedAt:
    """Return since when each threshold has been met continuously."""
    return {threshold: last_observed_at.get(threshold, now) for threshold in thresholds}


def thresholds_met_grace_period(
    observed_at: ThresholdsObservedAt, now: datetime.datetime
) -> list[evictionapi.Threshold]:
    """Return the thresholds whose grace period is over."""
    results = []
    for threshold, at in observed_at.items():
        seconds = (now - at).total_seconds()
        if seconds < threshold.grace_period:
            klog.v(2).info_s(
                "Eviction manager: eviction criteria not yet met",
                threshold=format_threshold(threshold),
                duration=format_duration(seconds),
            )
            continue
        results.append(threshold)
    return results


def node_conditions(thresholds: Iterable[evictionapi.Threshold]) -> list[str]:
    """Return the node conditions for the thresholds, without duplicates."""
    return list(dict.fromkeys(SIGNAL_TO_NODE_CONDITION[threshold.signal] for threshold in thresholds))


def node_conditions_last_observed_at(
    conditions: Iterable[str], last_observed_at: NodeConditionsObservedAt, now: datetime.datetime
) -> NodeConditionsObservedAt:
    """Return when each condition was last observed, with `conditions` observed now."""
    return {**last_observed_at, **dict.fromkeys(conditions, now)}


def node_conditions_observed_since(
    observed_at: NodeConditionsObservedAt, period: float, now: datetime.datetime
) -> list[str]:
    """Return the conditions that were observed within the last `period` seconds.

    DIVERGES (fault of Go): with a transition period of 0, the node's conditions show its current shortages.
    Go: pkg/kubelet/eviction/helpers.go, nodeConditionsObservedSince: the Go kubelet shows none, because 0 seconds ago
    is not less than 0.
    Why: a node that is short of memory would not report this, and would continue to get pods.
    Test: helpers_test.py:test_node_conditions_last_observed_at_and_since
    """
    return [c for c, at in observed_at.items() if at == now or (now - at).total_seconds() < period]


def merge_thresholds(
    first: Iterable[evictionapi.Threshold], second: Iterable[evictionapi.Threshold]
) -> list[evictionapi.Threshold]:
    """Return all thresholds without duplicates. A different minimum to reclaim alone makes no difference."""
    merged: dict[evictionapi.Threshold, evictionapi.Threshold] = {}
    for threshold in (*first, *second):
        merged.setdefault(replace(threshold, min_reclaim=None), threshold)
    return list(merged.values())


# ---- Messages ----


def pod_is_evicted(pod_status: v1.PodStatus) -> bool:
    """Report whether the pod ended because it was evicted."""
    return pod_status.phase == v1.POD_FAILED and pod_status.reason == REASON


def eviction_message(
    resource_to_reclaim: str,
    pod: v1.Pod,
    stats: StatsFunc,
    thresholds: Iterable[evictionapi.Threshold],
    observations: SignalObservations,
) -> tuple[str, dict[str, str]]:
    """Return the reason for the eviction as a message for people, and as annotations for programs."""
    message = f"The node was low on resource: {resource_to_reclaim}. "
    met = _get_threshold_met_info(resource_to_reclaim, thresholds, observations)
    if met is not None:
        message += "Threshold quantity: {}, available: {}. ".format(*met)
    pod_stats = stats(pod)
    if pod_stats is None:
        return message, {}
    of_pod, annotations = _pod_message(resource_to_reclaim, pod, pod_stats)
    message += of_pod
    # Ephemeral containers have no requests, so they cannot exceed them.
    containers = {c.name: c for c in (*pod.spec.init_containers, *pod.spec.containers)}
    exceeded: dict[str, str] = {}
    for container_stats in pod_stats.containers:
        container = containers.get(container_stats.name)
        usage = _container_usage(resource_to_reclaim, container_stats)
        if container is None or usage is None:
            continue
        request = container.resources.requests.get(resource_to_reclaim, Quantity(0))
        if usage.cmp(request) > 0:
            message += (
                f"Container {container.name} was using {usage}, request is {request}, "
                f"has larger consumption of {resource_to_reclaim}. "
            )
            exceeded[container.name] = str(usage)
    annotations[OFFENDING_CONTAINERS_KEY] = ",".join(exceeded)
    annotations[OFFENDING_CONTAINERS_USAGE_KEY] = ",".join(exceeded.values())
    annotations[STARVED_RESOURCE_KEY] = resource_to_reclaim
    return message, annotations


def _pod_message(resource_to_reclaim: str, pod: v1.Pod, pod_stats: statsapi.PodStats) -> tuple[str, dict[str, str]]:
    """Return the message and the annotations about the requests of the pod as a whole."""
    resources = pod.spec.resources
    if (
        resource_to_reclaim != v1.RESOURCE_MEMORY
        or resources is None
        or resource_to_reclaim not in resources.requests
        or pod_stats.memory is None
        or not features.feature_gate.enabled(features.POD_LEVEL_RESOURCES)
        or not resourcehelper.is_pod_level_resources_set(pod)
    ):
        return "", {}
    usage, name = memory_usage(pod_stats.memory), pod.metadata.name
    message = (
        f"Pod {name} was using {usage}, request is {resources.requests[resource_to_reclaim]}, "
        f"has larger consumption of {resource_to_reclaim}. "
    )
    return message, {OFFENDING_POD_KEY: name, OFFENDING_POD_USAGE_KEY: str(usage)}


def _container_usage(name: str, stats: statsapi.ContainerStats) -> Quantity | None:
    """Return the container's usage, or None if it is unknown or if the resource is not measured for containers."""
    if name == v1.RESOURCE_MEMORY:
        if stats.memory is not None and stats.memory.working_set_bytes is not None:
            return memory_usage(stats.memory)
    elif name == v1.RESOURCE_EPHEMERAL_STORAGE:
        parts = stats.rootfs, stats.logs
        if all(part is not None and part.used_bytes is not None for part in parts):
            return disk_usage(stats.rootfs).add(disk_usage(stats.logs))
    return None


def _get_threshold_met_info(
    resource_to_reclaim: str, thresholds: Iterable[evictionapi.Threshold], observations: SignalObservations
) -> tuple[Quantity, Quantity] | None:
    """Return the first threshold of the resource that was measured, and the quantity that is left."""
    for threshold in thresholds:
        observed = observations.get(threshold.signal)
        if SIGNAL_TO_RESOURCE[threshold.signal] == resource_to_reclaim and observed is not None:
            return evictionapi.get_threshold_quantity(threshold.value, observed.capacity), observed.available
    return None
