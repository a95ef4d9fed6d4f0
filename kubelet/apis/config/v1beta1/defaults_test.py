"""Test the defaults.

Go: pkg/kubelet/apis/config/v1beta1/defaults_test.go
"""

from __future__ import annotations

from typing import Any

import pytest

from kubelet.apis.config import scheme, v1beta1
from pkg.component_base.featuregate import FeatureGateError


def _defaulted(document: scheme.Document) -> scheme.Document:
    v1beta1.set_defaults_kubelet_configuration(document)
    return scheme.to_versioned(scheme.to_internal(document))


def _value(document: scheme.Document, path: str) -> Any:
    value: Any = document
    for name in path.split("."):
        value = value[name]
    return value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("enableServer", True),
        ("syncFrequency", "1m0s"),
        ("address", "0.0.0.0"),
        ("port", 10250),
        ("readOnlyPort", 0),
        ("authentication.anonymous.enabled", False),
        ("authentication.webhook.cacheTTL", "2m0s"),
        ("authorization.mode", "Webhook"),
        ("oomScoreAdj", -999),
        ("nodeStatusUpdateFrequency", "10s"),
        ("nodeStatusReportFrequency", "5m0s"),
        ("maxPods", 110),
        ("podPidsLimit", -1),
        ("cpuCFSQuotaPeriod", "100ms"),
        ("serializeImagePulls", True),
        ("enforceNodeAllocatable", ["pods"]),
        ("logging.format", "text"),
        ("logging.flushFrequency", "5s"),
        ("memoryThrottlingFactor", 0.9),
        ("containerRuntimeEndpoint", "unix:///run/containerd/containerd.sock"),
        ("imagePullCredentialsVerificationPolicy", "NeverVerifyPreloadedImages"),
        ("failCgroupV1", True),
        ("evictionHard", {}),
    ],
)
def test_empty_configuration(path: str, value: object) -> None:
    assert _value(_defaulted({}), path) == value


@pytest.mark.parametrize(
    ("document", "path", "value"),
    [
        # Zero is a value for fields that are pointers in Go, and means "not set" elsewhere.
        ({"healthzPort": 0}, "healthzPort", 0),
        ({"registryPullQPS": 0}, "registryPullQPS", 0),
        ({"enableServer": False}, "enableServer", False),
        ({"enforceNodeAllocatable": []}, "enforceNodeAllocatable", []),
        ({"resolvConf": ""}, "resolvConf", ""),
        ({"maxPods": 0}, "maxPods", 110),
        ({"syncFrequency": "0s"}, "syncFrequency", "1m0s"),
        ({"syncFrequency": "0"}, "syncFrequency", "1m0s"),
        ({"address": ""}, "address", "0.0.0.0"),
        ({"healthzPort": None}, "healthzPort", 10248),
        ({"authentication": None}, "authentication.webhook.enabled", True),
        ({"maxPods": -1}, "maxPods", -1),
        ({"podPidsLimit": -7}, "podPidsLimit", -1),
        ({"podPidsLimit": 0}, "podPidsLimit", 0),
        ({"podPidsLimit": 1000}, "podPidsLimit", 1000),
        ({"nodeStatusUpdateFrequency": "20s"}, "nodeStatusReportFrequency", "20s"),
        (
            {"nodeStatusUpdateFrequency": "20s", "nodeStatusReportFrequency": "1m"},
            "nodeStatusReportFrequency",
            "1m0s",
        ),
        ({"maxParallelImagePulls": 1}, "serializeImagePulls", True),
        ({"maxParallelImagePulls": 5}, "maxParallelImagePulls", 5),
        ({"maxParallelImagePulls": 5}, "serializeImagePulls", False),
        ({"maxParallelImagePulls": 5, "serializeImagePulls": True}, "serializeImagePulls", True),
        (
            {"featureGates": {"KubeletCrashLoopBackOffMax": True}},
            "crashLoopBackOff",
            {"maxContainerRestartPeriod": "5m0s"},
        ),
        ({"featureGates": {"KubeletCrashLoopBackOffMax": False}}, "crashLoopBackOff", {}),
        (
            {"featureGates": {"KubeletEnsureSecretPulledImages": False}},
            "imagePullCredentialsVerificationPolicy",
            "",
        ),
    ],
)
def test_what_was_set_counts(document: scheme.Document, path: str, value: object) -> None:
    assert _value(_defaulted(document), path) == value


def test_unknown_gate_is_an_error() -> None:
    with pytest.raises(FeatureGateError) as caught:
        v1beta1.set_defaults_kubelet_configuration({"featureGates": {"Nope": True}})
    assert str(caught.value) == "unrecognized feature gate: Nope"


def test_defaults_are_not_shared() -> None:
    first: scheme.Document = {}
    v1beta1.set_defaults_kubelet_configuration(first)
    first["enforceNodeAllocatable"].append("x")
    assert _defaulted({})["enforceNodeAllocatable"] == ["pods"]
