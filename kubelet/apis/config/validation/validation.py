"""Check whether the kubelet can run with a configuration.

Every check yields its faults, and the error contains all of them.

Go: pkg/kubelet/apis/config/validation/validation.go
"""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from kubelet import types as kubetypes
from kubelet.apis import config as kubeletconfig
from kubelet.apis.config.types import KubeletConfiguration, LoggingConfiguration, OutputRoutingOptions
from kubelet.apis.config.validation.validation_os import validate_kubelet_os_configuration
from kubelet.apis.config.validation.validation_reserved_memory import validate_reserved_memory_configuration
from pkg import features
from pkg.component_base import version
from pkg.component_base.cli.flag import format_duration
from pkg.component_base.featuregate import FeatureGate, FeatureGateError
from pkg.util import taints
from pkg.utils import cpuset

_MAX_INT32 = 2**31 - 1
_INVALID = "invalid configuration: "


class ConfigurationError(ExceptionGroup[ValueError]):
    """Report all faults of a configuration. The text joins them like an aggregate in Go."""

    def __str__(self) -> str:
        texts = list(dict.fromkeys(str(err) for err in self.exceptions))
        return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def validate_kubelet_configuration(kc: KubeletConfiguration, feature_gate: FeatureGate) -> None:
    """Check the configuration with the feature gates that it sets. Raise ConfigurationError."""
    gate = feature_gate.deep_copy()
    try:
        gate.set_from_map(kc.feature_gates)
    except FeatureGateError as err:
        raise ConfigurationError("configuration", [ValueError(str(each)) for each in err.exceptions]) from err
    faults = [ValueError(text) for check in _CHECKS for text in check(kc, gate)]
    if faults:
        raise ConfigurationError("configuration", faults)


def _q(text: str) -> str:
    return f'"{text}"'


def _validate_numbers(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    not_negative = (
        (kc.event_burst, "eventBurst (--event-burst)"),
        (kc.event_record_qps, "eventRecordQPS (--event-qps)"),
        (kc.kube_api_burst, "kubeAPIBurst (--kube-api-burst)"),
        (kc.kube_api_qps, "kubeAPIQPS (--kube-api-qps)"),
        (kc.max_open_files, "maxOpenFiles (--max-open-files)"),
        (kc.max_pods, "maxPods (--max-pods)"),
        (kc.pods_per_core, "podsPerCore (--pods-per-core)"),
        (kc.registry_burst, "registryBurst (--registry-burst)"),
        (kc.registry_pull_qps, "registryPullQPS (--registry-qps)"),
    )
    for value, name in not_negative:
        if value < 0:
            yield f"{_INVALID}{name} {value} must not be a negative number"
    if kc.node_lease_duration_seconds <= 0:
        yield f"{_INVALID}nodeLeaseDurationSeconds must be greater than 0"
    if kc.node_status_max_images < -1:
        yield (
            f"{_INVALID}nodeStatusMaxImages (--node-status-max-images) {kc.node_status_max_images} "
            "must be -1 or greater"
        )


def _validate_ranges(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    ranges = (
        (
            kc.image_gc_high_threshold_percent,
            0,
            100,
            "imageGCHighThresholdPercent (--image-gc-high-threshold)",
        ),
        (kc.image_gc_low_threshold_percent, 0, 100, "imageGCLowThresholdPercent (--image-gc-low-threshold)"),
        (kc.iptables_drop_bit, 0, 31, "iptablesDropBit (--iptables-drop-bit)"),
        (kc.iptables_masquerade_bit, 0, 31, "iptablesMasqueradeBit (--iptables-masquerade-bit)"),
        (kc.oom_score_adj, -1000, 1000, "oomScoreAdj (--oom-score-adj)"),
        (kc.port, 1, 65535, "port (--port)"),
    )
    for value, low, high, name in ranges:
        if not low <= value <= high:
            yield f"{_INVALID}{name} {value} must be between {low} and {high}, inclusive"
    # Port 0 disables these servers.
    if not 0 <= kc.healthz_port <= 65535:
        yield (f"{_INVALID}healthzPort (--healthz-port) {kc.healthz_port} must be between 1 and 65535, inclusive")
    if not 0 <= kc.read_only_port <= 65535:
        yield (f"{_INVALID}readOnlyPort (--read-only-port) {kc.read_only_port} must be between 0 and 65535, inclusive")


def _validate_cgroups(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    if kc.system_cgroups and not kc.cgroup_root:
        yield (
            f"{_INVALID}systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified"
        )
    period = f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {format_duration(kc.cpu_cfs_quota_period)}"
    if not gate.enabled(features.CPU_CFS_QUOTA_PERIOD):
        if kc.cpu_cfs_quota_period != 0.1:
            yield f"{_INVALID}{period} requires feature gate CustomCPUCFSQuotaPeriod"
    elif not 0.001 <= kc.cpu_cfs_quota_period <= 1:
        yield f"{_INVALID}{period} must be between 1ms and 1sec, inclusive"


def _validate_images(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    low, high = kc.image_gc_low_threshold_percent, kc.image_gc_high_threshold_percent
    if low >= high:
        yield (
            f"{_INVALID}imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than "
            f"imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
        )
    minimum, maximum = kc.image_minimum_gc_age, kc.image_maximum_gc_age
    if maximum != 0 and not gate.enabled(features.IMAGE_MAXIMUM_GC_AGE):
        yield (
            f"{_INVALID}ImageMaximumGCAge feature gate is required for Kubelet configuration option imageMaximumGCAge"
        )
    for value, name in ((minimum, "imageMinimumGCAge"), (maximum, "imageMaximumGCAge")):
        if value < 0:
            yield f"{_INVALID}{name} {format_duration(value)} must not be negative"
    if 0 < maximum <= minimum:
        yield (
            f"{_INVALID}imageMaximumGCAge {format_duration(maximum)} must be greater than "
            f"imageMinimumGCAge {format_duration(minimum)}"
        )
    pulls = kc.max_parallel_image_pulls
    if pulls is not None and pulls < 1:
        yield f"{_INVALID}maxParallelImagePulls {pulls} must be a positive number"
    if kc.serialize_image_pulls and pulls is not None and pulls > 1:
        yield (
            f"{_INVALID}maxParallelImagePulls cannot be larger than 1 unless "
            "SerializeImagePulls (--serialize-image-pulls) is set to false"
        )


def _validate_image_credentials(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    policy, allowlist = (
        kc.image_pull_credentials_verification_policy,
        kc.preloaded_images_verification_allowlist,
    )
    if not gate.enabled(features.KUBELET_ENSURE_SECRET_PULLED_IMAGES):
        rule = "must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled"
        if policy:
            yield f"{_INVALID}`imagePullCredentialsVerificationPolicy` {rule}"
        if allowlist:
            yield f"{_INVALID}`preloadedImagesVerificationAllowlist` {rule}"
        return
    policies = (
        kubeletconfig.NEVER_VERIFY,
        kubeletconfig.NEVER_VERIFY_PRELOADED_IMAGES,
        kubeletconfig.NEVER_VERIFY_ALLOWLISTED_IMAGES,
        kubeletconfig.ALWAYS_VERIFY,
    )
    if policy not in policies:
        yield (
            f"{_INVALID}option {_q(policy)} specified for imagePullCredentialsVerificationPolicy. "
            f"Valid options are {_one_of(policies)}"
        )
    if allowlist and policy != kubeletconfig.NEVER_VERIFY_ALLOWLISTED_IMAGES:
        yield (
            f"{_INVALID}can't set `preloadedImagesVerificationAllowlist` if "
            '`imagePullCredentialsVertificationPolicy` is not "NeverVerifyAllowlistedImages"'
        )
    elif allowlist:
        yield from _validate_image_patterns(allowlist)


def _validate_image_patterns(patterns: list[str]) -> Iterator[str]:
    # This module is imported lazily because it imports half of the kubelet, and few configurations have a list.
    from kubelet.images import pullmanager

    try:
        pullmanager.validate_allowlist_images_patterns(patterns)
    except ValueError as err:
        yield f"{_INVALID}invalid image pattern in `preloadedImagesVerificationAllowlist`: {err}"


def _validate_node(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    if kc.server_tls_bootstrap and not gate.enabled(features.ROTATE_KUBELET_SERVER_CERTIFICATE):
        yield f"{_INVALID}serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate"
    if kc.run_once:
        yield f"{_INVALID}runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set"
    for taint in kc.register_with_taints:
        try:
            taints.check_taint_validation(taint)
        except ValueError as err:
            yield f"invalid taint: {taints.format_taint(taint)}: {err}"
        if taint.time_added is not None:
            yield f"{_INVALID}taint.TimeAdded is not nil"


def _validate_policies(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    policies = (
        kubeletconfig.NONE_TOPOLOGY_MANAGER_POLICY,
        kubeletconfig.BEST_EFFORT_TOPOLOGY_MANAGER_POLICY,
        kubeletconfig.RESTRICTED_TOPOLOGY_MANAGER_POLICY,
        kubeletconfig.SINGLE_NUMA_NODE_TOPOLOGY_MANAGER_POLICY,
    )
    if kc.topology_manager_policy not in policies:
        yield (
            f"{_INVALID}topologyManagerPolicy (--topology-manager-policy) {_q(kc.topology_manager_policy)} "
            f"must be one of: [{' '.join(_q(policy) for policy in policies)}]"
        )
    scopes = (kubeletconfig.CONTAINER_TOPOLOGY_MANAGER_SCOPE, kubeletconfig.POD_TOPOLOGY_MANAGER_SCOPE)
    if kc.topology_manager_scope not in scopes:
        yield (
            f"{_INVALID}topologyManagerScope (--topology-manager-scope) {_q(kc.topology_manager_scope)} "
            f"must be one of: {_q(scopes[0])}, or {_q(scopes[1])}"
        )
    modes = (kubeletconfig.HAIRPIN_NONE, kubeletconfig.HAIRPIN_VETH, kubeletconfig.PROMISCUOUS_BRIDGE)
    if kc.hairpin_mode not in modes:
        yield (
            f"{_INVALID}option {_q(kc.hairpin_mode)} specified for hairpinMode (--hairpin-mode). "
            f"Valid options are {_one_of(modes)}"
        )


def _validate_shutdown(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    total, critical = kc.shutdown_grace_period, kc.shutdown_grace_period_critical_pods
    by_priority = kc.shutdown_grace_period_by_pod_priority
    if gate.enabled(features.GRACEFUL_NODE_SHUTDOWN):
        if critical > total:
            yield (
                f"{_INVALID}shutdownGracePeriodCriticalPods {format_duration(critical)} must be <= "
                f"shutdownGracePeriod {format_duration(total)}"
            )
        for value, name in ((total, "shutdownGracePeriod"), (critical, "shutdownGracePeriodCriticalPods")):
            if value < 0 or 0 < value < 1:
                yield f"{_INVALID}{name} {format_duration(value)} must be either zero or otherwise >= 1 sec"
    elif total > 0 or critical > 0:
        yield (
            f"{_INVALID}specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires "
            "feature gate GracefulNodeShutdown"
        )
    if by_priority and not gate.enabled(features.GRACEFUL_NODE_SHUTDOWN_BASED_ON_POD_PRIORITY):
        yield (
            f"{_INVALID}Specifying shutdownGracePeriodByPodPriority requires feature gate "
            "GracefulNodeShutdownBasedOnPodPriority"
        )
    elif by_priority and (total > 0 or critical > 0):
        yield (
            f"{_INVALID}Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"
        )


def _validate_swap(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    behavior = kc.memory_swap.swap_behavior
    if not gate.enabled(features.NODE_SWAP):
        if behavior:
            yield f"{_INVALID}memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled"
    elif behavior not in ("", kubetypes.NO_SWAP, kubetypes.LIMITED_SWAP):
        yield (
            f'{_INVALID}memorySwap.swapBehavior {_q(behavior)} must be one of: "", '
            f"{_q(kubetypes.LIMITED_SWAP)} or {_q(kubetypes.NO_SWAP)}"
        )


def _validate_crash_loop_back_off(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    period = kc.crash_loop_back_off.max_container_restart_period
    name = "CrashLoopBackOff.MaxContainerRestartPeriod"
    if not gate.enabled(features.KUBELET_CRASH_LOOP_BACK_OFF_MAX):
        if period is not None:
            yield f"{_INVALID}FeatureGate KubeletCrashLoopBackOffMax not enabled, {name} must not be set"
    elif period is None:
        yield f"{_INVALID}FeatureGate KubeletCrashLoopBackOffMax is enabled, {name} must be set"
    elif not 1 <= period <= 300:
        yield f"{_INVALID}{name} (got: {period:g} seconds) must be set between 1s and 300s"


def _validate_node_allocatable(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    field = "enforceNodeAllocatable (--enforce-node-allocatable)"
    counts = Counter(kc.enforce_node_allocatable)
    for keys, _, _ in _RESERVED_CGROUPS:
        if all(counts[key] for key in keys):
            yield f"{_INVALID}both {_q(keys[0])} and {_q(keys[1])} cannot be specified together in {field}"
    for value, count in counts.items():
        if count > 1:
            yield f"{_INVALID}duplicated enforcements {_q(value)} in {field}"
        yield from _validate_enforcement(kc, value, field)


_RESERVED_CGROUPS: tuple[tuple[tuple[str, str], Callable[[KubeletConfiguration], str], str], ...] = (
    (
        (kubetypes.SYSTEM_RESERVED_ENFORCEMENT_KEY, kubetypes.SYSTEM_RESERVED_COMPRESSIBLE_ENFORCEMENT_KEY),
        lambda kc: kc.system_reserved_cgroup,
        "systemReservedCgroup (--system-reserved-cgroup)",
    ),
    (
        (kubetypes.KUBE_RESERVED_ENFORCEMENT_KEY, kubetypes.KUBE_RESERVED_COMPRESSIBLE_ENFORCEMENT_KEY),
        lambda kc: kc.kube_reserved_cgroup,
        "kubeReservedCgroup (--kube-reserved-cgroup)",
    ),
)


def _validate_enforcement(kc: KubeletConfiguration, value: str, field: str) -> Iterator[str]:
    if value == kubetypes.NODE_ALLOCATABLE_NONE_KEY:
        if len(kc.enforce_node_allocatable) > 1:
            yield f"{_INVALID}{field} may not contain additional enforcements when {_q(value)} is specified"
        return
    for keys, cgroup, name in _RESERVED_CGROUPS:
        if value in keys and not cgroup(kc):
            yield (f"{_INVALID}{name} must be specified when {_q(keys[0])} or {_q(keys[1])} included in {field}")
    reserved = [key for keys, _, _ in _RESERVED_CGROUPS for key in keys]
    valid = [kubetypes.NODE_ALLOCATABLE_ENFORCEMENT_KEY, *reserved, kubetypes.NODE_ALLOCATABLE_NONE_KEY]
    if value not in valid:
        yield f"{_INVALID}option {_q(value)} specified for {field}. Valid options are {_one_of(valid)}"
    elif not kc.cgroups_per_qos:
        yield (f"{_INVALID}cgroupsPerQOS (--cgroups-per-qos) must be set to true when {_q(value)} contained in {field}")


def _validate_reserved(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    cpus = kc.reserved_system_cpus
    if cpus:
        if kc.system_reserved_cgroup or kc.kube_reserved_cgroup:
            yield (
                f"{_INVALID}can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup "
                "(--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
            )
        try:
            cpuset.parse(cpus)
        except ValueError as err:
            yield f"{_INVALID}unable to parse reservedSystemCPUs (--reserved-cpus) {cpus}, error: {err}"
    yield from validate_reserved_memory_configuration(kc)
    yield from validate_kubelet_os_configuration(kc)


def _validate_metrics(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    info = version.get()
    previous = f"{info.major}.{int(info.minor) - 1}"
    if kc.show_hidden_metrics_for_version not in ("", previous):
        yield (
            f"--show-hidden-metrics-for-version must be omitted or have the value '{previous}'. "
            "Only the previous minor version is allowed"
        )


def _validate_logging(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    log = kc.logging
    if log.flush_frequency <= 0:
        shown = format_duration(log.flush_frequency)
        yield f"logging.flushFrequency: Invalid value: {_q(shown)}: Must be greater than zero"
    if log.format not in ("text", "json"):
        yield f"logging.format: Invalid value: {_q(log.format)}: Unsupported log format"
    if log.verbosity > _MAX_INT32:
        yield f"logging.verbosity: Invalid value: {log.verbosity}: Must be <= {_MAX_INT32}"
    yield from _validate_vmodule(log)
    for name, options in (("text", log.options.text), ("json", log.options.json)):
        yield from _validate_output_routing(f"logging.options.{name}", options, gate)


def _validate_vmodule(log: LoggingConfiguration) -> Iterator[str]:
    if log.vmodule and log.format != "text":
        yield "logging.vmodule: Forbidden: Only supported for text log format"
    for i, item in enumerate(log.vmodule):
        path = f"logging.vmodule[{i}]"
        if not item.file_pattern:
            yield f"{path}: Required value: File pattern must not be empty"
        if set(item.file_pattern) & set("=,"):
            yield (f"{path}: Invalid value: {_q(item.file_pattern)}: File pattern must not contain equal sign or comma")
        if item.verbosity > _MAX_INT32:
            yield f"{path}: Invalid value: {item.verbosity}: Must be <= {_MAX_INT32}"


def _validate_output_routing(path: str, options: OutputRoutingOptions, gate: FeatureGate) -> Iterator[str]:
    if gate.enabled(features.LOGGING_ALPHA_OPTIONS):
        return
    if options.split_stream:
        yield f"{path}.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"
    if not options.info_buffer_size.is_zero():
        yield f"{path}.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled"


def _validate_tracing(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    if kc.tracing is None:
        return
    rate = kc.tracing.sampling_rate_per_million
    path = "tracing.samplingRatePerMillion: Invalid value"
    if rate is not None and rate < 0:
        yield f"{path}: {rate}: sampling rate must be positive"
    if rate is not None and rate > 1_000_000:
        yield f"{path}: {rate}: sampling rate per million must be less than or equal to one million"
    endpoint = kc.tracing.endpoint
    if endpoint is not None and "//" in endpoint:
        scheme = urlsplit(endpoint).scheme
        if scheme not in ("dns", "unix", "unix-abstract"):
            yield (
                f"tracing.endpoint: Invalid value: {_q(endpoint)}: unsupported scheme: {scheme}. "
                "Options are none, dns, unix, or unix-abstract"
            )


def _validate_eviction(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    """Check settings that Go checks only when it creates the kubelet."""
    # The import is lazy, because it imports most of the kubelet, which other readers of configurations do not need.
    from kubelet import eviction

    try:
        eviction.parse_threshold_config(
            (),
            kc.eviction_hard,
            kc.eviction_soft,
            kc.eviction_soft_grace_period,
            kc.eviction_minimum_reclaim,
        )
    except eviction.ThresholdsError as err:
        yield from (f"{_INVALID}{fault}" for fault in err.faults)
    if kc.eviction_pressure_transition_period < 0:
        yield (
            f"{_INVALID}evictionPressureTransitionPeriod (--eviction-pressure-transition-period) "
            f"{format_duration(kc.eviction_pressure_transition_period)} must not be negative"
        )


def _validate_memory_qos(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    factor, policy = kc.memory_throttling_factor, kc.memory_reservation_policy
    enabled = gate.enabled(features.MEMORY_QOS)
    if enabled and factor is None:
        yield f"{_INVALID}memoryThrottlingFactor is required when MemoryQoS feature flag is enabled"
    if factor is not None and not 0 < factor <= 1:
        yield (f"{_INVALID}memoryThrottlingFactor {factor:g} must be greater than 0 and less than or equal to 1.0")
    policies = (
        kubeletconfig.NONE_MEMORY_RESERVATION_POLICY,
        kubeletconfig.TIERED_RESERVATION_MEMORY_RESERVATION_POLICY,
    )
    if not enabled and policy == policies[1]:
        yield f"{_INVALID}memoryReservationPolicy {_q(policy)} requires MemoryQoS feature gate to be enabled"
    if policy not in policies:
        yield (
            f"{_INVALID}option {_q(policy)} specified for memoryReservationPolicy. "
            f"Valid options are {_one_of(policies)}"
        )


def _validate_logs_and_runtime(kc: KubeletConfiguration, gate: FeatureGate) -> Iterator[str]:
    if not kc.container_runtime_endpoint:
        yield f"{_INVALID}the containerRuntimeEndpoint was not specified or empty"
    if kc.enable_system_log_query and not gate.enabled(features.NODE_LOG_QUERY):
        yield f"{_INVALID}NodeLogQuery feature gate is required for enableSystemLogQuery"
    if kc.enable_system_log_query and not kc.enable_system_log_handler:
        yield f"{_INVALID}enableSystemLogHandler is required for enableSystemLogQuery"
    if kc.container_log_max_workers < 1:
        yield f"{_INVALID}containerLogMaxWorkers must be greater than or equal to 1"
    if kc.container_log_monitor_interval < 3:
        yield (f"{_INVALID}containerLogMonitorInterval must be a positive time duration greater than or equal to 3s")
    if kc.container_log_max_files <= 1:
        yield f"{_INVALID}containerLogMaxFiles must be greater than 1"
    yield from _validate_pod_logs_dir(kc.pod_logs_dir)


def _validate_pod_logs_dir(path: str) -> Iterator[str]:
    if not path:
        yield f"{_INVALID}podLogsDir was not specified"
    if not path.startswith("/"):
        yield f"{_INVALID}pod logs path {_q(path)} must be absolute path"
    # normpath keeps a leading double slash, which is not normalized.
    if path != os.path.normpath(path) or path.startswith("//"):
        yield f"{_INVALID}pod logs path {_q(path)} must be normalized"
    if not path.isascii():
        yield f"{_INVALID}pod logs path {_q(path)} mut contains ASCII characters only"


def _one_of(options: tuple[str, ...] | list[str]) -> str:
    """Join options to text such as '"a", "b" or "c"'."""
    quoted = [_q(option) for option in options]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


_CHECKS: tuple[Callable[[KubeletConfiguration, FeatureGate], Iterator[str]], ...] = (
    _validate_numbers,
    _validate_ranges,
    _validate_cgroups,
    _validate_eviction,
    _validate_images,
    _validate_node,
    _validate_policies,
    _validate_shutdown,
    _validate_swap,
    _validate_crash_loop_back_off,
    _validate_node_allocatable,
    _validate_image_credentials,
    _validate_reserved,
    _validate_metrics,
    _validate_logging,
    _validate_tracing,
    _validate_memory_qos,
    _validate_logs_and_runtime,
)
