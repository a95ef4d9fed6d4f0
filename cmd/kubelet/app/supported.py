"""Fields of the configuration, and feature gates, that this kubelet reads and does not act on.

A user who sets one is told at start, and by `config explain`.

Go: none
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kubelet.apis.config import scheme, v1beta1
from pkg import features, klog

from .configuration import FEATURE_GATES, Loaded, gate_source, leaves

# Why, and which fields.
NOT_ACTED_ON: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the container runtime ends streams that carry nothing", ("streamingConnectionIdleTimeout",)),
    ("Python measures no contention", ("enableContentionProfiling",)),
    ("JSON is spoken with the API server", ("contentType",)),
    ("FlexVolume plugins are not supported", ("volumePluginDir",)),
    ("all log lines go to one stream, unbuffered", ("logging.options", "logging.flushFrequency")),
    ("the container runtime's network plugin decides", ("hairpinMode", "podCIDR")),
    (
        "the chains that used them went with Kubernetes 1.28",
        ("iptablesMasqueradeBit", "iptablesDropBit"),
    ),
)

# The same, where there is no --kubeconfig.
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

# Gates that Go's kubelet heeds, and that stand here at their default whatever is set.
GATES_NOT_ACTED_ON: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the resource managers give to containers alone", (features.POD_LEVEL_RESOURCE_MANAGERS,)),
    ("projected volumes hold no certificates of pods", (features.POD_CERTIFICATE_REQUEST,)),
    ("the kubelet does not serve the pods API", (features.PODS_API,)),
    ("claims of pod groups are not known", (features.DRA_WORKLOAD_RESOURCE_CLAIMS,)),
    ("the status does not show the digests of image volumes", (features.IMAGE_VOLUME_WITH_DIGEST,)),
    ("the runtime's lists are asked for as a whole", (features.CRI_LIST_STREAMING,)),
    (
        "a restart of the kubelet leaves the status of containers as it is",
        (features.CHANGE_CONTAINER_STATUS_ON_KUBELET_RESTART,),
    ),
    (
        "the server's certificates are read again when their files change",
        (features.RELOAD_KUBELET_CLIENT_CA_FILE, features.RELOAD_KUBELET_SERVER_CERTIFICATE_FILE),
    ),
    (
        "the client's certificate authority is read again when its file changes",
        (features.CLIENTS_ALLOW_CA_ROTATION,),
    ),
    (
        "the use of local storage is counted file by file",
        (features.LOCAL_STORAGE_CAPACITY_ISOLATION_FS_QUOTA_MONITORING,),
    ),
    ("JSON is spoken with the API server", (features.CLIENTS_ALLOW_CBOR, features.CLIENTS_PREFER_CBOR)),
    (
        "the client has its own caches",
        (features.CLIENTS_ALLOW_TLS_CACHE_GC, features.INFORMER_RESOURCE_VERSION),
    ),
    ("each log line names what it is about", (features.CONTEXTUAL_LOGGING,)),
    ("logging has no options of that stage", (features.LOGGING_BETA_OPTIONS,)),
    ("histograms have the buckets of their definition", (features.NATIVE_HISTOGRAMS,)),
)


def check_supported(loaded: Loaded) -> None:
    """Log each field and gate that was set in vain."""
    for path, source, reason in set_in_vain(loaded):
        klog.warning_s("Configuration field has no effect", field=path, source=source, reason=reason)


def set_in_vain(loaded: Loaded) -> Iterator[tuple[str, str, str]]:
    """The path of each field and gate, what set it, and why that has no effect."""
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
            # What was switched off asks for nothing.
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
