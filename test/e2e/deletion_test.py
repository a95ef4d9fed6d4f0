"""Test the deletion of pods: graceful or forced, with hooks and finalizers, and the statuses that the API server gets.

A fixture creates all pods, because they must run before they are deleted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from framework.cluster_client import Namespace, last_terminated, terminated
from framework.pods import pod, shell, sleeper
from kubernetes.client import CoreV1Api
from kubernetes.client.exceptions import NotFoundException

# A running container does not mean that its shell already handles signals.
TRAPS: dict[str, Any] = {"exec": {"command": ["test", "-e", "/tmp/traps"]}, "periodSeconds": 1, "timeoutSeconds": 10}
# The process ends successfully 3 s after the signal.
END = "sleep 3; echo -n ended > /dev/termination-log; exit 0"
SLOW = f"trap '{END}' TERM; touch /tmp/traps; while true; do sleep 1000 & wait $!; done"
ENDS = "trap 'exit 0' TERM; touch /tmp/traps; while true; do sleep 1000 & wait $!; done"
STUBBORN = "trap '' TERM; while true; do sleep 1; done"
# The main process must see what the hook did before the process gets its signal.
HOOKED = "trap 'cat /tmp/hook > /dev/termination-log; exit 0' TERM; while true; do sleep 1000 & wait $!; done"
FINALIZER = "example.com/hold"
RELEASE = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}


@pytest.fixture(scope="module", autouse=True)
def pods(core: CoreV1Api, namespace: Namespace) -> Iterator[None]:
    namespace.create(pod("slow", shell(SLOW, readinessProbe=TRAPS), grace=30))
    namespace.create(pod("stubborn", shell(STUBBORN), grace=2))
    namespace.create(pod("shortened", shell(STUBBORN), grace=90))
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "sleep 1; echo -n hook ran > /tmp/hook"]}}}
    namespace.create(pod("hooked", shell(HOOKED, lifecycle=hook), grace=30))
    bad_hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo no; exit 9"]}}}
    namespace.create(pod("bad-hook", sleeper(lifecycle=bad_hook), grace=30))
    namespace.create(pod("forced", shell(STUBBORN), grace=30))
    held = pod("held", shell(ENDS, readinessProbe=TRAPS), grace=30)
    held["metadata"]["finalizers"] = [FINALIZER]
    namespace.create(held)
    namespace.create(pod("crashing", shell("exit 1"), grace=30))
    namespace.create(pod("ended", shell("exit 0"), restartPolicy="Never"))
    yield
    # Pods that no test has deleted would delay the deletion of the namespace: one has a finalizer, and others have a
    # long grace period. They may disappear meanwhile.
    for found in namespace.pods.all():
        name = found.metadata.name
        with suppress(NotFoundException):
            if found.metadata.finalizers:
                core.patch_namespaced_pod(name, namespace.name, RELEASE)
            core.delete_namespaced_pod(name, namespace.name, grace_period_seconds=0)


def seconds_to_end(namespace: Namespace, name: str, since: float) -> float:
    """Return the seconds from `since`, a moment before the deletion, until the object was gone."""
    return namespace.history(name)[-1].at - since


def test_graceful_deletion_waits_for_the_process(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for_running("slow")
    begun = time.monotonic()

    core.delete_namespaced_pod("slow", namespace.name)

    marked = namespace.wait_for_seen("slow", "marked", lambda found: found.metadata.deletion_timestamp is not None)
    assert marked.metadata.deletion_grace_period_seconds == 30
    assert marked.status.phase == "Running"
    last = namespace.wait_deleted("slow")
    assert 3 <= seconds_to_end(namespace, "slow", begun) < 30
    namespace.wait_for_event("slow", "Killing", "Stopping container main", "spec.containers{main}")
    state = terminated(last.object)
    assert state is not None and (state.exit_code, state.reason, state.message) == (0, "Completed", "ended")
    assert last.object.status.phase == "Succeeded"


def test_process_that_does_not_end_is_killed_after_its_grace(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for_running("stubborn")
    begun = time.monotonic()

    core.delete_namespaced_pod("stubborn", namespace.name)

    last = namespace.wait_deleted("stubborn")
    assert 2 <= seconds_to_end(namespace, "stubborn", begun) < 30
    state = terminated(last.object)
    assert state is not None and (state.exit_code, state.reason) == (137, "Error")
    assert last.object.status.phase == "Failed"


def test_second_deletion_shortens_the_grace(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for_running("shortened")
    core.delete_namespaced_pod("shortened", namespace.name)
    namespace.wait_for_event("shortened", "Killing", "Stopping container main")

    core.delete_namespaced_pod("shortened", namespace.name, grace_period_seconds=1)

    last = namespace.wait_deleted("shortened", timeout=60)
    graces = [each.object.metadata.deletion_grace_period_seconds for each in namespace.history("shortened")]
    assert 90 in graces and 1 in graces
    state = terminated(last.object)
    assert state is not None and state.exit_code == 137


def test_pre_stop_hook_runs_before_the_process_is_told(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for_running("hooked")

    core.delete_namespaced_pod("hooked", namespace.name)

    state = terminated(namespace.wait_deleted("hooked").object)
    assert state is not None and (state.exit_code, state.message) == (0, "hook ran")


def test_failing_pre_stop_hook_is_told_and_the_pod_goes(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for_running("bad-hook")

    core.delete_namespaced_pod("bad-hook", namespace.name)

    event = namespace.wait_for_event("bad-hook", "FailedPreStopHook", "PreStopHook failed", "spec.containers{main}")
    assert event.type == "Warning"
    namespace.wait_deleted("bad-hook")


def test_forced_deletion_frees_the_name_at_once(core: CoreV1Api, namespace: Namespace) -> None:
    (first,) = namespace.wait_for_running("forced")

    core.delete_namespaced_pod("forced", namespace.name, grace_period_seconds=0)

    # This timeout is much shorter than the pod's grace period.
    namespace.wait_deleted("forced", timeout=20)
    namespace.create(pod("forced", sleeper()))
    (second,) = namespace.wait_for_running("forced")
    assert second.metadata.uid != first.metadata.uid
    assert second.status.container_statuses[0].container_id != first.status.container_statuses[0].container_id


def test_finalizer_holds_the_object_and_not_the_containers(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for_running("held")

    core.delete_namespaced_pod("held", namespace.name)

    held = namespace.wait_for("held", "Succeeded", lambda found: found.status.phase == "Succeeded")
    assert terminated(held) is not None
    assert held.metadata.finalizers == [FINALIZER]
    core.patch_namespaced_pod("held", namespace.name, RELEASE)
    namespace.wait_deleted("held")


def test_crashing_pod_goes_without_waiting_for_its_back_off(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for_seen("crashing", "a crash", lambda found: terminated(found) or last_terminated(found))
    begun = time.monotonic()

    core.delete_namespaced_pod("crashing", namespace.name)

    namespace.wait_deleted("crashing")
    # A crashing pod does not wait for its grace period either.
    assert seconds_to_end(namespace, "crashing", begun) < 30


def test_ended_pod_goes_at_once(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for("ended", "Succeeded", lambda found: found.status.phase == "Succeeded")

    core.delete_namespaced_pod("ended", namespace.name)

    namespace.wait_deleted("ended", timeout=30)


def test_deleted_pod_never_looks_alive_again(namespace: Namespace) -> None:
    """The phase of a deleted pod never moves backwards."""
    for name in ("slow", "stubborn", "hooked", "ended"):
        phases = [each.object.status.phase for each in namespace.history(name) if each.type != "DELETED"]
        order = ["Pending", "Running", "Succeeded", "Failed"]
        assert [order.index(phase) for phase in phases] == sorted(order.index(phase) for phase in phases), name
