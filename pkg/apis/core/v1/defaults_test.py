"""Test the defaults of pods."""

from __future__ import annotations

from typing import Any

import pytest

from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.runtime import codec
from pkg.apis.core import v1 as corev1


def defaulted(**spec: Any) -> v1.PodSpec:
    spec.setdefault("containers", [{"name": "c", "image": "busybox"}])
    pod = codec.convert({"spec": spec}, v1.Pod)
    corev1.set_object_defaults_pod(pod)
    again = v1.deepcopy(pod)
    corev1.set_object_defaults_pod(again)
    assert again == pod, "defaults must not change what they made"
    return pod.spec


def container(**fields: Any) -> v1.Container:
    return defaulted(containers=[{"name": "c", "image": "busybox", **fields}]).containers[0]


def test_set_default_pod_spec() -> None:
    spec = defaulted()
    assert spec.dns_policy == "ClusterFirst"
    assert spec.restart_policy == "Always"
    assert spec.security_context == v1.PodSecurityContext()
    assert spec.termination_grace_period_seconds == 30
    assert spec.scheduler_name == "default-scheduler"
    assert spec.enable_service_links is True


def test_set_values_are_kept() -> None:
    spec = defaulted(
        dnsPolicy="None",
        restartPolicy="Never",
        terminationGracePeriodSeconds=0,
        schedulerName="mine",
        enableServiceLinks=False,
    )
    assert spec.dns_policy == "None"
    assert spec.restart_policy == "Never"
    assert spec.termination_grace_period_seconds == 0
    assert spec.scheduler_name == "mine"
    assert spec.enable_service_links is False


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("localhost:5000/busybox", "Always"),
        ("busybox@sha256:" + "a" * 64, "IfNotPresent"),
        ("NOT an image", "IfNotPresent"),
    ],
)
def test_set_default_image_pull_policy(image: str, policy: str) -> None:
    assert container(image=image).image_pull_policy == policy


def test_set_default_container() -> None:
    c = container(
        ports=[{"containerPort": 80}],
        env=[
            {"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "b", "valueFrom": {"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v"}}},
        ],
    )
    assert c.termination_message_path == "/dev/termination-log"
    assert c.termination_message_policy == "File"
    assert c.ports[0].protocol == "TCP" and c.ports[0].host_port == 0
    assert c.env[0].value_from is not None and c.env[0].value_from.field_ref is not None
    assert c.env[0].value_from.field_ref.api_version == "v1"
    assert c.env[1].value_from is not None and c.env[1].value_from.file_key_ref is not None
    assert c.env[1].value_from.file_key_ref.optional is False


def test_set_default_probes_and_hooks() -> None:
    c = container(
        livenessProbe={"httpGet": {"port": 80}},
        readinessProbe={"grpc": {"port": 80}, "periodSeconds": 3},
        lifecycle={"preStop": {"httpGet": {"port": 80, "path": "/x", "scheme": "HTTPS"}}},
    )
    assert c.liveness_probe is not None and c.liveness_probe.http_get is not None
    probe = c.liveness_probe
    times = (probe.timeout_seconds, probe.period_seconds, probe.success_threshold, probe.failure_threshold)
    assert times == (1, 10, 1, 3)
    assert (c.liveness_probe.http_get.path, c.liveness_probe.http_get.scheme) == ("/", "HTTP")
    assert c.readiness_probe is not None and c.readiness_probe.grpc is not None
    assert c.readiness_probe.grpc.service == "" and c.readiness_probe.period_seconds == 3
    assert c.lifecycle is not None and c.lifecycle.pre_stop is not None
    assert c.lifecycle.pre_stop.http_get == v1.HTTPGetAction(path="/x", scheme="HTTPS", port=80)


def test_set_default_requests() -> None:
    """Requests default to the limits, both for containers and for init containers."""
    c = {
        "name": "c",
        "image": "i",
        "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}, "requests": {"cpu": "50m"}},
    }
    spec = defaulted(containers=[c], initContainers=[c])
    for got in (spec.containers[0], spec.init_containers[0]):
        assert got.resources.requests == {
            "cpu": resource.parse_quantity("50m"),
            "memory": resource.parse_quantity("1Gi"),
        }


def test_amounts_are_rounded_up_to_thousandths() -> None:
    c = container(resources={"limits": {"cpu": "0.0001", "memory": "1.5"}})
    assert str(c.resources.limits["cpu"]) == "1m"
    assert str(c.resources.limits["memory"]) == "1500m"


def test_set_default_host_network_ports() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]
    spec = defaulted(hostNetwork=True, containers=[{"name": "c", "image": "i", "ports": ports}])
    assert [p.host_port for p in spec.containers[0].ports] == [80, 8081]


VOLUMES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"emptyDir": {}}),
    ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
    ({"secret": {"secretName": "s"}}, {"secret": {"secretName": "s", "defaultMode": 0o644}}),
    ({"configMap": {"name": "s", "defaultMode": 0}}, {"configMap": {"name": "s", "defaultMode": 0}}),
    (
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {
            "projected": {
                "defaultMode": 0o644,
                "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
            }
        },
    ),
    ({"image": {"reference": "a:1"}}, {"image": {"reference": "a:1", "pullPolicy": "IfNotPresent"}}),
    (
        {"iscsi": {"targetPortal": "t", "iqn": "i", "lun": 0}},
        {"iscsi": {"targetPortal": "t", "iqn": "i", "lun": 0, "iscsiInterface": "default"}},
    ),
    (
        {"rbd": {"monitors": ["m"], "image": "i"}},
        {
            "rbd": {
                "monitors": ["m"], "image": "i", "pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"
            }
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "wanted"), VOLUMES, ids=[next(iter(w)) for _, w in VOLUMES])
def test_set_default_volume_source(source: dict[str, Any], wanted: dict[str, Any]) -> None:
    [volume] = defaulted(volumes=[{"name": "v", **source}]).volumes
    if "hostPath" in source:
        # The field is set, although to an empty value.
        assert volume.host_path is not None and volume.host_path.type == ""
    assert volume == codec.convert({"name": "v", **wanted}, v1.Volume)


def _resources(**kinds: dict[str, str]) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": kinds}


POD_LEVEL = [
    ("none of its own", None, [_resources(limits={"cpu": "1"})], None),
    (
        "requests come from the containers",
        {"limits": {"cpu": "2", "memory": "1Gi"}},
        [_resources(requests={"cpu": "100m"}), _resources(requests={"cpu": "200m"})],
        {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "300m", "memory": "1Gi"}},
    ),
    (
        "requests come from the limits",
        {"limits": {"cpu": "2"}},
        [_resources()],
        {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}},
    ),
    (
        "requests of its own stay",
        {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
        [_resources(requests={"cpu": "100m"})],
        {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
    ),
    (
        "huge pages of the containers",
        {"limits": {"cpu": "2"}},
        [_resources(limits={"hugepages-2Mi": "4Mi"}), _resources(limits={"hugepages-2Mi": "2Mi"})],
        {
            "limits": {"cpu": "2", "hugepages-2Mi": "6Mi"},
            "requests": {"cpu": "2", "hugepages-2Mi": "6Mi"},
        },
    ),
]


@pytest.mark.parametrize(
    ("resources", "containers", "wanted"), [c[1:] for c in POD_LEVEL], ids=[c[0] for c in POD_LEVEL]
)
def test_pod_level_resources(resources: Any, containers: list[dict[str, Any]], wanted: Any) -> None:
    got = defaulted(resources=resources, containers=containers).resources
    assert got == (None if wanted is None else codec.convert(wanted, v1.ResourceRequirements))
