"""Test the messages about resizes.

Go: pkg/kubelet/events/resize_test.go
"""

from __future__ import annotations

from kubelet import events
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1


def amounts(cpu: int = 0, memory: int = 0) -> dict[str, resource.Quantity]:
    found = {"cpu": resource.new_milli_quantity(cpu), "memory": resource.new_quantity(memory)}
    return {name: quantity for name, quantity in found.items() if not quantity.is_zero()}


def container(
    name: str, cpu: tuple[int, int] = (0, 0), memory: tuple[int, int] = (0, 0), **fields: str
) -> v1.Container:
    """Return a container; cpu and memory are (request, limit)."""
    requests, limits = amounts(cpu[0], memory[0]), amounts(cpu[1], memory[1])
    resources = v1.ResourceRequirements(requests=requests, limits=limits)
    return v1.Container(name=name, resources=resources, **fields)  # type: ignore[arg-type]


def pod(*containers: v1.Container, init: tuple[v1.Container, ...] = ()) -> v1.Pod:
    spec = v1.PodSpec(containers=list(containers), init_containers=list(init))
    return v1.Pod(metadata=metav1.ObjectMeta(name="test-pod", uid=types.UID("12345")), spec=spec)


ALL = '{"limits":{"cpu":"100m","memory":"100"},"requests":{"cpu":"100m","memory":"100"}}'


def test_simple_pod() -> None:
    simple = pod(container("c0", (100, 100), (100, 100)))
    summary = '{"containers":[{"name":"c0","resources":' + ALL + '}],"generation":1'
    assert events.pod_resize_completed_msg(simple, 1) == f"Pod resize completed: {summary}}}"
    assert events.pod_resize_started_msg(simple, 1) == f"Pod resize started: {summary}}}"
    error = f'Pod resize error: {summary},"error":"cannot"}}'
    assert events.pod_resize_error_msg(simple, 1, "cannot") == error
    pending = f'Pod resize Deferred: {summary},"error":"no room"}}'
    assert events.pod_resize_pending_msg(simple, "Deferred", "no room", 1) == pending


def test_several_containers() -> None:
    several = pod(
        container("c1", memory=(100, 200)),
        container("c2", (200, 0), (100, 0)),
        init=(container("c0", (100, 200), restart_policy="Always"),),
    )
    assert events.pod_resize_completed_msg(several, 2) == (
        'Pod resize completed: {"initContainers":[{"name":"c0","resources":{"limits":{"cpu":"200m"},'
        '"requests":{"cpu":"100m"}}}],"containers":[{"name":"c1","resources":{"limits":{"memory":"200"},'
        '"requests":{"memory":"100"}}},{"name":"c2","resources":{"requests":{"cpu":"200m","memory":"100"}}}],'
        '"generation":2}'
    )


def test_best_effort_pod() -> None:
    message = events.pod_resize_completed_msg(pod(container("c0")), 3)
    assert message == 'Pod resize completed: {"containers":[{"name":"c0","resources":{}}],"generation":3}'
