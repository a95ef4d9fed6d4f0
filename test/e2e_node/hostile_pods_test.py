"""Test that hostile pods, which meet the "restricted" pod security standard, harm neither the kubelet nor another pod.

test/benchmark/hostile_bench.py attacks for ten minutes and also measures the delay of the sync loop.
"""

from __future__ import annotations

from framework.hostile import attack

# All times are in seconds.
TIMES = attack.Times(calm=5.0, attack=30.0, settling=10.0)


def test_hostile_pods() -> None:
    attack.by_pods(TIMES).assert_harmless()
