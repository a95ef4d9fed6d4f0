"""Test the conversion between documents and structs.

Go: pkg/kubelet/apis/config/scheme/scheme_test.go
"""

from __future__ import annotations

import pytest

from kubelet.apis import config as kubeletconfig
from kubelet.apis.config import scheme

_HEAD = b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("foo: 1", ['unknown field "foo"']),
        ("MaxPods: 1", ['unknown field "MaxPods"']),
        ("maxPods: 1\nmaxPods: 2", ['duplicate field "maxPods" in line 4']),
        ("logging: {verbosity: 1, verbosity: 2}", ['duplicate field "verbosity" in line 3']),
        ("maxPods: ten", ['maxPods: expected int32, got string "ten"']),
        ("maxPods: '10'", ['maxPods: expected int32, got string "10"']),
        ("maxPods: 1.5", ["maxPods: expected int32, got number 1.5"]),
        ("maxPods: true", ["maxPods: expected int32, got boolean true"]),
        ("port: 2147483648", ["port: 2147483648 is out of range for int32"]),
        ("logging: {verbosity: -1}", ["logging.verbosity: -1 is out of range for uint32"]),
        ("enableServer: 1", ["enableServer: expected true or false, got number 1"]),
        ("clusterDomain: 1", ["clusterDomain: expected a string, got number 1"]),
        ("clusterDNS: 10.0.0.1", ['clusterDNS: expected a list, got string "10.0.0.1"']),
        ("clusterDNS: [10.0.0.1, 5]", ["clusterDNS[1]: expected a string, got number 5"]),
        ("evictionHard: [a]", ["evictionHard: expected an object, got a list"]),
        (
            "evictionHard: {memory.available: 5}",
            ["evictionHard.memory.available: expected a string, got number 5"],
        ),
        ("authentication: 1", ["authentication: expected an object, got number 1"]),
        ("authentication: {webhook: {ttl: 1}}", ['unknown field "authentication.webhook.ttl"']),
        ("syncFrequency: 60", ['syncFrequency: expected a duration such as "1m30s", got number 60']),
        ("syncFrequency: 1 minute", ['syncFrequency: time: unknown unit " minute" in duration "1 minute"']),
        (
            "registerWithTaints: [{key: a, value: b, effect: NoSchedule}, {key: c, effekt: x}]",
            ['unknown field "registerWithTaints[1].effekt"'],
        ),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: 1Qi}}]",
            ["reservedMemory[0].limits.memory: quantities must match the regular expression "],
        ),
        ("foo: 1\nmaxPods: a\nport: b", ['unknown field "foo"', "maxPods: expected", "port: expected"]),
    ],
)
def test_every_fault_is_named(text: str, faults: list[str]) -> None:
    with pytest.raises(scheme.StrictDecodingError) as caught:
        scheme.decode(_HEAD + text.encode())
    assert len(caught.value.faults) == len(faults), caught.value.faults
    for fault, start in zip(caught.value.faults, faults, strict=True):
        assert fault.startswith(start)


def test_lenient_decoding() -> None:
    text = b"maxPods: 1\nfoo: {a: 1}\nregisterWithTaints: [{key: c, effekt: x}]\nmaxPods: 2\nevictionHard: {any: key}"
    found = scheme.decode_leniently(_HEAD + text)
    assert found.document == {"maxPods": 2, "registerWithTaints": [{"key": "c"}], "evictionHard": {"any": "key"}}
    assert found.duplicates == ['duplicate field "maxPods" in line 6']
    assert found.unknown == ['unknown field "foo"', 'unknown field "registerWithTaints[0].effekt"']
    with pytest.raises(scheme.StrictDecodingError, match="maxPods: expected int32"):
        scheme.decode_leniently(_HEAD + b"maxPods: a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: KubeletConfiguration", "Object 'apiVersion' is missing"),
        ("apiVersion: kubelet.config.k8s.io/v1beta1", "Object 'kind' is missing"),
        ("apiVersion: v1\nkind: Pod", 'no kind "Pod" is registered for version "v1"'),
        ("apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration", "no kind"),
        ("- a", "expected an object of kind KubeletConfiguration, got a list"),
        ("", "expected an object of kind KubeletConfiguration, got nothing"),
        ("a: [", "yaml: "),
        ("a: 1\n---\nb: 2", "the file holds several documents, expected one"),
        ("\tb: 2", "yaml: "),
        ("\x00", "yaml: "),
    ],
)
def test_what_is_not_a_configuration(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        scheme.decode(text.encode())
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        (b"syncFrequency: 1m30s", "sync_frequency", 90.0),
        (b"maxPods: 10.0", "max_pods", 10),
        (b"maxPods: null", "max_pods", 0),
        (b"logging: {flushFrequency: 5000000000}", "logging.flush_frequency", 5.0),
        (b"logging: {flushFrequency: 7s}", "logging.flush_frequency", 7.0),
        (b"base: &b {a: 1}\n", "", None),
        (b"maxParallelImagePulls: 3", "max_parallel_image_pulls", 3),
        (b"showHiddenMetricsForVersion: 2026-01-02", "show_hidden_metrics_for_version", "2026-01-02"),
        (b"evictionHard: {memory.available: null}", "eviction_hard", {}),
    ],
)
def test_decode(text: bytes, path: str, value: object) -> None:
    if not path:
        with pytest.raises(scheme.StrictDecodingError):
            scheme.decode(_HEAD + text)
        return
    found: object = scheme.to_internal(scheme.decode(_HEAD + text))
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value


def test_json_is_read_too() -> None:
    text = b'{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "maxPods": 3}'
    assert scheme.decode(text) == {"maxPods": 3}


def test_document_and_structs_are_two_forms_of_one_thing() -> None:
    document = {
        "syncFrequency": "1m30s",
        "authentication": {"x509": {"clientCAFile": "/ca"}},
        "registerWithTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
        "reservedMemory": [{"numaNode": 1, "limits": {"memory": "1Gi"}}],
        "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
        "featureGates": {"EventedPLEG": True},
    }
    kc = scheme.to_internal(document)
    assert kc.register_with_taints[0].effect == "NoSchedule"
    assert kc.reserved_memory[0].limits["memory"].value() == 2**30
    versioned = scheme.to_versioned(kc)
    assert versioned["reservedMemory"] == document["reservedMemory"]
    assert versioned["syncFrequency"] == "1m30s"
    assert scheme.to_internal(versioned) == kc
    # Optional fields that are not set are left out.
    assert "maxParallelImagePulls" not in versioned


def test_wire_path() -> None:
    assert scheme.wire_path("authentication.x509.client_ca_file") == "authentication.x509.clientCAFile"
    assert scheme.wire_path("crash_loop_back_off.max_container_restart_period") == (
        "crashLoopBackOff.maxContainerRestartPeriod"
    )


def test_all_paths_are_among_the_path_refs() -> None:
    refs = {name for _, name in kubeletconfig.kubelet_configuration_path_refs(kubeletconfig.KubeletConfiguration())}
    assert {"static_pod_path", "client_ca_file", "resolver_config", "pod_logs_dir"} <= refs
