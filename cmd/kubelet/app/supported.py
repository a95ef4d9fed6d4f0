"""List the configuration fields and feature gates that this kubelet reads but does not act on.

The kubelet warns at start about each one that is set, and `config explain` shows it.

Go: none
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kubelet.apis.config import scheme, v1beta1
from pkg import features, klog

from .configuration import FEATURE_GATES, Loaded, gate_source, leaves

# Each entry holds a reason and the fields that have no effect for this reason.
NOT_ACTED_ON: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the container runtime closes idle streams", ("streamingConnectionIdleTimeout",)),
    ("Python cannot profile lock contention", ("enableContentionProfiling",)),
    ("the kubelet always uses JSON with the API server", ("contentType",)),
    ("FlexVolume plugins are not supported", ("volumePluginDir",)),
    ("all log lines go to one stream, unbuffered", ("logging.options", "logging.flushFrequency")),
    ("the container runtime's network plugin decides", ("hairpinMode", "podCIDR")),
    (
        "the iptables chains that used them were removed in Kubernetes 1.28",
        ("iptablesMasqueradeBit", "iptablesDropBit"),
    ),
)

# These fields have no effect without --kubeconfig.
NOT_ACTED_ON_STANDALONE: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "there is no API server",
        (
            "rotateCertificates",
            "serverTLSBootstrap",
            "eventRecordQPS",
            "eventBurst",
            "nodeStatusReportFrequency",
            "nodeLeaseDurationSeconds",
            "kubeAPIQPS",
            "kubeAPIBurst",
            "registerNode",
            "configMapAndSecretChangeDetectionStrategy",
        ),
    ),
)

# The Go kubelet acts on these gates. This kubelet behaves according to their defaults, whatever is set.
GATES_NOT_ACTED_ON: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the resource managers allocate to containers only", (features.POD_LEVEL_RESOURCE_MANAGERS,)),
    ("projected volumes do not support pod certificates", (features.POD_CERTIFICATE_REQUEST,)),
    ("the kubelet does not serve the pods API", (features.PODS_API,)),
    ("resource claims of pod groups are not supported", (features.DRA_WORKLOAD_RESOURCE_CLAIMS,)),
    ("the status does not show the digests of image volumes", (features.IMAGE_VOLUME_WITH_DIGEST,)),
    ("the kubelet requests each list from the runtime as a whole", (features.CRI_LIST_STREAMING,)),
    (
        "a restart of the kubelet never changes the status of containers",
        (features.CHANGE_CONTAINER_STATUS_ON_KUBELET_RESTART,),
    ),
    (
        "the server always reloads its certificates when their files change",
        (features.RELOAD_KUBELET_CLIENT_CA_FILE, features.RELOAD_KUBELET_SERVER_CERTIFICATE_FILE),
    ),
    (
        "the client always reloads its certificate authority when the file changes",
        (features.CLIENTS_ALLOW_CA_ROTATION,),
    ),
    (
        "the kubelet always measures local storage file by file",
        (features.LOCAL_STORAGE_CAPACITY_ISOLATION_FS_QUOTA_MONITORING,),
    ),
    ("the kubelet always uses JSON with the API server", (features.CLIENTS_ALLOW_CBOR, features.CLIENTS_PREFER_CBOR)),
    (
        "the client has its own caches",
        (features.CLIENTS_ALLOW_TLS_CACHE_GC, features.INFORMER_RESOURCE_VERSION),
    ),
    ("log lines always name the object that they are about", (features.CONTEXTUAL_LOGGING,)),
    ("the kubelet has no logging options of that stage", (features.LOGGING_BETA_OPTIONS,)),
    ("histograms always use the buckets of their definition", (features.NATIVE_HISTOGRAMS,)),
)


def check_supported(loaded: Loaded) -> None:
    """Log each field and gate that is set but has no effect."""
    for path, source, reason in set_in_vain(loaded):
        klog.warning_s("Configuration field has no effect", field=path, source=source, reason=reason)


def set_in_vain(loaded: Loaded) -> Iterator[tuple[str, str, str]]:
    """Yield the path of each field and gate that is set without effect, its source, and the reason."""
    document = scheme.to_versioned(loaded.kubelet_configuration)
    for path, reason in _fields_set_in_vain(loaded, document):
        yield path, loaded.sources.of(path), reason
    specs = features.feature_gate.get_all()
    for reason, names in GATES_NOT_ACTED_ON:
        for name in names:
            if features.feature_gate.enabled(name) != specs[name].default:
                yield f"{FEATURE_GATES}.{name}", gate_source(loaded, name), reason


def _fields_set_in_vain(loaded: Loaded, document: scheme.Document) -> Iterator[tuple[str, str]]:
    defaults: scheme.Document = {}
    v1beta1.set_defaults_kubelet_configuration(defaults)
    standalone = () if loaded.kubelet_flags.kube_config else NOT_ACTED_ON_STANDALONE
    for reason, prefixes in (*NOT_ACTED_ON, *standalone):
        for path, value in _leaves(document, prefixes):
            # A false or empty value disables a feature, so such a value needs no warning.
            if value and loaded.sources.was_set(path) and value != _value(defaults, path):
                yield path, reason


def _leaves(document: scheme.Document, paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for path in paths:
        yield from leaves(_value(document, path), path)


def _value(document: scheme.Document, path: str) -> Any:
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
