"""Test the runtime state."""

from __future__ import annotations

import pytest

from kubelet import container as kubecontainer
from kubelet.runtime import RuntimeState
from pkg.apimachinery.clock import testing as clocktesting


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["runc", "", "crun"], ["", "crun", "runc"], id="unsorted, with the default"),
        pytest.param(["", "crun", "runc"], ["", "crun", "runc"], id="sorted"),
        pytest.param([], [], id="none"),
    ],
)
def test_set_runtime_handlers_sorts_and_copies(names: list[str], expected: list[str]) -> None:
    state = RuntimeState(30)
    handlers = [kubecontainer.RuntimeHandler(name=name) for name in names]
    given = list(handlers)
    state.set_runtime_handlers(handlers)
    assert handlers == given
    assert [handler.name for handler in state.runtime_handlers()] == expected


def test_runtime_errors() -> None:
    clock = clocktesting.FakeClock()
    state = RuntimeState(30, clock)
    assert str(state.runtime_errors()) == "container runtime status check may not have completed yet"
    state.set_runtime_sync(clock.monotonic())
    assert state.runtime_errors() is None
    clock.step(29)
    assert state.runtime_errors() is None
    clock.step(1)
    assert str(state.runtime_errors()) == "container runtime is down"
    state.set_runtime_sync(clock.monotonic())
    assert state.runtime_errors() is None


def test_runtime_errors_are_all_named() -> None:
    clock = clocktesting.FakeClock()
    state = RuntimeState(30, clock)

    def unhealthy() -> None:
        raise RuntimeError("pleg was last seen active 5m0s ago; threshold is 3m0s")

    state.set_runtime_sync(clock.monotonic())
    state.add_health_check("other", lambda: None)
    state.add_health_check("PLEG", unhealthy)
    state.set_runtime_state(RuntimeError("runtime status is unknown"))
    assert str(state.runtime_errors()) == (
        "[PLEG is not healthy: pleg was last seen active 5m0s ago; threshold is 3m0s, runtime status is unknown]"
    )


def test_network_and_storage_errors() -> None:
    state = RuntimeState(30)
    assert str(state.network_errors()) == "network state unknown"
    state.set_network_state(None)
    assert state.network_errors() is None
    assert state.storage_errors() is None
    state.set_storage_state(RuntimeError("disk"))
    assert str(state.storage_errors()) == "disk"


def test_what_is_set_is_kept() -> None:
    state = RuntimeState(30)
    assert state.pod_cidr() == ""
    state.set_pod_cidr("10.0.0.0/24")
    assert state.pod_cidr() == "10.0.0.0/24"
    assert state.runtime_features() is None
    features = kubecontainer.RuntimeFeatures()
    state.set_runtime_features(features)
    assert state.runtime_features() is features
