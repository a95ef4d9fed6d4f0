"""Stop sidecars after the containers that they serve, and in the reverse order of their start.

Go: pkg/kubelet/kuberuntime/kuberuntime_termination_order.go
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from pkg import golang
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock


class TerminationOrdering:
    """Order the termination of a pod's containers, each of which has a thread that kills it."""

    def __init__(self, pod: v1.Pod, running_container_names: Iterable[str], clock: clock.Clock) -> None:
        self._clock = clock
        # This lock guards _terminated.
        self._lock = threading.Lock()
        # The channel of a name is closed when that container has terminated.
        self._terminated: dict[str, golang.Channel[None]] = {}
        # A sidecar waits for these channels before it is stopped.
        self._prereqs: dict[str, list[golang.Channel[None]]] = {}
        running = set(running_container_names)
        main = [self._add(container.name, running) for container in pod.spec.containers]
        later_sidecar: golang.Channel[None] | None = None
        for init in reversed(pod.spec.init_containers):
            ended = self._add(init.name, running)
            if not podutil.is_restartable_init_container(init):
                continue
            self._prereqs[init.name] = main if later_sidecar is None else [*main, later_sidecar]
            later_sidecar = ended

    def _add(self, name: str, running: set[str]) -> golang.Channel[None]:
        ended: golang.Channel[None] = golang.Channel()
        self._terminated[name] = ended
        if name not in running:
            ended.close()
        return ended

    def wait_for_turn(self, ctx: golang.Context, name: str, grace_period: int) -> float:
        """Wait until the container may be stopped, but at most grace_period seconds or until ctx ends.

        Return the seconds waited.

        DIVERGES (fault of Go): the wait ends when the kill is cancelled.
        Go: pkg/kubelet/kuberuntime/kuberuntime_termination_order.go, (*terminationOrdering).waitForTurn: the wait
        continues.
        Why: a kill is cancelled when its pod gets a shorter grace period, and the kubelet would first wait for the old
        one.
        Test: kuberuntime_termination_order_test.py:test_wait_ends_when_the_kill_is_cancelled
        """
        if grace_period <= 0:
            return 0.0
        start = self._clock.monotonic()
        timer = self._clock.new_timer(grace_period)
        try:
            for ended in self._prereqs.get(name, []):
                if not golang.select(ended, timer.channel, ctx.done()).took(ended):
                    break
        finally:
            timer.stop()
        return self._clock.monotonic() - start

    def container_terminated(self, name: str) -> None:
        """Record that the container has stopped, and wake those that wait for it."""
        with self._lock:
            ended = self._terminated.pop(name, None)
            if ended is not None and not ended.try_recv()[2]:
                ended.close()
