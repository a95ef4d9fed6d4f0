"""Define the kubelet's flags: those that concern one node only, and those that set a configuration field.

Go: cmd/kubelet/app/options/options.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kubelet import apis as kubeletapis
from kubelet.apis import config as kubeletconfig
from kubelet.apis.config import scheme, v1beta1, validation
from kubelet.apis.deviceplugin import v1beta1 as deviceplugin
from kubelet.kubeletconfig import ContainerRuntimeOptions
from pkg import features
from pkg.apimachinery.api import resource
from pkg.component_base.cli import flag as cliflag
from pkg.util import taints as utiltaints

if TYPE_CHECKING:
    from pkg.apiserver.server import flagz

DEFAULT_ROOT_DIR = "/var/lib/kubelet"


@dataclass(slots=True)
class KubeletFlags:
    """Hold the settings that nodes must not share, or that cannot change during a node's lifetime."""

    kube_config: str = ""
    bootstrap_kubeconfig: str = ""
    # This name replaces the host's name.
    hostname_override: str = ""
    node_ip: str = ""
    container_runtime_options: ContainerRuntimeOptions = field(default_factory=ContainerRuntimeOptions)
    cert_directory: str = "/var/lib/kubelet/pki"
    cloud_provider: str = ""
    root_directory: str = DEFAULT_ROOT_DIR
    kubelet_config_file: str = ""
    kubelet_dropin_config_directory: str = ""
    experimental_mounter_path: str = ""
    # If set, hard eviction thresholds are not subtracted from the resources that pods may use.
    experimental_node_allocatable_ignore_eviction_threshold: bool = False
    node_labels: dict[str, str] = field(default_factory=dict)
    lock_file_path: str = ""
    # This flag needs lock_file_path: the kubelet exits as soon as another process opens that file.
    exit_on_lock_contention: bool = False
    # The age is in seconds.
    minimum_gc_age: float = 0.0
    max_per_pod_container_count: int = 1
    # A negative number means no limit.
    max_container_count: int = -1
    seccomp_default: bool = False
    device_plugin_directory: str = deviceplugin.DEVICE_PLUGIN_PATH
    await_device_plugins: bool = False
    pull_critical_images_first: bool = False
    read_rotated_logs: bool = False

    def add_flags(self, fs: cliflag.FlagSet) -> None:
        """Add the flags that set these fields."""
        for name, path, make_value, usage, deprecated in _KUBELET_FLAGS:
            fs.add(name, make_value(cliflag.Ref(self, path)), usage, deprecated=deprecated)


@dataclass(slots=True)
class KubeletServer:
    """Hold everything that is needed to start a kubelet."""

    kubelet_flags: KubeletFlags
    kubelet_configuration: kubeletconfig.KubeletConfiguration
    # The page /flagz shows these flags. None means that there was no command line.
    flagz: flagz.Reader | None = None


def validate_kubelet_flags(flags: KubeletFlags) -> None:
    """Check the labels of the node. Raise ValueError."""
    unknown = sorted(
        key for key in flags.node_labels if _is_kubernetes_label(key) and not kubeletapis.is_kubelet_label(key)
    )
    if unknown:
        raise ValueError(
            "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: "
            f"[{' '.join(unknown)}]\n"
            "--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix "
            f"({', '.join(kubeletapis.kubelet_label_namespaces())}) or be in the specifically allowed set "
            f"({', '.join(kubeletapis.kubelet_labels())})"
        )
    if flags.node_labels:
        _validate_label_syntax(flags.node_labels)


def _validate_label_syntax(labels: dict[str, str]) -> None:
    from pkg.apimachinery.util import validation as utilvalidation

    faults = [
        f"'{text}' - {', '.join(errs)}"
        for key, value in labels.items()
        for text, errs in (
            (key, utilvalidation.is_qualified_name(key)),
            (value, utilvalidation.is_valid_label_value(value)),
        )
        if errs
    ]
    if faults:
        raise ValueError(f"invalid node labels: {'; '.join(faults)}")


def _is_kubernetes_label(key: str) -> bool:
    namespace = key.partition("/")[0] if "/" in key else ""
    return any(namespace == domain or namespace.endswith(f".{domain}") for domain in ("kubernetes.io", "k8s.io"))


def new_kubelet_configuration() -> kubeletconfig.KubeletConfiguration:
    """Return the configuration of a kubelet that is started without a configuration file."""
    document: scheme.Document = {}
    v1beta1.set_defaults_kubelet_configuration(document)
    kc = scheme.to_internal(document)
    apply_legacy_defaults(kc)
    return kc


def apply_legacy_defaults(kc: kubeletconfig.KubeletConfiguration) -> None:
    """Permit every request to the kubelet's server, as the defaults did before configuration files existed.

    These defaults apply only without --config.
    """
    kc.authentication.anonymous.enabled = True
    kc.authentication.webhook.enabled = False
    kc.authorization.mode = kubeletconfig.KUBELET_AUTHORIZATION_MODE_ALWAYS_ALLOW
    kc.read_only_port = v1beta1.KUBELET_READ_ONLY_PORT


LEGACY_DEFAULTS = (
    "authentication.anonymous.enabled",
    "authentication.webhook.enabled",
    "authorization.mode",
    "readOnlyPort",
)


def validate_kubelet_server(server: KubeletServer) -> None:
    """Check the configuration and the flags. Raise ValueError or ConfigurationError."""
    validation.validate_kubelet_configuration(server.kubelet_configuration, features.feature_gate)
    validate_kubelet_flags(server.kubelet_flags)


def add_kubelet_config_flags(fs: cliflag.FlagSet, kc: kubeletconfig.KubeletConfiguration) -> None:
    """Add the flags that set configuration fields. Most are deprecated in favor of the configuration file."""
    for name, path, make_value, usage in CONFIG_FLAGS:
        deprecated = ""
        if name not in _NOT_DEPRECATED:
            deprecated = f"set {scheme.wire_path(path)} in the file given with --config instead"
        shorthand = "v" if name == "v" else ""
        fs.add(name, make_value(cliflag.Ref(kc, path)), usage, shorthand=shorthand, deprecated=deprecated)


def _vmodule_value(ref: cliflag.Ref) -> cliflag.Value:
    def parse(text: str) -> list[kubeletconfig.VModuleItem]:
        items = []
        for pair in filter(None, text.split(",")):
            pattern, _, level = pair.partition("=")
            if not pattern or not level:
                raise ValueError(f'"{pair}" does not have the pattern=N format')
            verbosity = cliflag.parse_int(level, 0, 2**31 - 1, "ParseUint")
            items.append(kubeletconfig.VModuleItem(file_pattern=pattern, verbosity=verbosity))
        return items

    def fmt(items: list[kubeletconfig.VModuleItem]) -> str:
        return ",".join(f"{item.file_pattern}={item.verbosity}" for item in items)

    return cliflag.Collection(ref, "pattern=N,...", parse, fmt)


def _quantity_value(ref: cliflag.Ref) -> cliflag.Value:
    return cliflag.Scalar(ref, "quantity", resource.parse_quantity)


def _taints_value(ref: cliflag.Ref) -> cliflag.Value:
    def parse(text: str) -> Any:
        return utiltaints.parse_taints(text.split(",")) if text else []

    return cliflag.Scalar(
        ref, "[]v1.Taint", parse, lambda taints: ",".join(utiltaints.format_taint(taint) for taint in taints)
    )


def _reserved_memory_value(ref: cliflag.Ref) -> cliflag.Value:
    def parse(text: str) -> list[kubeletconfig.MemoryReservation]:
        return [_parse_memory_reservation(part) for part in text.split(";")] if text else []

    def fmt(reservations: list[kubeletconfig.MemoryReservation]) -> str:
        return ";".join(f"{item.numa_node}:{cliflag.format_map(item.limits)}" for item in reservations)

    return cliflag.Collection(ref, "reserved-memory", parse, fmt)


def _parse_memory_reservation(text: str) -> kubeletconfig.MemoryReservation:
    node, sep, rest = text.partition(":")
    if not sep or not node.isdecimal():
        raise ValueError(
            "the reserved memory has incorrect format, expected "
            f"numaNodeID:type=quantity[,type=quantity...], got {text}"
        )
    limits = {}
    for pair in rest.split(","):
        name, sep, quantity = pair.partition("=")
        if not sep:
            raise ValueError(f"the reserved limit has incorrect value, expected type=quantity, got {pair}")
        if name != "memory" and not name.startswith("hugepages-"):
            raise ValueError(f'memory type conversion error, unknown type: "{name}"')
        limits[name] = resource.parse_quantity(quantity)
    return kubeletconfig.MemoryReservation(numa_node=int(node), limits=limits)


def _langle_map_value(ref: cliflag.Ref) -> cliflag.Value:
    return cliflag.map_value(ref, "<")


def _unsplit_map_value(ref: cliflag.Ref) -> cliflag.Value:
    return cliflag.map_value(ref, split=False)


_MakeValue = Callable[[cliflag.Ref], cliflag.Value]
_STRING, _BOOL = cliflag.string_value, cliflag.bool_value
_INT32, _INT64 = cliflag.int32_value, cliflag.int64_value
_DURATION, _IP = cliflag.duration_value, cliflag.ip_value
_STRINGS, _MAP = cliflag.string_slice_value, cliflag.map_value

_USE_EVICTION = "use --eviction-hard or --eviction-soft instead"

# Each entry holds the flag, the field of KubeletFlags, the kind of value, the help text and the reason for deprecation.
_KUBELET_FLAGS: tuple[tuple[str, str, _MakeValue, str, str], ...] = (
    (
        "runtime-cgroups",
        "container_runtime_options.runtime_cgroups",
        _STRING,
        "Absolute name of the cgroup in which the container runtime runs.",
        "",
    ),
    (
        "image-credential-provider-config",
        "container_runtime_options.image_credential_provider_config_path",
        _STRING,
        "File, or directory of files, that configures the image credential providers.",
        "",
    ),
    (
        "image-credential-provider-bin-dir",
        "container_runtime_options.image_credential_provider_bin_dir",
        _STRING,
        "Directory of the image credential providers' programs.",
        "",
    ),
    (
        "config",
        "kubelet_config_file",
        _STRING,
        "Configuration file (KubeletConfiguration, YAML or JSON). Flags override what it says.",
        "",
    ),
    (
        "config-dir",
        "kubelet_dropin_config_directory",
        _STRING,
        "Directory of drop-in files that override the configuration file. Files named *.conf, in it "
        "and below it, "
        "are applied in lexical order; others are ignored.",
        "",
    ),
    (
        "kubeconfig",
        "kube_config",
        _STRING,
        "File with the API server's address and the credentials. Without it the kubelet runs in standalone mode.",
        "",
    ),
    (
        "bootstrap-kubeconfig",
        "bootstrap_kubeconfig",
        _STRING,
        "File to use if the file of --kubeconfig does not exist. With it the kubelet requests a client certificate "
        "from the API server, stores it in --cert-dir, and writes the file of --kubeconfig.",
        "",
    ),
    ("hostname-override", "hostname_override", _STRING, "Name of the node. Unset: the host's name.", ""),
    (
        "node-ip",
        "node_ip",
        _STRING,
        "IP address of the node, or an IPv4 and an IPv6 address separated by a comma. Unset: the host's default "
        "IPv4 address, "
        "or its IPv6 address if it has no IPv4 address; '::' prefers IPv6.",
        "",
    ),
    (
        "cert-dir",
        "cert_directory",
        _STRING,
        "Directory of certificates. Not used for the server if --tls-cert-file and --tls-private-key-file are set.",
        "",
    ),
    (
        "cloud-provider",
        "cloud_provider",
        _STRING,
        "'external' if the controller of a cloud provider initializes the node; otherwise empty.",
        "",
    ),
    ("root-dir", "root_directory", _STRING, "Directory in which the kubelet keeps its files.", ""),
    (
        "seccomp-default",
        "seccomp_default",
        _BOOL,
        "Use the seccomp profile RuntimeDefault for containers that specify none.",
        "",
    ),
    (
        "node-labels",
        "node_labels",
        cliflag.configuration_map_value,
        "Labels for the node when it registers: key=value,...",
        "",
    ),
    (
        "lock-file",
        "lock_file_path",
        _STRING,
        "File to lock, in addition to the one in the root directory.",
        "",
    ),
    (
        "exit-on-lock-contention",
        "exit_on_lock_contention",
        _BOOL,
        "Exit when another process opens the file named by --lock-file.",
        "",
    ),
    (
        # DIVERGES (preference: --await-device-plugins): a pod waits up to five minutes for its device plugin.
        # Go: pkg/kubelet/cm/devicemanager/manager.go, (*ManagerImpl).devicesToAllocate: in the Go kubelet the pod
        # fails.
        # Why: after a restart of the node the plugins, which may be pods themselves, start later than other pods.
        # Test: kubelet/cm/devicemanager/manager_test.py:test_plugins_are_awaited_only_if_that_is_wanted
        "await-device-plugins",
        "await_device_plugins",
        _BOOL,
        "Let a pod wait up to five minutes for a device plugin that has stopped or has not yet registered after a "
        "restart. Otherwise the pod fails, as with the Go kubelet, which does not have this flag.",
        "",
    ),
    (
        # With one common directory, two kubelets on a machine would remove each other's sockets.
        "device-plugin-directory",
        "device_plugin_directory",
        _STRING,
        "Directory for the sockets of the device plugins and the kubelet, and for the checkpoint of devices. The Go "
        "kubelet does not have this flag, and always uses the default.",
        "",
    ),
    (
        "pull-critical-images-first",
        "pull_critical_images_first",
        _BOOL,
        "Pull the images of critical pods before other images in the queue. Otherwise images are pulled in the order "
        "of the requests, as with the Go kubelet, which does not have this flag.",
        "",
    ),
    (
        "read-rotated-logs",
        "read_rotated_logs",
        _BOOL,
        "Include rotated log files when a client reads a container's log. Otherwise the log is only the newest file, "
        "as with the Go kubelet, which does not have this flag.",
        "",
    ),
    (
        "minimum-container-ttl-duration",
        "minimum_gc_age",
        _DURATION,
        "Minimum age of a dead container before it is removed.",
        _USE_EVICTION,
    ),
    (
        "maximum-dead-containers-per-container",
        "max_per_pod_container_count",
        _INT32,
        "Number of dead instances to keep of each container.",
        _USE_EVICTION,
    ),
    (
        "maximum-dead-containers",
        "max_container_count",
        _INT32,
        "Number of dead containers to keep on the node; negative for no limit.",
        _USE_EVICTION,
    ),
    (
        "experimental-mounter-path",
        "experimental_mounter_path",
        _STRING,
        "Program to use instead of mount.",
        "use CSI instead",
    ),
    (
        "experimental-allocatable-ignore-eviction",
        "experimental_node_allocatable_ignore_eviction_threshold",
        _BOOL,
        "Do not subtract the hard eviction thresholds from what pods may use.",
        "it will be removed",
    ),
)

_NOT_DEPRECATED = frozenset({"v", "vmodule", "log-flush-frequency", "provider-id", "fail-cgroupv1"})

# Each entry holds the flag, the field of KubeletConfiguration, the kind of value and the help text.
CONFIG_FLAGS: tuple[tuple[str, str, _MakeValue, str], ...] = (
    ("enable-server", "enable_server", _BOOL, "Serve the kubelet's API."),
    ("fail-swap-on", "fail_swap_on", _BOOL, "Refuse to start if swap is on."),
    ("pod-manifest-path", "static_pod_path", _STRING, "Directory of static pod files, or one such file."),
    ("sync-frequency", "sync_frequency", _DURATION, "Longest time between two syncs of a pod."),
    (
        "file-check-frequency",
        "file_check_frequency",
        _DURATION,
        "Time between two checks of the static pod files.",
    ),
    (
        "http-check-frequency",
        "http_check_frequency",
        _DURATION,
        "Time between two requests to --manifest-url.",
    ),
    ("manifest-url", "static_pod_url", _STRING, "URL of a manifest with more static pods."),
    (
        "manifest-url-header",
        "static_pod_url_header",
        cliflag.multimap_value,
        "HTTP headers for --manifest-url: name:value,... The flag may be repeated.",
    ),
    ("address", "address", _IP, "Address to serve on; 0.0.0.0 or :: for all."),
    ("port", "port", _INT32, "Port to serve on."),
    ("read-only-port", "read_only_port", _INT32, "Port to serve on without authentication; 0 for none."),
    ("fail-cgroupv1", "fail_cgroup_v1", _BOOL, "Refuse to start on a host with cgroup v1."),
    (
        "container-runtime-endpoint",
        "container_runtime_endpoint",
        _STRING,
        "Socket of the container runtime: unix:///path/to/runtime.sock",
    ),
    (
        "image-service-endpoint",
        "image_service_endpoint",
        _STRING,
        "Socket of the image service, if it is not the container runtime's.",
    ),
    (
        "anonymous-auth",
        "authentication.anonymous.enabled",
        _BOOL,
        "Serve requests without credentials, as user system:anonymous.",
    ),
    (
        "authentication-token-webhook",
        "authentication.webhook.enabled",
        _BOOL,
        "Let the API server check bearer tokens.",
    ),
    (
        "authentication-token-webhook-cache-ttl",
        "authentication.webhook.cache_ttl",
        _DURATION,
        "How long the kubelet caches the result of a token check.",
    ),
    (
        "client-ca-file",
        "authentication.x509.client_ca_file",
        _STRING,
        "File of the authorities whose client certificates are accepted.",
    ),
    (
        "authorization-mode",
        "authorization.mode",
        _STRING,
        "Mode of authorization: AlwaysAllow permits every request, Webhook asks the API server.",
    ),
    (
        "authorization-webhook-cache-authorized-ttl",
        "authorization.webhook.cache_authorized_ttl",
        _DURATION,
        "How long the kubelet caches that the API server allowed a request.",
    ),
    (
        "authorization-webhook-cache-unauthorized-ttl",
        "authorization.webhook.cache_unauthorized_ttl",
        _DURATION,
        "How long the kubelet caches that the API server denied a request.",
    ),
    ("tls-cert-file", "tls_cert_file", _STRING, "Certificate to serve with, with intermediates after it."),
    ("tls-private-key-file", "tls_private_key_file", _STRING, "Key that belongs to --tls-cert-file."),
    (
        "rotate-server-certificates",
        "server_tls_bootstrap",
        _BOOL,
        "Ask the API server for the server's certificate and renew it.",
    ),
    ("tls-cipher-suites", "tls_cipher_suites", _STRINGS, "Cipher suites of the server, by their IANA names."),
    (
        "tls-min-version",
        "tls_min_version",
        _STRING,
        "Lowest TLS version: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13.",
    ),
    ("rotate-certificates", "rotate_certificates", _BOOL, "Renew the client certificate before it expires."),
    ("registry-qps", "registry_pull_qps", _INT32, "Image pulls per second; 0 for no limit."),
    ("registry-burst", "registry_burst", _INT32, "Image pulls allowed in a burst, with --registry-qps."),
    ("event-qps", "event_record_qps", _INT32, "Events per second; 0 for no limit."),
    ("event-burst", "event_burst", _INT32, "Events allowed in a burst, with --event-qps."),
    (
        "enable-debugging-handlers",
        "enable_debugging_handlers",
        _BOOL,
        "Serve logs, exec, attach and port-forward.",
    ),
    ("contention-profiling", "enable_contention_profiling", _BOOL, "Profile lock contention."),
    ("healthz-port", "healthz_port", _INT32, "Port of /healthz; 0 for none."),
    ("healthz-bind-address", "healthz_bind_address", _IP, "Address of /healthz."),
    ("oom-score-adj", "oom_score_adj", _INT32, "OOM score adjustment of the kubelet, -1000 to 1000."),
    ("cluster-domain", "cluster_domain", _STRING, "Domain of the cluster, searched by containers."),
    ("volume-plugin-dir", "volume_plugin_dir", _STRING, "Directory of FlexVolume plugins."),
    ("cluster-dns", "cluster_dns", _STRINGS, "DNS servers of pods with dnsPolicy ClusterFirst."),
    (
        "streaming-connection-idle-timeout",
        "streaming_connection_idle_timeout",
        _DURATION,
        "How long a stream may be idle before it is closed; 0 for no limit.",
    ),
    (
        "node-status-update-frequency",
        "node_status_update_frequency",
        _DURATION,
        "Time between two computations of the node's status.",
    ),
    (
        "minimum-image-ttl-duration",
        "image_minimum_gc_age",
        _DURATION,
        "Minimum age of an unused image before it is removed.",
    ),
    (
        "image-gc-high-threshold",
        "image_gc_high_threshold_percent",
        _INT32,
        "Percent of the disk in use above which images are removed; 100 for never.",
    ),
    (
        "image-gc-low-threshold",
        "image_gc_low_threshold_percent",
        _INT32,
        "Percent of the disk in use down to which images are removed.",
    ),
    (
        "volume-stats-agg-period",
        "volume_stats_agg_period",
        _DURATION,
        "Time between two measurements of volumes; negative for none.",
    ),
    (
        "feature-gates",
        "feature_gates",
        cliflag.map_bool_value,
        "Feature gates: Name=true,... Those that can be set:\n" + "\n".join(features.feature_gate.known_features()),
    ),
    ("kubelet-cgroups", "kubelet_cgroups", _STRING, "Absolute name of the cgroup in which the kubelet runs."),
    (
        "system-cgroups",
        "system_cgroups",
        _STRING,
        "Absolute name of the cgroup for processes that are in no other cgroup.",
    ),
    ("provider-id", "provider_id", _STRING, "The cloud provider's name for this machine."),
    ("cgroups-per-qos", "cgroups_per_qos", _BOOL, "Create a cgroup for each QoS class and each pod."),
    ("cgroup-driver", "cgroup_driver", _STRING, "Cgroup driver: cgroupfs or systemd."),
    ("cgroup-root", "cgroup_root", _STRING, "Parent of the pods' cgroups."),
    ("cpu-manager-policy", "cpu_manager_policy", _STRING, "CPU manager: none or static."),
    (
        "cpu-manager-policy-options",
        "cpu_manager_policy_options",
        _unsplit_map_value,
        "Option of the CPU manager: key=value. The flag may be repeated.",
    ),
    (
        "cpu-manager-reconcile-period",
        "cpu_manager_reconcile_period",
        _DURATION,
        "Time between two checks of the containers' CPUs.",
    ),
    ("qos-reserved", "qos_reserved", _MAP, "Share of a resource reserved for its QoS class: memory=50%"),
    (
        "topology-manager-policy",
        "topology_manager_policy",
        _STRING,
        "Topology manager: none, best-effort, restricted or single-numa-node.",
    ),
    (
        "runtime-request-timeout",
        "runtime_request_timeout",
        _DURATION,
        "Timeout of calls to the container runtime, except pull, logs, exec and attach.",
    ),
    ("hairpin-mode", "hairpin_mode", _STRING, "Hairpin mode: promiscuous-bridge, hairpin-veth or none."),
    ("max-pods", "max_pods", _INT32, "Maximum number of pods on this node."),
    ("pod-cidr", "pod_cidr", _STRING, "Addresses for pods, in standalone mode."),
    ("pod-max-pids", "pod_pids_limit", _INT64, "Maximum number of processes in a pod; -1 for the node's limit."),
    ("resolv-conf", "resolver_config", _STRING, "The resolv.conf that pods inherit; empty for none."),
    ("runonce", "run_once", _BOOL, "Rejected: this mode no longer exists."),
    ("cpu-cfs-quota", "cpu_cfs_quota", _BOOL, "Enforce CPU limits."),
    ("cpu-cfs-quota-period", "cpu_cfs_quota_period", _DURATION, "Period over which CPU limits are enforced."),
    (
        "enable-controller-attach-detach",
        "enable_controller_attach_detach",
        _BOOL,
        "Leave attaching and detaching volumes to the controller.",
    ),
    (
        "make-iptables-util-chains",
        "make_iptables_util_chains",
        _BOOL,
        "Create the iptables chains that kube-proxy relies on.",
    ),
    (
        "container-log-max-size",
        "container_log_max_size",
        _STRING,
        "Size at which a container's log is rotated.",
    ),
    (
        "container-log-max-files",
        "container_log_max_files",
        _INT32,
        "Log files to keep per container, at least 2.",
    ),
    (
        "allowed-unsafe-sysctls",
        "allowed_unsafe_sysctls",
        _STRINGS,
        "Unsafe sysctls that pods may set; a trailing * matches any suffix.",
    ),
    (
        "node-status-max-images",
        "node_status_max_images",
        _INT32,
        "Images to list in the node's status; -1 for all.",
    ),
    (
        "kernel-memcg-notification",
        "kernel_memcg_notification",
        _BOOL,
        "Let the kernel report when a memory eviction threshold is crossed.",
    ),
    (
        "local-storage-capacity-isolation",
        "local_storage_capacity_isolation",
        _BOOL,
        "Enforce requests and limits of ephemeral storage.",
    ),
    ("max-open-files", "max_open_files", _INT64, "Maximum number of files that the kubelet may have open."),
    ("kube-api-content-type", "content_type", _STRING, "Content type of requests to the API server."),
    ("kube-api-qps", "kube_api_qps", _INT32, "Requests to the API server per second."),
    ("kube-api-burst", "kube_api_burst", _INT32, "Requests to the API server allowed in a burst."),
    ("serialize-image-pulls", "serialize_image_pulls", _BOOL, "Pull one image at a time."),
    (
        "eviction-hard",
        "eviction_hard",
        _langle_map_value,
        "Thresholds at which pods are evicted immediately: memory.available<1Gi,...",
    ),
    (
        "eviction-soft",
        "eviction_soft",
        _langle_map_value,
        "Thresholds at which pods are evicted after a grace period: memory.available<1.5Gi,...",
    ),
    (
        "eviction-soft-grace-period",
        "eviction_soft_grace_period",
        _MAP,
        "How long a soft threshold must hold: memory.available=1m30s,...",
    ),
    (
        "eviction-pressure-transition-period",
        "eviction_pressure_transition_period",
        _DURATION,
        "How long a pressure condition stays after the pressure is gone.",
    ),
    (
        "eviction-max-pod-grace-period",
        "eviction_max_pod_grace_period",
        _INT32,
        "Longest grace period, in seconds, of a pod that a soft threshold evicts; negative for the pod's own.",
    ),
    (
        "eviction-minimum-reclaim",
        "eviction_minimum_reclaim",
        _MAP,
        "Minimum amount to reclaim in an eviction: imagefs.available=2Gi,...",
    ),
    ("pods-per-core", "pods_per_core", _INT32, "Maximum number of pods per core; 0 for no limit."),
    (
        "protect-kernel-defaults",
        "protect_kernel_defaults",
        _BOOL,
        "Refuse to start if kernel settings differ from the kubelet's requirements, instead of changing them.",
    ),
    ("reserved-cpus", "reserved_system_cpus", _STRING, "CPUs reserved for the system: 0-3,8"),
    ("topology-manager-scope", "topology_manager_scope", _STRING, "Scope of the topology manager: container or pod."),
    (
        "topology-manager-policy-options",
        "topology_manager_policy_options",
        _MAP,
        "Options of the topology manager: key=value,...",
    ),
    (
        "system-reserved",
        "system_reserved",
        _MAP,
        "Resources reserved for the system: cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000",
    ),
    (
        "kube-reserved",
        "kube_reserved",
        _MAP,
        "Resources reserved for Kubernetes daemons: cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000",
    ),
    (
        "enforce-node-allocatable",
        "enforce_node_allocatable",
        _STRINGS,
        "What to enforce: none, pods, system-reserved, system-reserved-compressible, kube-reserved, "
        "kube-reserved-compressible.",
    ),
    (
        "system-reserved-cgroup",
        "system_reserved_cgroup",
        _STRING,
        "Absolute name of the cgroup in which --system-reserved is enforced.",
    ),
    (
        "kube-reserved-cgroup",
        "kube_reserved_cgroup",
        _STRING,
        "Absolute name of the cgroup in which --kube-reserved is enforced.",
    ),
    ("logging-format", "logging.format", _STRING, "Format of the log: text or json."),
    (
        "log-flush-frequency",
        "logging.flush_frequency",
        _DURATION,
        "Longest time before buffered log lines are written.",
    ),
    ("v", "logging.verbosity", cliflag.level_value, "Log verbosity."),
    ("vmodule", "logging.vmodule", _vmodule_value, "Log verbosity for files that match:  pattern=N,..."),
    (
        "log-text-split-stream",
        "logging.options.text.split_stream",
        _BOOL,
        "Write errors to stderr and the rest to stdout, in text format.",
    ),
    (
        "log-text-info-buffer-size",
        "logging.options.text.info_buffer_size",
        _quantity_value,
        "Size of the buffer for lines that are not errors, in text format with split streams.",
    ),
    (
        "log-json-split-stream",
        "logging.options.json.split_stream",
        _BOOL,
        "Write errors to stderr and the rest to stdout, in JSON format.",
    ),
    (
        "log-json-info-buffer-size",
        "logging.options.json.info_buffer_size",
        _quantity_value,
        "Size of the buffer for lines that are not errors, in JSON format with split streams.",
    ),
    ("memory-manager-policy", "memory_manager_policy", _STRING, "Memory manager: None or Static."),
    (
        "reserved-memory",
        "reserved_memory",
        _reserved_memory_value,
        "Memory reserved for the system: node:type=quantity,...;... for example 0:memory=1Gi,hugepages-1M=2Gi",
    ),
    ("register-node", "register_node", _BOOL, "Register the node with the API server."),
    (
        "register-with-taints",
        "register_with_taints",
        _taints_value,
        "Taints of the node when it registers: key=value:effect,...",
    ),
)
