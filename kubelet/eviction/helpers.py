"""Reading thresholds as the configuration writes them.

Go: pkg/kubelet/eviction/helpers.go
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from kubelet.eviction import api as evictionapi
from pkg.apimachinery.api import resource


def parse_threshold_statements(statements: Mapping[str, str]) -> list[evictionapi.Threshold]:
    """Thresholds by signal, without those of 0% and 100%, which mean none. Raises ValueError that names the signal."""
    thresholds = [_parse_threshold_statement(signal, value) for signal, value in statements.items()]
    return [threshold for threshold in thresholds if threshold is not None]


def _parse_threshold_statement(signal: str, text: str) -> evictionapi.Threshold | None:
    try:
        known = evictionapi.Signal(signal)
    except ValueError:
        raise ValueError(f"unsupported eviction signal {signal}") from None
    if text.endswith("%"):
        if text in ("0%", "100%"):
            return None
        return evictionapi.Threshold(known, evictionapi.ThresholdValue(percentage=_parse_percentage(known, text)))
    try:
        quantity = resource.parse_quantity(text)
    except ValueError as err:
        raise ValueError(f"eviction threshold {signal}: {err}") from err
    if quantity.sign() <= 0:
        raise ValueError(f"eviction threshold {signal} must be positive: {quantity}")
    return evictionapi.Threshold(known, evictionapi.ThresholdValue(quantity=quantity))


def _parse_percentage(signal: str, text: str) -> float:
    try:
        percentage = _float32(_float32(float(text.rstrip("%"))) / 100)
    except ValueError as err:
        raise ValueError(f"eviction percentage threshold {signal}: {err}") from err
    if percentage < 0:
        raise ValueError(f"eviction percentage threshold {signal} must be >= 0%: {text}")
    if percentage > 1:
        raise ValueError(f"eviction percentage threshold {signal} must be <= 100%: {text}")
    return percentage


def _float32(number: float) -> float:
    """Go keeps percentages in 32 bits, and a node's allocatable storage shows it."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded
