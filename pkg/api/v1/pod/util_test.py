"""Test the pod helpers.

Go: pkg/api/v1/pod/util_test.go
"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from pkg.api.core import v1
from pkg.api.v1 import pod as podutil

SPEC = v1.PodSpec(
    containers=[v1.Container(name="c1"), v1.Container(name="c2")],
    init_containers=[v1.Container(name="i")],
    ephemeral_containers=[v1.EphemeralContainer(name="e")],
)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (podutil.CONTAINERS, ["c1", "c2"]),
        (podutil.INIT_CONTAINERS, ["i"]),
        (podutil.EPHEMERAL_CONTAINERS, ["e"]),
        (podutil.ALL_CONTAINERS, ["i", "c1", "c2", "e"]),
    ],
)
def test_container_iter(mask: podutil.ContainerType, expected: list[str]) -> None:
    found = list(podutil.container_iter(SPEC, mask))
    assert [container.name for container, _ in found] == expected
    assert all(kind & mask for _, kind in found)


def test_visit_references() -> None:
    pod = v1.Pod(
        spec=v1.PodSpec(
            image_pull_secrets=[v1.LocalObjectReference(name="pull"), v1.LocalObjectReference()],
            containers=[
                v1.Container(
                    env_from=[
                        v1.EnvFromSource(secret_ref=v1.SecretEnvSource(name="from")),
                        v1.EnvFromSource(config_map_ref=v1.ConfigMapEnvSource(name="map-from")),
                    ],
                    env=[
                        v1.EnvVar(
                            name="x",
                            value_from=v1.EnvVarSource(secret_key_ref=v1.SecretKeySelector(name="key")),
                        )
                    ],
                )
            ],
            volumes=[
                v1.Volume(secret=v1.SecretVolumeSource(secret_name="volume")),
                v1.Volume(config_map=v1.ConfigMapVolumeSource(name="map")),
                v1.Volume(iscsi=v1.ISCSIVolumeSource(secret_ref=v1.LocalObjectReference(name="iscsi"))),
                v1.Volume(
                    projected=v1.ProjectedVolumeSource(
                        sources=[
                            v1.VolumeProjection(secret=v1.SecretProjection(name="projected")),
                            v1.VolumeProjection(config_map=v1.ConfigMapProjection(name="map-projected")),
                        ]
                    )
                ),
            ],
        )
    )
    secrets: list[str] = []
    maps: list[str] = []
    assert podutil.visit_pod_secret_names(pod, lambda name: not secrets.append(name))  # type: ignore[func-returns-value]
    assert podutil.visit_pod_configmap_names(pod, lambda name: not maps.append(name))  # type: ignore[func-returns-value]
    assert secrets == ["pull", "from", "key", "volume", "iscsi", "projected"]
    assert maps == ["map-from", "map", "map-projected"]


def test_update_pod_condition() -> None:
    old = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    ready = v1.PodCondition(type="Ready", status="True", last_transition_time=old)
    status = v1.PodStatus(conditions=[ready])
    assert not podutil.update_pod_condition(status, v1.PodCondition(type="Ready", status="True"))
    assert status.conditions[0].last_transition_time == old
    assert podutil.update_pod_condition(status, v1.PodCondition(type="Ready", status="True", reason="r"))
    assert status.conditions[0].last_transition_time == old
    assert podutil.update_pod_condition(status, v1.PodCondition(type="Ready", status="False"))
    assert status.conditions[0].last_transition_time != old
    assert podutil.update_pod_condition(status, v1.PodCondition(type="New", status="True"))
    assert [condition.type for condition in status.conditions] == ["Ready", "New"]


def rule(action: str, operator: str, *values: int) -> v1.ContainerRestartRule:
    codes = v1.ContainerRestartRuleOnExitCodes(operator=operator, values=list(values))
    return v1.ContainerRestartRule(action=action, exit_codes=codes)


@pytest.mark.parametrize(
    ("container", "pod_policy", "exit_code", "expected"),
    [
        ({}, "Always", 0, True),
        ({}, "", 0, True),
        ({}, "OnFailure", 0, False),
        ({}, "OnFailure", 1, True),
        ({}, "Never", 1, False),
        ({"restart_policy": "Never"}, "Always", 1, False),
        ({"restart_policy": "Always"}, "Never", 0, True),
        ({"restart_policy": "OnFailure"}, "Never", 1, True),
        ({"restart_policy": "Never", "restart_policy_rules": [rule("Restart", "In", 42)]}, "Never", 42, True),
        ({"restart_policy": "Never", "restart_policy_rules": [rule("Restart", "In", 42)]}, "Never", 1, False),
        ({"restart_policy": "Never", "restart_policy_rules": [rule("Restart", "NotIn", 1)]}, "Never", 2, True),
        (
            {"restart_policy": "Never", "restart_policy_rules": [rule("RestartAllContainers", "In", 1)]},
            "Never",
            1,
            True,
        ),
    ],
)
def test_container_should_restart(container: dict[str, Any], pod_policy: str, exit_code: int, expected: bool) -> None:
    spec = v1.PodSpec(restart_policy=pod_policy)
    assert podutil.container_should_restart(v1.Container(**container), spec, exit_code) is expected


def test_is_container_restartable() -> None:
    never = v1.PodSpec(restart_policy="Never")
    assert not podutil.is_container_restartable(never, v1.Container())
    assert podutil.is_container_restartable(never, v1.Container(restart_policy="OnFailure"))
    rules = [rule("Restart", "In", 1)]
    with_rules = v1.Container(restart_policy="Never", restart_policy_rules=rules)
    assert podutil.is_container_restartable(never, with_rules)


def test_get_container_status() -> None:
    statuses = [v1.ContainerStatus(name="a"), v1.ContainerStatus(name="b")]
    assert podutil.get_container_status(statuses, "b") is statuses[1]
    assert podutil.get_container_status(statuses, "c") is None
