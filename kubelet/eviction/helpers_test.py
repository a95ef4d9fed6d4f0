"""Tests of thresholds.

Go: pkg/kubelet/eviction/helpers_test.go
"""

import pytest

from kubelet import eviction
from kubelet.eviction import api as evictionapi
from pkg.apimachinery.api import resource


@pytest.mark.parametrize(
    ("signal", "text", "expected"),
    [
        pytest.param("memory.available", "100Mi", "100Mi", id="amount"),
        pytest.param("nodefs.available", "10%", "107374182", id="percentage"),
        pytest.param("nodefs.inodesFree", "0%", None, id="zero per cent"),
        pytest.param("imagefs.available", "100%", None, id="hundred per cent"),
    ],
)
def test_parse_threshold_statements(signal: str, text: str, expected: str | None) -> None:
    thresholds = eviction.parse_threshold_statements({signal: text})
    if expected is None:
        assert thresholds == []
        return
    (threshold,) = thresholds
    assert threshold.signal == signal
    quantity = evictionapi.get_threshold_quantity(threshold.value, resource.parse_quantity("1Gi"))
    # A tenth in 32 bits is a little more than a tenth.
    assert abs(quantity.value() - resource.parse_quantity(expected).value()) < 10


@pytest.mark.parametrize(
    ("signal", "text", "message"),
    [
        pytest.param("mem.available", "1Gi", "unsupported eviction signal mem.available", id="signal"),
        pytest.param("memory.available", "0", "eviction threshold memory.available must be positive: 0", id="zero"),
        pytest.param("memory.available", "much", "eviction threshold memory.available: ", id="no amount"),
        pytest.param("memory.available", "-5%", "memory.available must be >= 0%: -5%", id="negative percentage"),
        pytest.param("memory.available", "120%", "memory.available must be <= 100%: 120%", id="too much"),
        pytest.param("memory.available", "x%", "percentage threshold memory.available: ", id="no number"),
    ],
)
def test_bad_thresholds(signal: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        eviction.parse_threshold_statements({signal: text})
