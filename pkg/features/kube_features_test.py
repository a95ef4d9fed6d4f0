"""Go: pkg/features/kube_features_test.go"""

from __future__ import annotations

from pkg import features
from pkg.component_base.featuregate import PreRelease
from pkg.features import kube_features


def test_alpha_gates_are_off() -> None:
    specs = kube_features.DEFAULT_KUBERNETES_FEATURE_GATES
    assert [name for name, spec in specs.items() if spec.pre_release == PreRelease.ALPHA and spec.default] == []


def test_dependencies_are_known_gates() -> None:
    specs = kube_features.DEFAULT_KUBERNETES_FEATURE_GATES
    for name, dependencies in kube_features.DEFAULT_KUBERNETES_FEATURE_GATE_DEPENDENCIES.items():
        assert {name, *dependencies} <= specs.keys()


def test_defaults_satisfy_all_dependencies() -> None:
    assert features.feature_gate.deep_copy().validate() == []


def test_some_defaults_of_1_36() -> None:
    enabled = features.feature_gate.deep_copy().enabled
    assert not enabled(features.EVENTED_PLEG)
    assert enabled(features.PLEG_ON_DEMAND_RELIST)
    assert enabled(features.SIDECAR_CONTAINERS)
    assert enabled(features.NODE_SWAP)
