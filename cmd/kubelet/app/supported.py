"""Fields of the configuration that this kubelet reads and does not act on.

A user who sets one is told at start.

Go: no counterpart
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kubelet.apis.config import scheme, v1beta1
from pkg import klog

from .configuration import Loaded, leaves

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


def check_supported(loaded: Loaded) -> None:
    """Log each field that was set in vain."""
    document = scheme.to_versioned(loaded.kubelet_configuration)
    for path, reason in _set_in_vain(loaded, document):
        source = loaded.sources.of(path)
        klog.warning_s("Configuration field has no effect", field=path, source=source, reason=reason)


def _set_in_vain(loaded: Loaded, document: scheme.Document) -> Iterator[tuple[str, str]]:
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
