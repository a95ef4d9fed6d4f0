"""Define the kubelet's metrics with upstream's names.

Go: pkg/kubelet/metrics/metrics.go
"""

from __future__ import annotations

import datetime
import threading

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector, CollectorRegistry

from pkg import features
from pkg.apimachinery import clock
from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

# The constants below are values of labels.
CONTAINER = "container"
INIT_CONTAINER = "init_container"
EPHEMERAL_CONTAINER = "ephemeral_container"
ALIGN_SCOPE_POD = "pod"
ALIGN_SCOPE_CONTAINER = "container"
ALIGNED_PHYSICAL_CPU = "physical_cpu"
ALIGNED_NUMA_NODE = "numa_node"
ALIGNED_UNCORE_CACHE = "uncore_cache"
RESOURCE_MANAGER_POD = "pod"
RESOURCE_MANAGER_NODE = "node"
RESOURCE_MANAGER_CPU = "cpu"
RESOURCE_MANAGER_MEMORY = "memory"
RESOURCE_MANAGER_EXCLUSIVE_NODE = "node_exclusive"
RESOURCE_MANAGER_SHARED_POD = "pod_shared"
RESOURCE_MANAGER_EXCLUSIVE_POD = "pod_exclusive"

_MIB = 1024**2
_GIB = 1024**3
# fmt: off
_POD_STARTUP_DURATION_BUCKETS = (
    0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700,
    3600,
)
_IMAGE_PULL_DURATION_BUCKETS = (
    1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
)
_POD_STATUS_SYNC_DURATION_BUCKETS = (0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60)
_POD_RESIZE_DURATION_BUCKETS = (
    10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000,
)
# fmt: on
_DRA_DURATION_BUCKETS = metrics.exponential_buckets_range(0.1, 40, 15)
# An image gets the label of the largest of these sizes, in bytes, that it exceeds.
_IMAGE_SIZE_BUCKETS = (
    (100 * _GIB, "GT100GB"),
    (60 * _GIB, "60GB-100GB"),
    (40 * _GIB, "40GB-60GB"),
    (30 * _GIB, "30GB-40GB"),
    (20 * _GIB, "20GB-30GB"),
    (10 * _GIB, "10GB-20GB"),
    (5 * _GIB, "5GB-10GB"),
    (1 * _GIB, "1GB-5GB"),
    (500 * _MIB, "500MB-1GB"),
    (100 * _MIB, "100MB-500MB"),
    (10 * _MIB, "10MB-100MB"),
    (0, "0-10MB"),
)

# ---- The node ----
NODE_NAME = metrics.new_gauge("kubelet_node_name", "Always 1, labelled with the node's name.", ["node"])
CGROUP_VERSION = metrics.new_gauge("kubelet_cgroup_version", "The cgroup version of the host.")
CRI_LOSING_SUPPORT = metrics.new_gauge(
    "kubelet_cri_losing_support", "The Kubernetes version that ends support of this runtime.", ["version"]
)
NODE_STARTUP_PRE_KUBELET_DURATION = metrics.new_gauge(
    "kubelet_node_startup_pre_kubelet_duration_seconds", "Seconds from boot to the start of the kubelet."
)
NODE_STARTUP_PRE_REGISTRATION_DURATION = metrics.new_gauge(
    "kubelet_node_startup_pre_registration_duration_seconds",
    "Seconds from the kubelet's start to its first attempt to register the node.",
)
NODE_STARTUP_REGISTRATION_DURATION = metrics.new_gauge(
    "kubelet_node_startup_registration_duration_seconds", "Seconds that registering the node took."
)
NODE_STARTUP_POST_REGISTRATION_DURATION = metrics.new_gauge(
    "kubelet_node_startup_post_registration_duration_seconds",
    "Seconds from the node's registration until it was ready.",
)
NODE_STARTUP_DURATION = metrics.new_gauge(
    "kubelet_node_startup_duration_seconds", "Seconds from boot until the node was ready."
)
GRACEFUL_SHUTDOWN_START_TIME = metrics.new_gauge(
    "kubelet_graceful_shutdown_start_time_seconds", "Start of the last graceful shutdown, in seconds since 1970."
)
GRACEFUL_SHUTDOWN_END_TIME = metrics.new_gauge(
    "kubelet_graceful_shutdown_end_time_seconds", "End of the last graceful shutdown, in seconds since 1970."
)

# ---- Pods and their workers ----
CONTAINERS_PER_POD_COUNT = metrics.new_histogram(
    "kubelet_containers_per_pod_count",
    "Containers per pod.",
    buckets=metrics.exponential_buckets(1, 2, 5),
)
POD_WORKER_DURATION = metrics.new_histogram(
    "kubelet_pod_worker_duration_seconds",
    "Seconds that syncing one pod took, by operation: create, update or sync.",
    ["operation_type"],
)
POD_WORKER_START_DURATION = metrics.new_histogram(
    "kubelet_pod_worker_start_duration_seconds",
    "Seconds from first seeing a pod to the start of its worker.",
)
POD_START_DURATION = metrics.new_histogram(
    "kubelet_pod_start_duration_seconds",
    "Seconds from first seeing a pod until it was running.",
    buckets=_POD_STARTUP_DURATION_BUCKETS,
)
POD_START_SLI_DURATION = metrics.new_histogram(
    "kubelet_pod_start_sli_duration_seconds",
    "Seconds from a pod's creation until its containers were started, without pulls and init containers.",
    buckets=_POD_STARTUP_DURATION_BUCKETS,
)
POD_START_TOTAL_DURATION = metrics.new_histogram(
    "kubelet_pod_start_total_duration_seconds",
    "Seconds from a pod's creation until its containers were observed as started.",
    buckets=_POD_STARTUP_DURATION_BUCKETS,
)
FIRST_NETWORK_POD_START_SLI_DURATION = metrics.new_gauge(
    "kubelet_first_network_pod_start_sli_duration_seconds",
    "Seconds that the first pod without host network took to start, without pulls and init containers.",
    level=metrics.INTERNAL,
)
POD_STATUS_SYNC_DURATION = metrics.new_histogram(
    "kubelet_pod_status_sync_duration_seconds",
    "Seconds from a change of a pod's status until the API server had it.",
    buckets=_POD_STATUS_SYNC_DURATION_BUCKETS,
)
DESIRED_POD_COUNT = metrics.new_gauge(
    "kubelet_desired_pods", "Pods in the sources; static if not from the API server.", ["static"]
)
ACTIVE_POD_COUNT = metrics.new_gauge("kubelet_active_pods", "Pods that admission takes into account.", ["static"])
MIRROR_POD_COUNT = metrics.new_gauge("kubelet_mirror_pods", "Mirror pods to be created.")
WORKING_POD_COUNT = metrics.new_gauge(
    "kubelet_working_pods",
    "Pods that have a worker, by lifecycle phase and by whether they are desired, orphaned or runtime only.",
    ["lifecycle", "config", "static"],
)
ORPHANED_RUNTIME_POD_TOTAL = metrics.new_counter(
    "kubelet_orphaned_runtime_pods_total", "Pods found in the runtime that had no pod worker."
)
RESTARTED_POD_TOTAL = metrics.new_counter(
    "kubelet_restarted_pods_total", "Pods deleted and created again with the same UID.", ["static"]
)
for _static in ("", "true"):
    RESTARTED_POD_TOTAL.labels(_static)  # Both series are exported from the start.
ADMISSION_REJECTIONS_TOTAL = metrics.new_counter(
    "kubelet_admission_rejections_total", "Pods that were not admitted.", ["reason"]
)
MANAGED_EPHEMERAL_CONTAINERS = metrics.new_gauge(
    "kubelet_managed_ephemeral_containers", "Ephemeral containers in the pods of this kubelet."
)
POD_WATCH_EVENTS_DROPPED_TOTAL = metrics.new_counter(
    "kubelet_pod_watch_events_dropped_total", "Events that watchers of the pods API did not get."
)

# ---- Starts and stops ----
STARTED_PODS_TOTAL = metrics.new_counter("kubelet_started_pods_total", "Pods started.")
STARTED_PODS_ERRORS_TOTAL = metrics.new_counter("kubelet_started_pods_errors_total", "Pods whose start failed.")
STARTED_USER_NAMESPACED_PODS_TOTAL = metrics.new_counter(
    "kubelet_started_user_namespaced_pods_total", "Pods started in a user namespace."
)
STARTED_USER_NAMESPACED_PODS_ERRORS_TOTAL = metrics.new_counter(
    "kubelet_started_user_namespaced_pods_errors_total", "Pods whose start in a user namespace failed."
)
STARTED_CONTAINERS_TOTAL = metrics.new_counter(
    "kubelet_started_containers_total", "Containers started.", ["container_type"]
)
STARTED_CONTAINERS_ERRORS_TOTAL = metrics.new_counter(
    "kubelet_started_containers_errors_total", "Containers whose start failed.", ["container_type", "code"]
)
TERMINATED_CONTAINERS_TOTAL = metrics.new_counter(
    "kubelet_terminated_containers_total",
    "Containers that terminated.",
    ["container_type", "exit_code", "reason"],
)
RUN_POD_SANDBOX_DURATION = metrics.new_histogram(
    "kubelet_run_podsandbox_duration_seconds", "Seconds to create a sandbox.", ["runtime_handler"]
)
RUN_POD_SANDBOX_ERRORS = metrics.new_counter(
    "kubelet_run_podsandbox_errors_total", "Sandboxes that could not be created.", ["runtime_handler"]
)
LIFECYCLE_HANDLER_HTTP_FALLBACKS = metrics.new_counter(
    "kubelet_lifecycle_handler_http_fallbacks_total", "Hooks that succeeded over HTTP after HTTPS had failed."
)
LIFECYCLE_HANDLER_SLEEP_TERMINATED = metrics.new_counter(
    "kubelet_sleep_action_terminated_early_total", "Sleep hooks that were terminated early."
)

# ---- The PLEG ----
PLEG_RELIST_DURATION = metrics.new_histogram("kubelet_pleg_relist_duration_seconds", "Seconds that a relist took.")
PLEG_POD_RELIST_DURATION = metrics.new_histogram(
    "kubelet_pleg_pod_relist_duration_seconds", "Seconds that relisting a single pod took."
)
PLEG_DISCARD_EVENTS = metrics.new_counter(
    "kubelet_pleg_discard_events", "Events discarded because the channel was full."
)
PLEG_RELIST_INTERVAL = metrics.new_histogram(
    "kubelet_pleg_relist_interval_seconds", "Seconds from one relist to the next."
)
PLEG_LAST_SEEN = metrics.new_gauge(
    "kubelet_pleg_last_seen_seconds", "Time of the PLEG's last activity, in seconds since 1970."
)
EVENTED_PLEG_CONN_ERR = metrics.new_counter(
    "kubelet_evented_pleg_connection_error_count", "Errors of the runtime's event stream."
)
EVENTED_PLEG_CONN = metrics.new_counter(
    "kubelet_evented_pleg_connection_success_count", "Successful connections to the runtime's event stream."
)
EVENTED_PLEG_CONN_LATENCY = metrics.new_histogram(
    "kubelet_evented_pleg_connection_latency_seconds", "Seconds from an event to its arrival."
)
RUNNING_POD_COUNT = metrics.new_gauge("kubelet_running_pods", "Pods that have a running sandbox.")
RUNNING_CONTAINER_COUNT = metrics.new_gauge("kubelet_running_containers", "Containers by state.", ["container_state"])

# ---- The runtime and images ----
RUNTIME_OPERATIONS = metrics.new_counter(
    "kubelet_runtime_operations_total", "Calls to the runtime.", ["operation_type"]
)
RUNTIME_OPERATIONS_DURATION = metrics.new_histogram(
    "kubelet_runtime_operations_duration_seconds",
    "Seconds that calls to the runtime took.",
    ["operation_type"],
    metrics.exponential_buckets(0.005, 2.5, 14),
)
RUNTIME_OPERATIONS_ERRORS = metrics.new_counter(
    "kubelet_runtime_operations_errors_total", "Calls to the runtime that failed.", ["operation_type"]
)
CGROUP_MANAGER_DURATION = metrics.new_histogram(
    "kubelet_cgroup_manager_duration_seconds", "Seconds that operations on cgroups took.", ["operation_type"]
)
IMAGE_PULL_DURATION = metrics.new_histogram(
    "kubelet_image_pull_duration_seconds",
    "Seconds to pull an image, by its size.",
    ["image_size_in_bytes"],
    _IMAGE_PULL_DURATION_BUCKETS,
)
IMAGE_GARBAGE_COLLECTED_TOTAL = metrics.new_counter(
    "kubelet_image_garbage_collected_total", "Images removed for lack of space or for age.", ["reason"]
)
IMAGE_VOLUME_REQUESTED_TOTAL = metrics.new_counter(
    "kubelet_image_volume_requested_total",
    "Image volumes requested.",
    level=metrics.BETA,
)
IMAGE_VOLUME_MOUNTED_SUCCEED_TOTAL = metrics.new_counter(
    "kubelet_image_volume_mounted_succeed_total",
    "Image volumes mounted.",
    level=metrics.BETA,
)
IMAGE_VOLUME_MOUNTED_ERRORS_TOTAL = metrics.new_counter(
    "kubelet_image_volume_mounted_errors_total",
    "Image volumes that could not be mounted.",
    level=metrics.BETA,
)

# ---- Probes ----
# DIVERGES (platform): a metric shows how late probes begin.
# Go: pkg/kubelet/prober/worker.go, (*worker).run: the Go kubelet has no such metric; each worker has a goroutine, which
# begins on time.
# Why: here probes share threads, and an administrator with thousands of probes needs to see whether the threads
# suffice.
# Test: kubelet/prober/worker_test.py:test_lateness_is_measured
PROBER_LATENESS = metrics.new_histogram(
    "kubelet_probe_lateness_seconds",
    "Seconds from when a probe was due until it began.",
    ["probe_type"],
)

# ---- Eviction, preemption and volumes ----
EVICTIONS = metrics.new_counter("kubelet_evictions", "Pods evicted.", ["eviction_signal"])
EVICTION_STATS_AGE = metrics.new_histogram(
    "kubelet_eviction_stats_age_seconds", "Age of the statistics on which an eviction was based.", ["eviction_signal"]
)
PREEMPTIONS = metrics.new_counter("kubelet_preemptions", "Pods preempted.", ["preemption_signal"])
ORPHAN_POD_CLEANED_VOLUMES = metrics.new_gauge(
    "kubelet_orphan_pod_cleaned_volumes", "Orphaned pods whose volumes the last sweep cleaned up."
)
ORPHAN_POD_CLEANED_VOLUMES_ERRORS = metrics.new_gauge(
    "kubelet_orphan_pod_cleaned_volumes_errors",
    "Orphaned pods whose volumes the last sweep failed to clean up.",
)

# ---- Devices, the pod resources API and the resource managers ----
DEVICE_PLUGIN_REGISTRATION_COUNT = metrics.new_counter(
    "kubelet_device_plugin_registration_total", "Registrations of device plugins.", ["resource_name"]
)
DEVICE_PLUGIN_ALLOCATION_DURATION = metrics.new_histogram(
    "kubelet_device_plugin_alloc_duration_seconds", "Seconds that the allocation of a device took.", ["resource_name"]
)
POD_RESOURCES_ENDPOINT_REQUESTS_TOTAL_COUNT = metrics.new_counter(
    "kubelet_pod_resources_endpoint_requests_total", "Requests to the pod resources API.", ["server_api_version"]
)
POD_RESOURCES_ENDPOINT_REQUESTS_LIST_COUNT = metrics.new_counter(
    "kubelet_pod_resources_endpoint_requests_list", "List requests.", ["server_api_version"]
)
POD_RESOURCES_ENDPOINT_REQUESTS_GET_ALLOCATABLE_COUNT = metrics.new_counter(
    "kubelet_pod_resources_endpoint_requests_get_allocatable",
    "GetAllocatableResources requests.",
    ["server_api_version"],
)
POD_RESOURCES_ENDPOINT_REQUESTS_GET_COUNT = metrics.new_counter(
    "kubelet_pod_resources_endpoint_requests_get", "Get requests.", ["server_api_version"]
)
POD_RESOURCES_ENDPOINT_ERRORS_LIST_COUNT = metrics.new_counter(
    "kubelet_pod_resources_endpoint_errors_list", "List requests that failed.", ["server_api_version"]
)
POD_RESOURCES_ENDPOINT_ERRORS_GET_ALLOCATABLE_COUNT = metrics.new_counter(
    "kubelet_pod_resources_endpoint_errors_get_allocatable",
    "GetAllocatableResources requests that failed.",
    ["server_api_version"],
)
POD_RESOURCES_ENDPOINT_ERRORS_GET_COUNT = metrics.new_counter(
    "kubelet_pod_resources_endpoint_errors_get", "Get requests that failed.", ["server_api_version"]
)
CPU_MANAGER_PINNING_REQUESTS_TOTAL = metrics.new_counter(
    "kubelet_cpu_manager_pinning_requests_total", "Allocations of exclusive CPUs."
)
CPU_MANAGER_PINNING_ERRORS_TOTAL = metrics.new_counter(
    "kubelet_cpu_manager_pinning_errors_total", "Allocations of exclusive CPUs that failed."
)
CPU_MANAGER_SHARED_POOL_SIZE_MILLI_CORES = metrics.new_gauge(
    "kubelet_cpu_manager_shared_pool_size_millicores", "Size of the shared CPU pool, in millicores."
)
CPU_MANAGER_EXCLUSIVE_CPUS_ALLOCATION_COUNT = metrics.new_gauge(
    "kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs allocated exclusively to containers."
)
CPU_MANAGER_ALLOCATION_PER_NUMA = metrics.new_gauge(
    "kubelet_cpu_manager_allocation_per_numa", "CPUs allocated, by NUMA node.", [ALIGNED_NUMA_NODE]
)
CONTAINER_ALIGNED_COMPUTE_RESOURCES = metrics.new_counter(
    "kubelet_container_aligned_compute_resources_count",
    "Containers whose resources are aligned.",
    ["scope", "boundary"],
)
CONTAINER_ALIGNED_COMPUTE_RESOURCES_FAILURE = metrics.new_counter(
    "kubelet_container_aligned_compute_resources_failure_count",
    "Containers whose resources could not be aligned.",
    ["scope", "boundary"],
)
MEMORY_MANAGER_PINNING_REQUEST_TOTAL = metrics.new_counter(
    "kubelet_memory_manager_pinning_requests_total", "Allocations of pinned memory."
)
MEMORY_MANAGER_PINNING_ERRORS_TOTAL = metrics.new_counter(
    "kubelet_memory_manager_pinning_errors_total", "Allocations of pinned memory that failed."
)
MEMORY_QOS_NODE_MEMORY_MIN_BYTES = metrics.new_gauge(
    "kubelet_memory_qos_node_memory_min_bytes", "memory.min of all guaranteed pods."
)
MEMORY_QOS_NODE_MEMORY_LOW_BYTES = metrics.new_gauge(
    "kubelet_memory_qos_node_memory_low_bytes", "memory.low of all burstable pods."
)
TOPOLOGY_MANAGER_ADMISSION_REQUESTS_TOTAL = metrics.new_counter(
    "kubelet_topology_manager_admission_requests_total", "Admissions that required aligned resources."
)
TOPOLOGY_MANAGER_ADMISSION_ERRORS_TOTAL = metrics.new_counter(
    "kubelet_topology_manager_admission_errors_total", "Admissions that failed for lack of alignment."
)
TOPOLOGY_MANAGER_ADMISSION_DURATION = metrics.new_histogram(
    "kubelet_topology_manager_admission_duration_ms",
    "Milliseconds that an admission took.",
    buckets=metrics.exponential_buckets(0.05, 2, 15),
)
RESOURCE_MANAGER_ALLOCATIONS_TOTAL = metrics.new_counter(
    "resource_manager_allocations_total", "Exclusive allocations.", ["resource_name", "source"]
)
RESOURCE_MANAGER_ALLOCATION_ERRORS_TOTAL = metrics.new_counter(
    "resource_manager_allocation_errors_total",
    "Exclusive allocations that failed.",
    ["resource_name", "source"],
)
RESOURCE_MANAGER_CONTAINER_ASSIGNMENTS = metrics.new_counter(
    "resource_manager_container_assignments",
    "Containers by kind of assignment.",
    ["resource_name", "assignment_type"],
)
DRA_OPERATIONS_DURATION = metrics.new_histogram(
    "dra_operations_duration_seconds",
    "Seconds that preparing or unpreparing all claims of a pod took.",
    ["operation_name", "is_error"],
    _DRA_DURATION_BUCKETS,
)
DRA_GRPC_OPERATIONS_DURATION = metrics.new_histogram(
    "dra_grpc_operations_duration_seconds",
    "Seconds that calls to DRA drivers took.",
    ["driver_name", "method_name", "grpc_status_code"],
    _DRA_DURATION_BUCKETS,
)

# ---- Resizes ----
CONTAINER_REQUESTED_RESIZES = metrics.new_counter(
    "kubelet_container_requested_resizes_total",
    "Requested resizes, by container and resource.",
    ["resource", "requirement", "operation"],
)
POD_RESIZE_DURATION_MILLISECONDS = metrics.new_histogram(
    "kubelet_pod_resize_duration_milliseconds",
    "Milliseconds that a resize took.",
    ["success"],
    _POD_RESIZE_DURATION_BUCKETS,
)
POD_PENDING_RESIZES = metrics.new_gauge("kubelet_pod_pending_resizes", "Pending resizes.", ["reason"])
POD_INFEASIBLE_RESIZES = metrics.new_counter(
    "kubelet_pod_infeasible_resizes_total", "Resizes that this node can never grant.", ["reason_detail"]
)
POD_IN_PROGRESS_RESIZES = metrics.new_gauge("kubelet_pod_in_progress_resizes", "Resizes in progress.")
POD_DEFERRED_ACCEPTED_RESIZES = metrics.new_counter(
    "kubelet_pod_deferred_accepted_resizes_total", "Deferred resizes that were accepted later.", ["retry_trigger"]
)

# These metrics are registered only if their feature gate is on.
_GATED: dict[str, tuple[Collector, ...]] = {
    features.USER_NAMESPACES_SUPPORT: (STARTED_USER_NAMESPACED_PODS_TOTAL, STARTED_USER_NAMESPACED_PODS_ERRORS_TOTAL),
    features.MEMORY_QOS: (MEMORY_QOS_NODE_MEMORY_MIN_BYTES, MEMORY_QOS_NODE_MEMORY_LOW_BYTES),
    # This gate requires GracefulNodeShutdown.
    features.GRACEFUL_NODE_SHUTDOWN_BASED_ON_POD_PRIORITY: (
        GRACEFUL_SHUTDOWN_START_TIME,
        GRACEFUL_SHUTDOWN_END_TIME,
    ),
    features.DYNAMIC_RESOURCE_ALLOCATION: (DRA_OPERATIONS_DURATION, DRA_GRPC_OPERATIONS_DURATION),
    features.POD_LEVEL_RESOURCE_MANAGERS: (
        RESOURCE_MANAGER_ALLOCATIONS_TOTAL,
        RESOURCE_MANAGER_ALLOCATION_ERRORS_TOTAL,
        RESOURCE_MANAGER_CONTAINER_ASSIGNMENTS,
    ),
}

_register_lock = threading.Lock()
_registered = False


def register() -> None:
    """Register the metrics. Later calls do nothing; feature gates must be set before the first call."""
    global _registered
    with _register_lock:
        if _registered:
            return
        _registered = True
    hidden: set[int] = set()
    for gate, gated in _GATED.items():
        if not features.feature_gate.enabled(gate):
            hidden.update(map(id, gated))
    all_metrics = [value for value in globals().values() if isinstance(value, MetricWrapperBase)]
    legacyregistry.must_register(*(metric for metric in all_metrics if id(metric) not in hidden))


def register_collectors(*collectors: Collector) -> None:
    """Register other collectors, which compute their metrics at a scrape."""
    legacyregistry.must_register(*collectors)


def unregister_collectors(*collectors: Collector) -> None:
    """Unregister collectors. Raise KeyError if they are not registered."""
    legacyregistry.unregister(*collectors)


def get_gather() -> CollectorRegistry:
    """Return the registry, for tests."""
    return legacyregistry.DEFAULT_GATHERER


def since_in_seconds(start: datetime.datetime) -> float:
    """Return the seconds since the steady clock showed `start`."""
    return (clock.RealClock().steady() - start).total_seconds()


def set_node_name(name: str) -> None:
    NODE_NAME.labels(name).set(1)


def get_image_size_bucket(size_in_bytes: int) -> str:
    """Return the label for an image of that size, or "N/A" if the size is unknown."""
    if size_in_bytes == 0:
        return "N/A"
    return next(label for bound, label in _IMAGE_SIZE_BUCKETS if size_in_bytes > bound)
