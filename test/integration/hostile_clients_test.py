"""Clients that do their worst leave the kubelet, a bystander's pod and the memory as they were.

For ten minutes, and with the lateness of the sync loop: test/benchmark/hostile_bench.py.
"""

from __future__ import annotations

import pytest
from framework.hostile import attack

# Seconds.
TIMES = attack.Times(calm=5.0, attack=20.0, settling=10.0)


@pytest.mark.parametrize("kind", ["anonymous", "logs"])
def test_hostile_client(kind: str) -> None:
    attack.by_client(kind, TIMES).assert_harmless()
