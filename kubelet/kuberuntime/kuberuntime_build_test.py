"""Test how a runtime manager is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet import container as kubecontainer
from kubelet import lifecycle
from kubelet.kuberuntime import kuberuntime_build, testing
from pkg import features, golang
from pkg.apimachinery import types
from pkg.client_go.tools import record
from pkg.component_base.featuregate.testing import set_feature_gate_during_test


@pytest.mark.parametrize(("gate", "hooks"), [(True, ["prune_unknown_records"]), (False, [])])
def test_records_of_pulls_are_pruned_after_garbage_collection(tmp_path: Path, gate: bool, hooks: list[str]) -> None:
    options = testing.create_test_runtime_manager(str(tmp_path)).options
    with set_feature_gate_during_test(features.feature_gate, features.KUBELET_ENSURE_SECRET_PULLED_IMAGES, gate):
        _, found = kuberuntime_build.new_kube_generic_runtime_manager(golang.background(), options)
    assert [hook.__name__ for hook in found] == hooks


def test_nothing_is_asked_of_a_manager_that_is_not_whole(tmp_path: Path) -> None:
    def ask_at_once(
        http_doer: lifecycle.HTTPDoer,
        command_runner: kubecontainer.CommandRunner,
        pods: lifecycle.PodStatusProvider,
        recorder: record.EventRecorder,
    ) -> kubecontainer.HandlerRunner:
        pods.get_pod(golang.background(), types.UID("uid"))
        return testing.FakeCommandRunner()

    with pytest.raises(AttributeError, match="get_pod was read from a KubeGenericRuntimeManager that is not complete"):
        testing.create_test_runtime_manager(str(tmp_path), new_handler_runner=ask_at_once)
