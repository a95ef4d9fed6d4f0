"""Test the termination order of containers.

Go: pkg/kubelet/kuberuntime/kuberuntime_termination_order_test.go
"""

from __future__ import annotations

from kubelet.kuberuntime.kuberuntime_termination_order import TerminationOrdering
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.clock import RealClock
from pkg.apimachinery.clock import testing as testingclock


def _pod(*sidecars: str) -> v1.Pod:
    init = [v1.Container(name="setup"), *(v1.Container(name=n, restart_policy="Always") for n in sidecars)]
    return v1.Pod(spec=v1.PodSpec(containers=[v1.Container(name="main")], init_containers=init))


def test_order_is_main_then_sidecars_backwards() -> None:
    names = ["main", "one", "two", "three"]
    ordering = TerminationOrdering(_pod("one", "two", "three"), names, RealClock())
    order: golang.Channel[str] = golang.Channel(4)

    def kill(name: str) -> None:
        ordering.wait_for_turn(golang.background(), name, 30)
        order.send(name)
        ordering.container_terminated(name)

    sidecars = [golang.go(kill, name, name=f"kill-{name}") for name in ("one", "two", "three")]
    kill("main")
    for thread in sidecars:
        thread.join(timeout=30)
    assert [order.recv()[0] for _ in range(4)] == ["main", "three", "two", "one"]


def test_containers_that_do_not_run_are_not_waited_for() -> None:
    clock = testingclock.FakeClock()
    ordering = TerminationOrdering(_pod("one", "two"), ["one"], clock)
    assert ordering.wait_for_turn(golang.background(), "one", 30) == 0


def test_wait_ends_with_the_grace_period() -> None:
    clock = testingclock.FakeClock()
    ordering = TerminationOrdering(_pod("one"), ["main", "one"], clock)
    waited: golang.Channel[float] = golang.Channel(1)
    thread = golang.go(lambda: waited.send(ordering.wait_for_turn(golang.background(), "one", 5)), name="wait")
    clock.wait_for_waiters()
    clock.step(5)
    assert waited.recv(timeout=30) == (5, True)
    thread.join(timeout=30)


def test_wait_ends_when_the_kill_is_cancelled() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    ordering = TerminationOrdering(_pod("one"), ["main", "one"], testingclock.FakeClock())
    waited: golang.Channel[float] = golang.Channel(1)
    thread = golang.go(lambda: waited.send(ordering.wait_for_turn(ctx, "one", 300)), name="wait")
    cancel()
    assert waited.recv(timeout=30) == (0, True)
    thread.join(timeout=30)


def test_no_grace_period_no_wait() -> None:
    ordering = TerminationOrdering(_pod("one"), ["main", "one"], testingclock.FakeClock())
    assert ordering.wait_for_turn(golang.background(), "one", 0) == 0


def test_terminated_twice_is_terminated() -> None:
    ordering = TerminationOrdering(_pod("one"), ["main"], testingclock.FakeClock())
    for _ in range(2):
        ordering.container_terminated("main")
        ordering.container_terminated("one")
