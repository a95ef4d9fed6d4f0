"""Pods of the "restricted" pod security standard that do their worst leave the kubelet and a bystander's pod alone.

For ten minutes, and with the lateness of the sync loop: test/benchmark/hostile_bench.py.
"""

from __future__ import annotations

from framework.hostile import attack

# Seconds.
TIMES = attack.Times(calm=5.0, attack=30.0, settling=10.0)


def test_hostile_pods() -> None:
    attack.by_pods(TIMES).assert_harmless()
