"""Test the decisions made while a kubelet is built."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kubelet import eviction, kubelet_build, preemption, standalone, stats, util
from kubelet.apis import config as kubeletconfig
from kubelet.kubelet import Kubelet
from kubelet.kubelet_build import (
    CRASH_LOOP_BACK_OFF_EXPIRY,
    crash_loop_back_off,
    new_crash_loop_back_off,
    new_standalone_objects,
    single_process_oom_kill,
)
from kubelet.testing import TestKubelet, new_pod
from pkg import features
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.component_base.featuregate.testing import set_feature_gate_during_test


@pytest.mark.parametrize(
    ("reduced", "maximum", "configured", "expected"),
    [
        (False, False, None, (10.0, 300.0)),
        (False, False, 20.0, (10.0, 300.0)),
        (False, True, 300.0, (10.0, 300.0)),
        (False, True, 123.0, (10.0, 123.0)),
        (False, True, 2.0, (2.0, 2.0)),
        (True, False, None, (1.0, 60.0)),
        (True, True, 300.0, (1.0, 300.0)),
        (True, True, 1.0, (1.0, 1.0)),
    ],
    ids=[
        "default",
        "configured, but the feature is off",
        "default maximum",
        "configured",
        "configured below the first pause",
        "reduced",
        "reduced, and the maximum configured",
        "reduced, and the least configured",
    ],
)
def test_new_crash_loop_back_off(
    reduced: bool, maximum: bool, configured: float | None, expected: tuple[float, float]
) -> None:
    back_off = kubeletconfig.CrashLoopBackOffConfig(max_container_restart_period=configured)
    kube_cfg = kubeletconfig.KubeletConfiguration(crash_loop_back_off=back_off)
    gate = features.feature_gate
    with (
        set_feature_gate_during_test(gate, features.REDUCE_DEFAULT_CRASH_LOOP_BACK_OFF_DECAY, reduced),
        set_feature_gate_during_test(gate, features.KUBELET_CRASH_LOOP_BACK_OFF_MAX, maximum),
    ):
        assert new_crash_loop_back_off(kube_cfg) == expected


def test_pause_between_restarts_is_kept_though_a_container_starts_slowly() -> None:
    """The longest pause does not determine when the backoff starts again."""
    back_off = kubeletconfig.CrashLoopBackOffConfig(max_container_restart_period=4.0)
    clock = testing.FakeClock()
    pauses = crash_loop_back_off(kubeletconfig.KubeletConfiguration(crash_loop_back_off=back_off), clock)
    pauses.next("container", clock.now())
    clock.step(CRASH_LOOP_BACK_OFF_EXPIRY)
    assert pauses.is_in_back_off_since("container", clock.now())
    clock.step(1)
    assert not pauses.is_in_back_off_since("container", clock.now())


def test_pods_follow_objects_of_the_manifest_folder(test_kubelet: TestKubelet) -> None:
    objects = standalone.ObjectStore()
    made = new_standalone_objects(objects, test_kubelet.kubelet.pod_manager, test_kubelet.kubelet.retry_pod_now)
    using = new_pod("using", image_pull_secrets=[v1.LocalObjectReference(name="pull")])
    for pod in (using, new_pod("other")):
        test_kubelet.kubelet.pod_manager.add_pod(pod)
    secret = v1.Secret(metadata=metav1.ObjectMeta(name="pull", namespace="ns"))
    objects.replace([secret])
    assert test_kubelet.workers.update_types() == [("SYNC", "using")]
    assert test_kubelet.volumes.changes == ["forget uid-using"]
    assert made.secret_manager is not None
    assert made.secret_manager.get_secret("ns", "pull") is secret


def test_kubelet_without_an_api_server_attaches_volumes_itself(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = mock.Mock()
    monkeypatch.setattr(kubelet_build, "VolumeManager", manager)
    test_kubelet.kubelet.kubelet_configuration.enable_controller_attach_detach = True
    for client in (FakeClientset(), None):
        test_kubelet.builder.client = client
        kubelet_build.PartsBuilder.new_volume_manager(
            test_kubelet.builder, mock.Mock(), test_kubelet.kubelet.pod_manager, test_kubelet.kubelet.pod_workers, None
        )
    assert [call.args[0] for call in manager.call_args_list] == [True, False]


@pytest.mark.parametrize("endpoint", ["unix:///run/containerd/containerd.sock", "unix:///var/run/crio/crio.sock"])
def test_every_runtime_is_asked_by_cri(test_kubelet: TestKubelet, endpoint: str) -> None:
    test_kubelet.kubelet.kubelet_configuration.container_runtime_endpoint = endpoint
    figures = test_kubelet.builder.new_figures()
    assert isinstance(figures.stats_provider._containers, stats.CRIStatsProvider)


def test_a_node_under_pressure_admits_no_pod(test_kubelet: TestKubelet) -> None:
    manager = test_kubelet.kubelet.eviction_manager
    assert isinstance(manager, eviction.ManagerImpl) and test_kubelet.admit_handlers[0] is manager
    test_kubelet.kubelet.allocation_manager.add_pod_admit_handlers([manager])
    assert test_kubelet.kubelet.allocation_manager.add_pod([], new_pod("before")).admit
    manager._node_conditions = [v1.NODE_DISK_PRESSURE]
    result = test_kubelet.kubelet.allocation_manager.add_pod([], new_pod("pod"))
    assert (result.admit, result.reason) == (False, "Evicted")
    assert result.message == "The node had condition: [DiskPressure]. "


def test_pods_that_choose_their_grace_period_are_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def kill_pod_now(*args: object) -> None:
        waits.extend(arg for arg in args if isinstance(arg, float))

    monkeypatch.setattr(kubelet_build, "kill_pod_now", kill_pod_now)
    TestKubelet(tmp_path).close()
    assert waits == [eviction.LONGEST_WAIT_FOR_POD, preemption.LONGEST_WAIT_FOR_VICTIM]


@pytest.mark.parametrize(
    ("unified", "configured", "single"),
    [(True, None, False), (True, False, False), (True, True, True), (False, None, True), (False, False, True)],
)
def test_single_process_oom_kill(
    monkeypatch: pytest.MonkeyPatch, unified: bool, configured: bool | None, single: bool
) -> None:
    monkeypatch.setattr(util, "is_cgroup2_unified_mode", lambda: unified)
    config = kubeletconfig.KubeletConfiguration(single_process_oom_kill=configured)
    assert single_process_oom_kill(config) is single


@pytest.mark.parametrize(
    "parts",
    [
        kubelet_build.ObjectManagers,
        kubelet_build.PodState,
        kubelet_build.Workers,
        kubelet_build.RuntimeParts,
        kubelet_build.Figures,
        kubelet_build.EventGenerators,
        kubelet_build.GarbageCollectors,
        kubelet_build.Serving,
        kubelet_build.VolumeParts,
    ],
)
def test_parts_are_what_the_kubelet_takes(parts: type) -> None:
    """The parts are passed to the kubelet by name, which no type checker verifies."""
    taken = {field.name: _written(field.type) for field in dataclasses.fields(Kubelet)}
    for field in dataclasses.fields(parts):
        assert taken[field.name] == _written(field.type), field.name


def _written(annotation: Any) -> str:
    """Return an annotation as it is written, without the names of packages, which a file may leave out."""
    return re.sub(r"\b\w+\.", "", str(annotation))


def test_nothing_is_asked_of_a_kubelet_that_is_not_whole(test_kubelet: TestKubelet) -> None:
    other = kubelet_build.PartsBuilder(
        test_kubelet.ctx, test_kubelet.builder.kube_cfg, test_kubelet.builder.kube_deps, test_kubelet.builder.options
    )
    with pytest.raises(AttributeError, match="get_active_pods was read from a Kubelet that is not complete"):
        other.klet.get_active_pods()
