"""Set a feature gate for the duration of one test.

Go: k8s.io/component-base/featuregate/testing/feature_gate.go
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pkg.component_base.featuregate.feature_gate import FeatureGate


@contextmanager
def set_feature_gate_during_test(gate: FeatureGate, key: str, value: bool) -> Iterator[None]:
    """Set the gate to this value, whatever its stage or lock; later restore the old value."""
    gate.get_all()[key]
    enabled, raw = gate._enabled, gate._enabled_raw
    gate._enabled, gate._enabled_raw = {**enabled, key: value}, {**raw, key: value}
    try:
        yield
    finally:
        gate._enabled, gate._enabled_raw = enabled, raw
