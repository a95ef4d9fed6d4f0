"""Test that hostile clients harm neither the kubelet, nor another client's pod, nor the node's memory.

test/benchmark/hostile_bench.py attacks for ten minutes and also measures the delay of the sync loop.
"""

from __future__ import annotations

import pytest
from framework.hostile import attack

# All times are in seconds.
TIMES = attack.Times(calm=5.0, attack=20.0, settling=10.0)


@pytest.mark.parametrize("kind", ["anonymous", "logs"])
def test_hostile_client(kind: str) -> None:
    attack.by_client(kind, TIMES).assert_harmless()
