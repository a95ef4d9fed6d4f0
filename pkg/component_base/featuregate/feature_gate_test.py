"""Test feature gates.

Go: k8s.io/component-base/featuregate/feature_gate_test.go
"""

from __future__ import annotations

import pytest

from pkg.component_base import featuregate
from pkg.component_base.featuregate import FeatureGateError, FeatureSpec, PreRelease
from pkg.component_base.featuregate.testing import set_feature_gate_during_test

_FEATURES = {
    "Alpha": FeatureSpec(False, PreRelease.ALPHA),
    "Beta": FeatureSpec(True, PreRelease.BETA),
    "LockedOn": FeatureSpec(True, PreRelease.GA, lock_to_default=True),
    "Old": FeatureSpec(False, PreRelease.DEPRECATED),
    "NeedsBeta": FeatureSpec(False, PreRelease.ALPHA),
}


def _gate() -> featuregate.FeatureGate:
    return featuregate.FeatureGate(_FEATURES, {"NeedsBeta": ["Beta"]})


@pytest.mark.parametrize(
    ("value", "alpha", "beta", "locked"),
    [
        ("", False, True, True),
        ("Alpha=true", True, True, True),
        ("Alpha=true,Beta=false", True, False, True),
        ("AllAlpha=true", True, True, True),
        ("AllAlpha=true,Alpha=false", False, True, True),
        ("Alpha=false,AllAlpha=true", False, True, True),
        ("AllBeta=false", False, False, True),
        ("AllBeta=false,Beta=true", False, True, True),
        ("LockedOn=true", False, True, True),
        (" Alpha = true ", True, True, True),
    ],
)
def test_set(value: str, alpha: bool, beta: bool, locked: bool) -> None:
    gate = _gate()
    gate.set(value)
    assert (gate.enabled("Alpha"), gate.enabled("Beta"), gate.enabled("LockedOn")) == (alpha, beta, locked)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("Nope=true", "unrecognized feature gate: Nope"),
        ("LockedOn=false", "cannot set feature gate LockedOn to false, feature is locked to true"),
        ("Alpha", "missing bool value for Alpha"),
        ("Alpha=1x", 'invalid value of Alpha=1x, err: strconv.ParseBool: parsing "1x": invalid syntax'),
        (
            "NeedsBeta=true,Beta=false",
            "NeedsBeta is enabled, but depends on features that are disabled: [Beta]",
        ),
        (
            "Nope=true,LockedOn=false",
            "[unrecognized feature gate: Nope, cannot set feature gate LockedOn to false, feature is locked to true]",
        ),
    ],
)
def test_set_refuses_and_changes_nothing(value: str, message: str) -> None:
    gate = _gate()
    with pytest.raises((ValueError, FeatureGateError)) as caught:
        gate.set(f"Alpha=true,{value}" if "Alpha" not in value else value)
    assert str(caught.value) == message
    assert not gate.enabled("Alpha")


def test_later_settings_add_to_earlier_ones() -> None:
    gate = _gate()
    gate.set("Alpha=true")
    gate.set("Beta=false")
    assert gate.enabled("Alpha")
    assert not gate.enabled("Beta")


def test_a_group_gate_set_later_does_not_override_a_name() -> None:
    gate = _gate()
    gate.set("Alpha=false")
    gate.set("AllAlpha=true")
    assert not gate.enabled("Alpha")


def test_unknown_gate_cannot_be_asked() -> None:
    with pytest.raises(KeyError):
        _gate().enabled("Nope")


def test_a_copy_is_independent() -> None:
    gate = _gate()
    copy = gate.deep_copy()
    copy.set("Alpha=true")
    assert not gate.enabled("Alpha")
    assert copy.explicitly_set("Alpha")


def test_only_gates_that_can_be_switched_are_shown() -> None:
    assert _gate().known_features() == [
        "AllAlpha=true|false (ALPHA - default=false)",
        "AllBeta=true|false (BETA - default=false)",
        "Alpha=true|false (ALPHA - default=false)",
        "Beta=true|false (BETA - default=true)",
        "NeedsBeta=true|false (ALPHA - default=false)",
    ]


def test_gate_of_a_test_is_restored() -> None:
    gate = _gate()
    with set_feature_gate_during_test(gate, "LockedOn", False):
        assert not gate.enabled("LockedOn")
    assert gate.enabled("LockedOn")
