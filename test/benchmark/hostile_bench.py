"""Measure the harm that the tests' worst pods and clients do to a kubelet, a bystander's pod and other clients.

    PYTHONPATH=.:test .venv/bin/python test/benchmark/hostile_bench.py pods|anonymous|logs [SECONDS]

This command measures one of the attacks, by default for ten minutes. The attack with pods needs root and a containerd.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from framework.hostile import attack

_SECONDS = 600.0
# The measurements before and after the attack take this many seconds.
_CALM, _SETTLING = 30.0, 30.0

ATTACKS: Mapping[str, Callable[[attack.Times], attack.Harm]] = {
    "pods": attack.by_pods,
    "anonymous": lambda times: attack.by_client("anonymous", times),
    "logs": lambda times: attack.by_client("logs", times),
}


def attacked(kind: str, seconds: float = _SECONDS) -> dict[str, float]:
    """Return figures by name. Times are in milliseconds, memory is in MiB."""
    harm = ATTACKS[kind](attack.Times(_CALM, seconds, _SETTLING))
    print(f"{kind}: {dict(harm.done)}", *harm.attacked.refused[:5], file=sys.stderr, sep="\n")
    return {
        "RSS before": harm.calm.memory,
        "RSS more": harm.growth,
        "RSS more, peak": harm.peak_growth,
        "ticks late, calm": harm.calm.late * 1000,
        "ticks late": harm.attacked.late * 1000,
        "idle process's ticks late": harm.attacked.idle_late * 1000,
        "bystander restarted": harm.restarts,
        "bystander's failed probes": harm.failed_probes,
        "bystander not ready": harm.times_not_ready,
        "others' requests": harm.attacked.answers,
        "others refused": len(harm.attacked.refused),
        "others' slowest answer": harm.attacked.slowest_answer * 1000,
    }


def main(kind: str, seconds: str = str(_SECONDS)) -> None:
    for name, figure in attacked(kind, float(seconds)).items():
        print(f"{name:30} {figure:10,.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
