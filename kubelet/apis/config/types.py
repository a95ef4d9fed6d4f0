"""Define the configuration as the kubelet reads it, with defaults set and every field present.

Durations are floats in seconds; only the versioned document has them as text ("1m30s", see
`kubelet.apis.config.scheme`). Each field declares its wire name.

Go: pkg/kubelet/apis/config/types.go
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import field

from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity

Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
UInt32 = Annotated[int, "uint32"]
Duration = Annotated[float, "duration"]
# The document has a duration as in Go or, in older files, a number of nanoseconds.
TimeOrMetaDuration = Annotated[float, "duration-or-nanoseconds"]

HAIRPIN_VETH = "hairpin-veth"
PROMISCUOUS_BRIDGE = "promiscuous-bridge"
HAIRPIN_NONE = "none"

RESTRICTED_TOPOLOGY_MANAGER_POLICY = "restricted"
BEST_EFFORT_TOPOLOGY_MANAGER_POLICY = "best-effort"
NONE_TOPOLOGY_MANAGER_POLICY = "none"
SINGLE_NUMA_NODE_TOPOLOGY_MANAGER_POLICY = "single-numa-node"

CONTAINER_TOPOLOGY_MANAGER_SCOPE = "container"
POD_TOPOLOGY_MANAGER_SCOPE = "pod"

KUBELET_AUTHORIZATION_MODE_ALWAYS_ALLOW = "AlwaysAllow"
KUBELET_AUTHORIZATION_MODE_WEBHOOK = "Webhook"

# These strategies detect changes of secrets and config maps.
GET_CHANGE_DETECTION_STRATEGY = "Get"
TTL_CACHE_CHANGE_DETECTION_STRATEGY = "Cache"
WATCH_CHANGE_DETECTION_STRATEGY = "Watch"

NEVER_VERIFY = "NeverVerify"
NEVER_VERIFY_PRELOADED_IMAGES = "NeverVerifyPreloadedImages"
NEVER_VERIFY_ALLOWLISTED_IMAGES = "NeverVerifyAllowlistedImages"
ALWAYS_VERIFY = "AlwaysVerify"

NONE_MEMORY_RESERVATION_POLICY = "None"
TIERED_RESERVATION_MEMORY_RESERVATION_POLICY = "TieredReservation"


class KubeletWebhookAuthorization(msgspec.Struct, kw_only=True):
    """Describe how long the kubelet caches the API server's authorization decisions."""

    cache_authorized_ttl: Duration = field(default=0.0, name="cacheAuthorizedTTL")
    cache_unauthorized_ttl: Duration = field(default=0.0, name="cacheUnauthorizedTTL")


class KubeletAuthorization(msgspec.Struct, kw_only=True):
    """Describe how the kubelet's server authorizes requests."""

    mode: str = field(default="", name="mode")
    webhook: KubeletWebhookAuthorization = field(default_factory=KubeletWebhookAuthorization, name="webhook")


class KubeletX509Authentication(msgspec.Struct, kw_only=True):
    """Describe which client certificates the kubelet's server accepts."""

    client_ca_file: str = field(default="", name="clientCAFile")


class KubeletWebhookAuthentication(msgspec.Struct, kw_only=True):
    """Describe bearer token authentication through the API server."""

    enabled: bool = field(default=False, name="enabled")
    cache_ttl: Duration = field(default=0.0, name="cacheTTL")


class KubeletAnonymousAuthentication(msgspec.Struct, kw_only=True):
    """Describe whether a request without credentials counts as system:anonymous."""

    enabled: bool = field(default=False, name="enabled")


class KubeletAuthentication(msgspec.Struct, kw_only=True):
    """Describe how clients of the kubelet's server authenticate."""

    x509: KubeletX509Authentication = field(default_factory=KubeletX509Authentication, name="x509")
    webhook: KubeletWebhookAuthentication = field(default_factory=KubeletWebhookAuthentication, name="webhook")
    anonymous: KubeletAnonymousAuthentication = field(default_factory=KubeletAnonymousAuthentication, name="anonymous")


class MemoryReservation(msgspec.Struct, kw_only=True):
    """Describe the memory of a NUMA node that pods cannot use."""

    numa_node: Int32 = field(default=0, name="numaNode")
    limits: dict[str, Quantity] = field(default_factory=dict, name="limits")


class ShutdownGracePeriodByPodPriority(msgspec.Struct, kw_only=True):
    """Describe the time, in seconds, that pods of at least this priority get at a node shutdown."""

    priority: Int32 = field(default=0, name="priority")
    shutdown_grace_period_seconds: Int64 = field(default=0, name="shutdownGracePeriodSeconds")


class MemorySwapConfiguration(msgspec.Struct, kw_only=True):
    """Describe how containers may use swap: "", "NoSwap" or "LimitedSwap"."""

    swap_behavior: str = field(default="", name="swapBehavior")


class CrashLoopBackOffConfig(msgspec.Struct, kw_only=True):
    """Describe the maximum backoff between restarts of a crashing container."""

    max_container_restart_period: Duration | None = field(default=None, name="maxContainerRestartPeriod")


class UserNamespaces(msgspec.Struct, kw_only=True):
    """Describe the size of the id range of each pod with a user namespace."""

    ids_per_pod: Int64 | None = field(default=None, name="idsPerPod")


class VModuleItem(msgspec.Struct, kw_only=True):
    """Describe the log verbosity of the source files that match a pattern."""

    file_pattern: str = field(default="", name="filePattern")
    verbosity: UInt32 = field(default=0, name="verbosity")


class OutputRoutingOptions(msgspec.Struct, kw_only=True):
    """Describe the output of a log format: one stream, or errors to stderr and the rest to stdout."""

    split_stream: bool = field(default=False, name="splitStream")
    info_buffer_size: Quantity = field(default_factory=lambda: Quantity(0), name="infoBufferSize")


class FormatOptions(msgspec.Struct, kw_only=True):
    """Hold the options of each log format."""

    text: OutputRoutingOptions = field(default_factory=OutputRoutingOptions, name="text")
    json: OutputRoutingOptions = field(default_factory=OutputRoutingOptions, name="json")


class LoggingConfiguration(msgspec.Struct, kw_only=True):
    """Describe logging.

    Go: k8s.io/component-base/logs/api/v1/types.go
    """

    format: str = field(default="", name="format")
    flush_frequency: TimeOrMetaDuration = field(default=0.0, name="flushFrequency")
    verbosity: UInt32 = field(default=0, name="verbosity")
    vmodule: list[VModuleItem] = field(default_factory=list, name="vmodule")
    options: FormatOptions = field(default_factory=FormatOptions, name="options")


class TracingConfiguration(msgspec.Struct, kw_only=True):
    """Describe the export and the sampling of spans.

    Go: k8s.io/component-base/tracing/api/v1/types.go
    """

    endpoint: str | None = field(default=None, name="endpoint")
    sampling_rate_per_million: Int32 | None = field(default=None, name="samplingRatePerMillion")


class KubeletConfiguration(msgspec.Struct, kw_only=True):
    """Hold the settings that a cluster's nodes may share. `KubeletFlags` holds those of a single node."""

    # These fields describe the pod sources.
    enable_server: bool = field(default=False, name="enableServer")
    static_pod_path: str = field(default="", name="staticPodPath")
    pod_logs_dir: str = field(default="", name="podLogsDir")
    sync_frequency: Duration = field(default=0.0, name="syncFrequency")
    file_check_frequency: Duration = field(default=0.0, name="fileCheckFrequency")
    http_check_frequency: Duration = field(default=0.0, name="httpCheckFrequency")
    static_pod_url: str = field(default="", name="staticPodURL")
    # The header may contain credentials, so it must not be logged.
    static_pod_url_header: dict[str, list[str]] = field(default_factory=dict, name="staticPodURLHeader")

    # These fields describe the kubelet's own server.
    address: str = field(default="", name="address")
    port: Int32 = field(default=0, name="port")
    read_only_port: Int32 = field(default=0, name="readOnlyPort")
    tls_cert_file: str = field(default="", name="tlsCertFile")
    tls_private_key_file: str = field(default="", name="tlsPrivateKeyFile")
    tls_cipher_suites: list[str] = field(default_factory=list, name="tlsCipherSuites")
    tls_curve_preferences: list[Int32] = field(default_factory=list, name="tlsCurvePreferences")
    tls_min_version: str = field(default="", name="tlsMinVersion")
    rotate_certificates: bool = field(default=False, name="rotateCertificates")
    server_tls_bootstrap: bool = field(default=False, name="serverTLSBootstrap")
    authentication: KubeletAuthentication = field(default_factory=KubeletAuthentication, name="authentication")
    authorization: KubeletAuthorization = field(default_factory=KubeletAuthorization, name="authorization")

    # These fields limit image pulls and events. A rate of 0 means no limit for pulls.
    registry_pull_qps: Int32 = field(default=0, name="registryPullQPS")
    registry_burst: Int32 = field(default=0, name="registryBurst")
    image_pull_credentials_verification_policy: str = field(default="", name="imagePullCredentialsVerificationPolicy")
    preloaded_images_verification_allowlist: list[str] = field(
        default_factory=list, name="preloadedImagesVerificationAllowlist"
    )
    event_record_qps: Int32 = field(default=0, name="eventRecordQPS")
    event_burst: Int32 = field(default=0, name="eventBurst")

    enable_debugging_handlers: bool = field(default=False, name="enableDebuggingHandlers")
    enable_contention_profiling: bool = field(default=False, name="enableContentionProfiling")
    healthz_port: Int32 = field(default=0, name="healthzPort")
    healthz_bind_address: str = field(default="", name="healthzBindAddress")
    oom_score_adj: Int32 = field(default=0, name="oomScoreAdj")
    cluster_domain: str = field(default="", name="clusterDomain")
    cluster_dns: list[str] = field(default_factory=list, name="clusterDNS")
    # 0 means no limit.
    streaming_connection_idle_timeout: Duration = field(default=0.0, name="streamingConnectionIdleTimeout")

    # These fields control updates of the node object.
    node_status_update_frequency: Duration = field(default=0.0, name="nodeStatusUpdateFrequency")
    node_status_report_frequency: Duration = field(default=0.0, name="nodeStatusReportFrequency")
    node_lease_duration_seconds: Int32 = field(default=0, name="nodeLeaseDurationSeconds")

    # These fields control image garbage collection. A maximum age of 0 means no limit.
    image_minimum_gc_age: Duration = field(default=0.0, name="imageMinimumGCAge")
    image_maximum_gc_age: Duration = field(default=0.0, name="imageMaximumGCAge")
    image_gc_high_threshold_percent: Int32 = field(default=0, name="imageGCHighThresholdPercent")
    image_gc_low_threshold_percent: Int32 = field(default=0, name="imageGCLowThresholdPercent")
    # With a negative value, the kubelet does not measure volumes.
    volume_stats_agg_period: Duration = field(default=0.0, name="volumeStatsAggPeriod")

    # These fields control cgroups and the resource managers.
    kubelet_cgroups: str = field(default="", name="kubeletCgroups")
    system_cgroups: str = field(default="", name="systemCgroups")
    cgroup_root: str = field(default="", name="cgroupRoot")
    cgroups_per_qos: bool = field(default=False, name="cgroupsPerQOS")
    cgroup_driver: str = field(default="", name="cgroupDriver")
    # With None, the cgroup version decides.
    single_process_oom_kill: bool | None = field(default=None, name="singleProcessOOMKill")
    cpu_manager_policy: str = field(default="", name="cpuManagerPolicy")
    cpu_manager_policy_options: dict[str, str] = field(default_factory=dict, name="cpuManagerPolicyOptions")
    cpu_manager_reconcile_period: Duration = field(default=0.0, name="cpuManagerReconcilePeriod")
    memory_manager_policy: str = field(default="", name="memoryManagerPolicy")
    topology_manager_policy: str = field(default="", name="topologyManagerPolicy")
    topology_manager_scope: str = field(default="", name="topologyManagerScope")
    topology_manager_policy_options: dict[str, str] = field(default_factory=dict, name="topologyManagerPolicyOptions")
    qos_reserved: dict[str, str] = field(default_factory=dict, name="qosReserved")

    # These fields apply to all pods.
    runtime_request_timeout: Duration = field(default=0.0, name="runtimeRequestTimeout")
    hairpin_mode: str = field(default="", name="hairpinMode")
    max_pods: Int32 = field(default=0, name="maxPods")
    # The field has an effect only in standalone mode; otherwise the API server assigns the CIDR.
    pod_cidr: str = field(default="", name="podCIDR")
    # -1 means as many as the node can allocate.
    pod_pids_limit: Int64 = field(default=0, name="podPidsLimit")
    # With "", pods do not get the host's resolv.conf.
    resolver_config: str = field(default="", name="resolvConf")
    run_once: bool = field(default=False, name="runOnce")
    cpu_cfs_quota: bool = field(default=False, name="cpuCFSQuota")
    cpu_cfs_quota_period: Duration = field(default=0.0, name="cpuCFSQuotaPeriod")
    # -1 means all images.
    node_status_max_images: Int32 = field(default=0, name="nodeStatusMaxImages")
    max_open_files: Int64 = field(default=0, name="maxOpenFiles")

    # These fields configure the client of the API server.
    content_type: str = field(default="", name="contentType")
    kube_api_qps: Int32 = field(default=0, name="kubeAPIQPS")
    kube_api_burst: Int32 = field(default=0, name="kubeAPIBurst")

    serialize_image_pulls: bool = field(default=False, name="serializeImagePulls")
    # None means no limit. The value has an effect only if pulls are not serialized.
    max_parallel_image_pulls: Int32 | None = field(default=None, name="maxParallelImagePulls")

    # These fields control eviction. They map signal names to quantities or percentages, and to durations for grace
    # periods.
    eviction_hard: dict[str, str] = field(default_factory=dict, name="evictionHard")
    eviction_soft: dict[str, str] = field(default_factory=dict, name="evictionSoft")
    eviction_soft_grace_period: dict[str, str] = field(default_factory=dict, name="evictionSoftGracePeriod")
    eviction_pressure_transition_period: Duration = field(default=0.0, name="evictionPressureTransitionPeriod")
    eviction_max_pod_grace_period: Int32 = field(default=0, name="evictionMaxPodGracePeriod")
    eviction_minimum_reclaim: dict[str, str] = field(default_factory=dict, name="evictionMinimumReclaim")
    merge_default_eviction_settings: bool = field(default=False, name="mergeDefaultEvictionSettings")

    # 0 means no limit for each core.
    pods_per_core: Int32 = field(default=0, name="podsPerCore")
    enable_controller_attach_detach: bool = field(default=False, name="enableControllerAttachDetach")
    protect_kernel_defaults: bool = field(default=False, name="protectKernelDefaults")
    make_iptables_util_chains: bool = field(default=False, name="makeIPTablesUtilChains")
    iptables_masquerade_bit: Int32 = field(default=0, name="iptablesMasqueradeBit")
    iptables_drop_bit: Int32 = field(default=0, name="iptablesDropBit")
    feature_gates: dict[str, bool] = field(default_factory=dict, name="featureGates")
    fail_swap_on: bool = field(default=False, name="failSwapOn")
    memory_swap: MemorySwapConfiguration = field(default_factory=MemorySwapConfiguration, name="memorySwap")

    # These fields control container logs. The size is a quantity.
    container_log_max_size: str = field(default="", name="containerLogMaxSize")
    container_log_max_files: Int32 = field(default=0, name="containerLogMaxFiles")
    container_log_max_workers: Int32 = field(default=0, name="containerLogMaxWorkers")
    container_log_monitor_interval: Duration = field(default=0.0, name="containerLogMonitorInterval")

    config_map_and_secret_change_detection_strategy: str = field(
        default="", name="configMapAndSecretChangeDetectionStrategy"
    )

    # These fields define node allocatable.
    system_reserved: dict[str, str] = field(default_factory=dict, name="systemReserved")
    kube_reserved: dict[str, str] = field(default_factory=dict, name="kubeReserved")
    # This field replaces the CPUs in the two fields above.
    reserved_system_cpus: str = field(default="", name="reservedSystemCPUs")
    show_hidden_metrics_for_version: str = field(default="", name="showHiddenMetricsForVersion")
    system_reserved_cgroup: str = field(default="", name="systemReservedCgroup")
    kube_reserved_cgroup: str = field(default="", name="kubeReservedCgroup")
    enforce_node_allocatable: list[str] = field(default_factory=list, name="enforceNodeAllocatable")

    allowed_unsafe_sysctls: list[str] = field(default_factory=list, name="allowedUnsafeSysctls")
    volume_plugin_dir: str = field(default="", name="volumePluginDir")
    provider_id: str = field(default="", name="providerID")
    kernel_memcg_notification: bool = field(default=False, name="kernelMemcgNotification")
    logging: LoggingConfiguration = field(default_factory=LoggingConfiguration, name="logging")
    enable_system_log_handler: bool = field(default=False, name="enableSystemLogHandler")
    enable_system_log_query: bool = field(default=False, name="enableSystemLogQuery")

    # These fields control the node shutdown.
    shutdown_grace_period: Duration = field(default=0.0, name="shutdownGracePeriod")
    shutdown_grace_period_critical_pods: Duration = field(default=0.0, name="shutdownGracePeriodCriticalPods")
    shutdown_grace_period_by_pod_priority: list[ShutdownGracePeriodByPodPriority] = field(
        default_factory=list, name="shutdownGracePeriodByPodPriority"
    )

    crash_loop_back_off: CrashLoopBackOffConfig = field(default_factory=CrashLoopBackOffConfig, name="crashLoopBackOff")
    reserved_memory: list[MemoryReservation] = field(default_factory=list, name="reservedMemory")
    enable_profiling_handler: bool = field(default=False, name="enableProfilingHandler")
    enable_debug_flags_handler: bool = field(default=False, name="enableDebugFlagsHandler")
    seccomp_default: bool = field(default=False, name="seccompDefault")
    memory_throttling_factor: float | None = field(default=None, name="memoryThrottlingFactor")
    memory_reservation_policy: str = field(default="", name="memoryReservationPolicy")
    register_with_taints: list[v1.Taint] = field(default_factory=list, name="registerWithTaints")
    register_node: bool = field(default=False, name="registerNode")
    tracing: TracingConfiguration | None = field(default=None, name="tracing")
    local_storage_capacity_isolation: bool = field(default=False, name="localStorageCapacityIsolation")
    container_runtime_endpoint: str = field(default="", name="containerRuntimeEndpoint")
    # With "", the runtime's endpoint serves images too.
    image_service_endpoint: str = field(default="", name="imageServiceEndpoint")
    fail_cgroup_v1: bool = field(default=False, name="failCgroupV1")
    user_namespaces: UserNamespaces | None = field(default=None, name="userNamespaces")


class ExecEnvVar(msgspec.Struct, kw_only=True):
    """Describe an environment variable for a credential provider."""

    name: str = ""
    value: str = ""


class ServiceAccountTokenAttributes(msgspec.Struct, kw_only=True, rename="camel"):
    """Describe the service account token that a credential provider gets, and the sharing of its responses."""

    service_account_token_audience: str = ""
    cache_type: str = ""
    require_service_account: bool | None = None
    required_service_account_annotation_keys: list[str] = field(default_factory=list)
    optional_service_account_annotation_keys: list[str] = field(default_factory=list)


class CredentialProvider(msgspec.Struct, kw_only=True, rename="camel"):
    """Describe a program that provides the credentials for matching images."""

    name: str = ""
    match_images: list[str] = field(default_factory=list)
    default_cache_duration: Duration | None = None
    api_version: str = ""
    args: list[str] = field(default_factory=list)
    env: list[ExecEnvVar] = field(default_factory=list)
    token_attributes: ServiceAccountTokenAttributes | None = None


class CredentialProviderConfig(msgspec.Struct, kw_only=True):
    """Hold all credential providers of the node."""

    providers: list[CredentialProvider] = field(default_factory=list)
