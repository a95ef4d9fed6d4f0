"""Test the feature gates.

Go: pkg/features/kube_features_test.go
"""

from __future__ import annotations

import csv
from pathlib import Path

from pkg import features
from pkg.component_base.featuregate import FeatureSpec, PreRelease
from pkg.features import kube_features

# The file lists every gate of a kubelet 1.36.2 with its stage, its default and its lock.
_GATES = Path(__file__).parents[2] / "test" / "data" / "feature_gates.tsv"
_STAGES = {
    "Alpha": PreRelease.ALPHA,
    "Beta": PreRelease.BETA,
    "GA": PreRelease.GA,
    "Deprecated": PreRelease.DEPRECATED,
}


def test_alpha_gates_are_off() -> None:
    specs = kube_features.DEFAULT_KUBERNETES_FEATURE_GATES
    assert [name for name, spec in specs.items() if spec.pre_release == PreRelease.ALPHA and spec.default] == []


def test_dependencies_are_known_gates() -> None:
    specs = kube_features.DEFAULT_KUBERNETES_FEATURE_GATES
    for name, dependencies in kube_features.DEFAULT_KUBERNETES_FEATURE_GATE_DEPENDENCIES.items():
        assert {name, *dependencies} <= specs.keys()


def test_defaults_satisfy_all_dependencies() -> None:
    assert features.feature_gate.deep_copy().validate() == []


def test_gates_are_those_of_1_36() -> None:
    with _GATES.open(newline="") as f:
        theirs = {
            row["gate"]: FeatureSpec(row["default"] == "true", _STAGES[row["stage"]], row["locked"] == "yes")
            for row in csv.DictReader(f, delimiter="\t")
        }
    assert theirs == kube_features.DEFAULT_KUBERNETES_FEATURE_GATES
