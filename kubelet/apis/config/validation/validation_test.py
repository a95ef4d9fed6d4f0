"""Test the validation of the configuration.

Go: pkg/kubelet/apis/config/validation/validation_test.go, validation_reserved_memory_test.go
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from kubelet.apis import config as kubeletconfig
from kubelet.apis.config import scheme, v1beta1, validation
from kubelet.apis.config.validation import validation_os
from pkg import features
from pkg.api.core import v1
from pkg.apimachinery.api.resource import parse_quantity

_INVALID = "invalid configuration: "


def _configuration(gates: dict[str, bool] | None = None) -> kubeletconfig.KubeletConfiguration:
    document: scheme.Document = {"featureGates": gates or {}, "failCgroupV1": False}
    v1beta1.set_defaults_kubelet_configuration(document)
    return scheme.to_internal(document)


def _faults(kc: kubeletconfig.KubeletConfiguration) -> list[str]:
    try:
        validation.validate_kubelet_configuration(kc, features.feature_gate.deep_copy())
    except validation.ConfigurationError as err:
        return [str(fault) for fault in err.exceptions]
    return []


def _set(kc: kubeletconfig.KubeletConfiguration, values: dict[str, Any]) -> None:
    for path, value in values.items():
        owner: Any = kc
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, value)


def test_defaults_are_valid() -> None:
    assert _faults(_configuration()) == []


def test_all_faults_of_thresholds_are_told() -> None:
    kc = _configuration()
    kc.eviction_hard = {"memory.available": "-1Gi", "disk.available": "1Gi"}
    kc.eviction_soft = {"nodefs.available": "10%"}
    kc.eviction_minimum_reclaim = {"nodefs.available": "much"}
    kc.eviction_pressure_transition_period = -5.0
    assert _faults(kc) == [
        f"{_INVALID}evictionHard: eviction threshold memory.available must be positive: -1Gi",
        f"{_INVALID}evictionHard: unsupported eviction signal disk.available",
        f"{_INVALID}evictionMinimumReclaim: eviction minimum reclaim nodefs.available: quantities must match the "
        "regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        f"{_INVALID}grace period must be specified for the soft eviction threshold nodefs.available",
        f"{_INVALID}evictionPressureTransitionPeriod (--eviction-pressure-transition-period) -5s must not be negative",
    ]


_CASES: list[tuple[dict[str, Any], dict[str, bool], str]] = [
    ({"node_lease_duration_seconds": 0}, {}, "nodeLeaseDurationSeconds must be greater than 0"),
    (
        {"cgroups_per_qos": False},
        {},
        'cgroupsPerQOS (--cgroups-per-qos) must be set to true when "pods" contained in '
        "enforceNodeAllocatable (--enforce-node-allocatable)",
    ),
    (
        {"system_cgroups": "/"},
        {},
        "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified",
    ),
    ({"event_burst": -1}, {}, "eventBurst (--event-burst) -1 must not be a negative number"),
    ({"event_record_qps": -1}, {}, "eventRecordQPS (--event-qps) -1 must not be a negative number"),
    (
        {"healthz_port": 65536},
        {},
        "healthzPort (--healthz-port) 65536 must be between 1 and 65535, inclusive",
    ),
    (
        {"cpu_cfs_quota_period": 0.2},
        {"CustomCPUCFSQuotaPeriod": False},
        "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) 200ms requires feature gate CustomCPUCFSQuotaPeriod",
    ),
    (
        {"cpu_cfs_quota_period": 2.0},
        {},
        "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) 2s must be between 1ms and 1sec, inclusive",
    ),
    (
        {"image_gc_high_threshold_percent": 101},
        {},
        "imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive",
    ),
    (
        {"image_gc_low_threshold_percent": 85},
        {},
        "imageGCLowThresholdPercent (--image-gc-low-threshold) 85 must be less than "
        "imageGCHighThresholdPercent (--image-gc-high-threshold) 85",
    ),
    ({"image_minimum_gc_age": -1.0}, {}, "imageMinimumGCAge -1s must not be negative"),
    ({"image_maximum_gc_age": -1.0}, {}, "imageMaximumGCAge -1s must not be negative"),
    (
        {"image_maximum_gc_age": 60.0},
        {},
        "imageMaximumGCAge 1m0s must be greater than imageMinimumGCAge 2m0s",
    ),
    (
        {"iptables_drop_bit": 32},
        {},
        "iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, inclusive",
    ),
    ({"kube_api_qps": -1}, {}, "kubeAPIQPS (--kube-api-qps) -1 must not be a negative number"),
    (
        {"node_status_max_images": -2},
        {},
        "nodeStatusMaxImages (--node-status-max-images) -2 must be -1 or greater",
    ),
    ({"max_open_files": -1}, {}, "maxOpenFiles (--max-open-files) -1 must not be a negative number"),
    ({"max_pods": -1}, {}, "maxPods (--max-pods) -1 must not be a negative number"),
    (
        {"oom_score_adj": -1001},
        {},
        "oomScoreAdj (--oom-score-adj) -1001 must be between -1000 and 1000, inclusive",
    ),
    ({"port": 0}, {}, "port (--port) 0 must be between 1 and 65535, inclusive"),
    (
        {"read_only_port": 65536},
        {},
        "readOnlyPort (--read-only-port) 65536 must be between 0 and 65535, inclusive",
    ),
    ({"registry_pull_qps": -1}, {}, "registryPullQPS (--registry-qps) -1 must not be a negative number"),
    ({"max_parallel_image_pulls": 0}, {}, "maxParallelImagePulls 0 must be a positive number"),
    (
        {"max_parallel_image_pulls": 4, "serialize_image_pulls": True},
        {},
        "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) "
        "is set to false",
    ),
    (
        {"server_tls_bootstrap": True},
        {"RotateKubeletServerCertificate": False},
        "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate",
    ),
    (
        {"run_once": True},
        {},
        "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set",
    ),
    (
        {"topology_manager_policy": "x"},
        {},
        'topologyManagerPolicy (--topology-manager-policy) "x" must be one of: '
        '["none" "best-effort" "restricted" "single-numa-node"]',
    ),
    (
        {"topology_manager_scope": "x"},
        {},
        'topologyManagerScope (--topology-manager-scope) "x" must be one of: "container", or "pod"',
    ),
    (
        {"hairpin_mode": "x"},
        {},
        'option "x" specified for hairpinMode (--hairpin-mode). '
        'Valid options are "none", "hairpin-veth" or "promiscuous-bridge"',
    ),
    (
        {"shutdown_grace_period": 10.0, "shutdown_grace_period_critical_pods": 20.0},
        {},
        "shutdownGracePeriodCriticalPods 20s must be <= shutdownGracePeriod 10s",
    ),
    (
        {"shutdown_grace_period": 0.5},
        {},
        "shutdownGracePeriod 500ms must be either zero or otherwise >= 1 sec",
    ),
    (
        {"shutdown_grace_period": 10.0},
        dict.fromkeys(
            (
                "GracefulNodeShutdown",
                "GracefulNodeShutdownBasedOnPodPriority",
                "WindowsGracefulNodeShutdown",
            ),
            False,
        ),
        "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown",
    ),
    (
        {
            "shutdown_grace_period": 10.0,
            "shutdown_grace_period_by_pod_priority": [kubeletconfig.ShutdownGracePeriodByPodPriority()],
        },
        {},
        "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time",
    ),
    (
        {"shutdown_grace_period_by_pod_priority": [kubeletconfig.ShutdownGracePeriodByPodPriority()]},
        {"GracefulNodeShutdownBasedOnPodPriority": False},
        "Specifying shutdownGracePeriodByPodPriority requires feature gate GracefulNodeShutdownBasedOnPodPriority",
    ),
    (
        {"memory_swap.swap_behavior": "x"},
        {},
        'memorySwap.swapBehavior "x" must be one of: "", "LimitedSwap" or "NoSwap"',
    ),
    (
        {"crash_loop_back_off.max_container_restart_period": 301.0},
        {"KubeletCrashLoopBackOffMax": True},
        "CrashLoopBackOff.MaxContainerRestartPeriod (got: 301 seconds) must be set between 1s and 300s",
    ),
    (
        {"crash_loop_back_off.max_container_restart_period": None},
        {"KubeletCrashLoopBackOffMax": True},
        "FeatureGate KubeletCrashLoopBackOffMax is enabled, CrashLoopBackOff.MaxContainerRestartPeriod must be set",
    ),
    (
        {"crash_loop_back_off.max_container_restart_period": 10.0},
        {"KubeletCrashLoopBackOffMax": False},
        "FeatureGate KubeletCrashLoopBackOffMax not enabled, "
        "CrashLoopBackOff.MaxContainerRestartPeriod must not be set",
    ),
    (
        {"enforce_node_allocatable": ["system-reserved"]},
        {},
        'systemReservedCgroup (--system-reserved-cgroup) must be specified when "system-reserved" or '
        '"system-reserved-compressible" included in enforceNodeAllocatable (--enforce-node-allocatable)',
    ),
    (
        {"enforce_node_allocatable": ["pods", "pods"]},
        {},
        'duplicated enforcements "pods" in enforceNodeAllocatable (--enforce-node-allocatable)',
    ),
    (
        {"enforce_node_allocatable": ["none", "pods"]},
        {},
        "enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional enforcements when "
        '"none" is specified',
    ),
    (
        {"enforce_node_allocatable": ["x"]},
        {},
        'option "x" specified for enforceNodeAllocatable (--enforce-node-allocatable). Valid options '
        'are "pods", '
        '"system-reserved", "system-reserved-compressible", "kube-reserved", '
        '"kube-reserved-compressible" or "none"',
    ),
    (
        {
            "enforce_node_allocatable": ["kube-reserved", "kube-reserved-compressible"],
            "kube_reserved_cgroup": "/kube",
        },
        {},
        'both "kube-reserved" and "kube-reserved-compressible" cannot be specified together in '
        "enforceNodeAllocatable (--enforce-node-allocatable)",
    ),
    (
        {"image_pull_credentials_verification_policy": "x"},
        {},
        'option "x" specified for imagePullCredentialsVerificationPolicy. Valid options are "NeverVerify", '
        '"NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages" or "AlwaysVerify"',
    ),
    (
        {
            "image_pull_credentials_verification_policy": "NeverVerifyAllowlistedImages",
            "preloaded_images_verification_allowlist": ["a.test/b", "a.test/*/c"],
        },
        {},
        "invalid image pattern in `preloadedImagesVerificationAllowlist`: not a valid wildcard pattern, "
        "only patterns ending with '/*' are allowed: a.test/*/c",
    ),
    (
        {"preloaded_images_verification_allowlist": ["a.test/b"]},
        {},
        "can't set `preloadedImagesVerificationAllowlist` if "
        "`imagePullCredentialsVertificationPolicy` is not "
        '"NeverVerifyAllowlistedImages"',
    ),
    (
        {"preloaded_images_verification_allowlist": ["a.test/b"]},
        {"KubeletEnsureSecretPulledImages": False},
        "`preloadedImagesVerificationAllowlist` must not be set if KubeletEnsureSecretPulledImages "
        "feature gate "
        "is not enabled",
    ),
    (
        {"reserved_system_cpus": "0-3", "kube_reserved_cgroup": "/kube"},
        {},
        "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup "
        "(--system-reserved-cgroup) or "
        "kubeReservedCgroup (--kube-reserved-cgroup)",
    ),
    (
        {"reserved_system_cpus": "0-"},
        {},
        'unable to parse reservedSystemCPUs (--reserved-cpus) 0-, error: strconv.Atoi: parsing "": invalid syntax',
    ),
    (
        {"memory_throttling_factor": 1.1},
        {},
        "memoryThrottlingFactor 1.1 must be greater than 0 and less than or equal to 1.0",
    ),
    (
        {"memory_throttling_factor": None},
        {"MemoryQoS": True},
        "memoryThrottlingFactor is required when MemoryQoS feature flag is enabled",
    ),
    (
        {"memory_reservation_policy": "TieredReservation"},
        {"MemoryQoS": False},
        'memoryReservationPolicy "TieredReservation" requires MemoryQoS feature gate to be enabled',
    ),
    (
        {"memory_reservation_policy": "x"},
        {},
        'option "x" specified for memoryReservationPolicy. Valid options are "None" or "TieredReservation"',
    ),
    ({"container_runtime_endpoint": ""}, {}, "the containerRuntimeEndpoint was not specified or empty"),
    (
        {"enable_system_log_query": True, "enable_system_log_handler": False},
        {},
        "enableSystemLogHandler is required for enableSystemLogQuery",
    ),
    ({"container_log_max_workers": 0}, {}, "containerLogMaxWorkers must be greater than or equal to 1"),
    (
        {"container_log_monitor_interval": 2.0},
        {},
        "containerLogMonitorInterval must be a positive time duration greater than or equal to 3s",
    ),
    ({"container_log_max_files": 1}, {}, "containerLogMaxFiles must be greater than 1"),
    ({"pod_logs_dir": "/a/../b"}, {}, 'pod logs path "/a/../b" must be normalized'),
    ({"pod_logs_dir": "/a/"}, {}, 'pod logs path "/a/" must be normalized'),
    ({"pod_logs_dir": "a"}, {}, 'pod logs path "a" must be absolute path'),
    ({"pod_logs_dir": "/é"}, {}, 'pod logs path "/é" mut contains ASCII characters only'),
    (
        {"user_namespaces": kubeletconfig.UserNamespaces(ids_per_pod=1)},
        {},
        "userNamespaces.idsPerPod must not be less than 65536",
    ),
    (
        {"user_namespaces": kubeletconfig.UserNamespaces(ids_per_pod=65537)},
        {},
        "userNamespaces.idsPerPod must be a multiple of 65536",
    ),
    (
        {"user_namespaces": kubeletconfig.UserNamespaces(ids_per_pod=2**32)},
        {},
        "userNamespaces.idsPerPod must not be more than 4294967295",
    ),
    (
        {"reserved_memory": [kubeletconfig.MemoryReservation(limits={"cpu": parse_quantity("1")})]},
        {},
        'the limit type "cpu" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted',
    ),
    (
        {"reserved_memory": [kubeletconfig.MemoryReservation(limits={"memory": parse_quantity("0")})]},
        {},
        'reserved memory may not be zero for NUMA node 0 and resource "memory"',
    ),
    (
        {"reserved_memory": [kubeletconfig.MemoryReservation(limits={"memory": parse_quantity("1Gi")})] * 2},
        {},
        'the reserved memory has a duplicate value for NUMA node 0 and resource "memory"',
    ),
]


@pytest.mark.parametrize(("values", "gates", "message"), _CASES, ids=[message for _, _, message in _CASES])
def test_one_fault(values: dict[str, Any], gates: dict[str, bool], message: str) -> None:
    kc = _configuration(gates)
    _set(kc, values)
    assert _faults(kc) == [_INVALID + message]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"logging.format": "xml"}, 'logging.format: Invalid value: "xml": Unsupported log format'),
        (
            {"logging.flush_frequency": 0.0},
            'logging.flushFrequency: Invalid value: "0s": Must be greater than zero',
        ),
        ({"logging.verbosity": 2**31}, "logging.verbosity: Invalid value: 2147483648: Must be <= 2147483647"),
        (
            {
                "logging.format": "json",
                "logging.vmodule": [kubeletconfig.VModuleItem(file_pattern="a", verbosity=1)],
            },
            "logging.vmodule: Forbidden: Only supported for text log format",
        ),
        (
            {"logging.vmodule": [kubeletconfig.VModuleItem(verbosity=1)]},
            "logging.vmodule[0]: Required value: File pattern must not be empty",
        ),
        (
            {"logging.vmodule": [kubeletconfig.VModuleItem(file_pattern="a=b")]},
            'logging.vmodule[0]: Invalid value: "a=b": File pattern must not contain equal sign or comma',
        ),
        (
            {"logging.options.text.split_stream": True},
            "logging.options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
        ),
        (
            {"tracing": kubeletconfig.TracingConfiguration(sampling_rate_per_million=-1)},
            "tracing.samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
        ),
        (
            {"tracing": kubeletconfig.TracingConfiguration(endpoint="http://a")},
            'tracing.endpoint: Invalid value: "http://a": unsupported scheme: http. '
            "Options are none, dns, unix, or unix-abstract",
        ),
        (
            {"show_hidden_metrics_for_version": "1.30"},
            "--show-hidden-metrics-for-version must be omitted or have the value '1.35'. "
            "Only the previous minor version is allowed",
        ),
    ],
)
def test_faults_of_shared_parts(values: dict[str, Any], message: str) -> None:
    kc = _configuration()
    _set(kc, values)
    assert _faults(kc) == [message]


def test_all_faults_are_reported_at_once() -> None:
    kc = _configuration()
    _set(kc, {"max_pods": -1, "port": 0, "logging.format": "xml"})
    with pytest.raises(validation.ConfigurationError) as caught:
        validation.validate_kubelet_configuration(kc, features.feature_gate)
    assert len(caught.value.exceptions) == 3
    assert str(caught.value).startswith("[invalid configuration: maxPods")


def test_empty_pod_logs_dir_has_three_faults() -> None:
    kc = _configuration()
    kc.pod_logs_dir = ""
    assert _faults(kc)[0] == _INVALID + "podLogsDir was not specified"


def test_taints() -> None:
    kc = _configuration()
    now = datetime.datetime.now(datetime.UTC)
    kc.register_with_taints = [v1.Taint(key="a b", effect="NoSchedule"), v1.Taint(key="a", time_added=now)]
    faults = _faults(kc)
    assert faults[0].startswith("invalid taint: a b=:NoSchedule: invalid taint key: ")
    assert faults[1:] == [_INVALID + "taint.TimeAdded is not nil"]


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        ({"Nope": True}, "unrecognized feature gate: Nope"),
        ({"NodeLogQuery": False}, "cannot set feature gate NodeLogQuery to false, feature is locked to true"),
    ],
)
def test_gates_that_cannot_be_set(gates: dict[str, bool], message: str) -> None:
    kc = _configuration()
    kc.feature_gates = gates
    assert _faults(kc) == [message]


@pytest.mark.parametrize(
    ("unified", "fail", "single", "messages"),
    [
        (True, True, False, []),
        (False, False, None, []),
        (False, True, None, ["kubelet is configured to not run on a host using cgroup v1. "]),
        (
            False,
            False,
            False,
            ["invalid configuration: singleProcessOOMKill must not be explicitly set to false"],
        ),
        (False, False, True, []),
    ],
)
def test_cgroup_versions(
    monkeypatch: pytest.MonkeyPatch, unified: bool, fail: bool, single: bool | None, messages: list[str]
) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: unified)
    kc = _configuration()
    kc.fail_cgroup_v1, kc.single_process_oom_kill = fail, single
    faults = list(validation_os.validate_kubelet_os_configuration(kc))
    assert len(faults) == len(messages)
    for fault, start in zip(faults, messages, strict=True):
        assert fault.startswith(start)
