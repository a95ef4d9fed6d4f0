"""Set the defaults of fields that the user did not set.

Go: pkg/kubelet/apis/config/v1beta1/defaults.go
"""

from __future__ import annotations

from typing import Any

from kubelet.apis.config.scheme import Document
from pkg import features
from pkg.component_base.cli.flag import parse_duration
from pkg.component_base.featuregate import FeatureGate

KUBELET_PORT = 10250
KUBELET_READ_ONLY_PORT = 10255
DEFAULT_IPTABLES_MASQUERADE_BIT = 14
DEFAULT_IPTABLES_DROP_BIT = 15
DEFAULT_VOLUME_PLUGIN_DIR = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"
DEFAULT_POD_LOGS_DIR = "/var/log/pods"
DEFAULT_MEMORY_THROTTLING_FACTOR = 0.9
MAX_CONTAINER_BACK_OFF = "5m0s"

# These defaults replace only missing values: zero, false and empty are valid values of these fields.
_IF_ABSENT: dict[str, Any] = {
    "enableServer": True,
    "authentication.anonymous.enabled": False,
    "authentication.webhook.enabled": True,
    "registryPullQPS": 5,
    "eventRecordQPS": 50,
    "enableDebuggingHandlers": True,
    "healthzPort": 10248,
    "oomScoreAdj": -999,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "cgroupsPerQOS": True,
    "resolvConf": "/etc/resolv.conf",
    "cpuCFSQuota": True,
    "cpuCFSQuotaPeriod": "100ms",
    "nodeStatusMaxImages": 50,
    "kubeAPIQPS": 50,
    "mergeDefaultEvictionSettings": False,
    "enableControllerAttachDetach": True,
    "makeIPTablesUtilChains": True,
    "iptablesMasqueradeBit": DEFAULT_IPTABLES_MASQUERADE_BIT,
    "iptablesDropBit": DEFAULT_IPTABLES_DROP_BIT,
    "failSwapOn": True,
    "containerLogMaxFiles": 5,
    "containerLogMaxWorkers": 1,
    "containerLogMonitorInterval": "10s",
    "enforceNodeAllocatable": ["pods"],
    "enableSystemLogHandler": True,
    "enableSystemLogQuery": False,
    "enableProfilingHandler": True,
    "enableDebugFlagsHandler": True,
    "seccompDefault": False,
    "failCgroupV1": True,
    "memoryThrottlingFactor": DEFAULT_MEMORY_THROTTLING_FACTOR,
    "registerNode": True,
    "localStorageCapacityIsolation": True,
}

# These defaults replace missing values and zero values.
_IF_ZERO: dict[str, Any] = {
    "syncFrequency": "1m0s",
    "fileCheckFrequency": "20s",
    "httpCheckFrequency": "20s",
    "address": "0.0.0.0",
    "port": KUBELET_PORT,
    "authentication.webhook.cacheTTL": "2m0s",
    "authorization.mode": "Webhook",
    "authorization.webhook.cacheAuthorizedTTL": "5m0s",
    "authorization.webhook.cacheUnauthorizedTTL": "30s",
    "registryBurst": 10,
    "eventBurst": 100,
    "healthzBindAddress": "127.0.0.1",
    "streamingConnectionIdleTimeout": "4h0m0s",
    "nodeStatusUpdateFrequency": "10s",
    "nodeLeaseDurationSeconds": 40,
    "imageMinimumGCAge": "2m0s",
    "volumeStatsAggPeriod": "1m0s",
    "cgroupDriver": "cgroupfs",
    "cpuManagerPolicy": "none",
    "cpuManagerReconcilePeriod": "10s",
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
    "runtimeRequestTimeout": "2m0s",
    "hairpinMode": "promiscuous-bridge",
    "maxPods": 110,
    "maxOpenFiles": 1000000,
    "contentType": "application/vnd.kubernetes.protobuf",
    "kubeAPIBurst": 100,
    "evictionPressureTransitionPeriod": "5m0s",
    "containerLogMaxSize": "10Mi",
    "configMapAndSecretChangeDetectionStrategy": "Watch",
    "volumePluginDir": DEFAULT_VOLUME_PLUGIN_DIR,
    "logging.format": "text",
    "logging.flushFrequency": "5s",
    "memoryReservationPolicy": "None",
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "podLogsDir": DEFAULT_POD_LOGS_DIR,
}


def set_defaults_kubelet_configuration(document: Document) -> None:
    """Set the defaults in the document. Raise FeatureGateError if it sets gates that cannot be set."""
    gate = features.feature_gate.deep_copy()
    gate.set_from_map(document.get("featureGates") or {})

    # The next three defaults depend on the user's values, so they come before the tables.
    if _is_zero(document.get("nodeStatusReportFrequency")):
        update = document.get("nodeStatusUpdateFrequency")
        document["nodeStatusReportFrequency"] = "5m0s" if _is_zero(update) else update
    _set_image_pull_defaults(document)
    # Any negative number means "as many as the node has".
    if (pids := document.get("podPidsLimit")) is None or pids < 0:
        document["podPidsLimit"] = -1

    for path, value in _IF_ABSENT.items():
        _set_if(document, path, value, lambda old: old is None)
    for path, value in _IF_ZERO.items():
        _set_if(document, path, value, _is_zero)
    _set_gated_defaults(document, gate)


def _set_image_pull_defaults(document: Document) -> None:
    """Serialize image pulls, unless the limit allows several at once."""
    if document.get("serializeImagePulls") is None:
        document["serializeImagePulls"] = (document.get("maxParallelImagePulls") or 0) < 2


def _set_gated_defaults(document: Document, gate: FeatureGate) -> None:
    if gate.enabled(features.KUBELET_CRASH_LOOP_BACK_OFF_MAX):
        _set_if(
            document,
            "crashLoopBackOff.maxContainerRestartPeriod",
            MAX_CONTAINER_BACK_OFF,
            lambda old: old is None,
        )
    if gate.enabled(features.KUBELET_ENSURE_SECRET_PULLED_IMAGES):
        _set_if(document, "imagePullCredentialsVerificationPolicy", "NeverVerifyPreloadedImages", _is_zero)


def _set_if(document: Document, path: str, value: Any, wanted: Any) -> None:
    *parents, name = path.split(".")
    owner = document
    for parent in parents:
        if owner.get(parent) is None:
            owner[parent] = {}
        owner = owner[parent]
    if wanted(owner.get(name)):
        # Documents must not share a list.
        owner[name] = list(value) if isinstance(value, list) else value


def _is_zero(value: Any) -> bool:
    """Report whether the value is the zero value of its type in Go; the value must be scalar."""
    if isinstance(value, str) and value[:1].isdigit():
        try:
            return parse_duration(value) == 0
        except ValueError:
            return False
    return not value
