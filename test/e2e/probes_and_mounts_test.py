"""Test pods that need action by the kubelet itself: failing and passing probes, missing volumes, and deadlines.

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap.
"""

from __future__ import annotations

import re

import pytest
from framework.cluster_client import Namespace, conditions, container, is_true, last_terminated, restarts
from framework.pods import pod, shell, sleeper
from kubernetes.client import CoreV1Api, V1Pod

SERVE = "mkdir -p /tmp/www && echo fine > /tmp/www/health && exec httpd -f -p 8080 -h /tmp/www"
FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
SECONDS = {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5}
GATE = "example.com/gate"


@pytest.fixture(scope="module", autouse=True)
def pods(namespace: Namespace) -> None:
    dead = {"exec": {"command": ["sh", "-c", "echo no life; exit 1"]}, **SECONDS}
    # The delay lets the shell install its signal handler, so that the container can end by itself.
    namespace.create(pod("liveness", sleeper(livenessProbe={**dead, "initialDelaySeconds": 3}), grace=30))
    http = {"httpGet": {"path": "/not-there", "port": 8080}, **SECONDS}
    namespace.create(pod("readiness", shell(SERVE, readinessProbe=http)))
    healthy = {"httpGet": {"path": "/health", "port": 8080}, **SECONDS, "failureThreshold": 20}
    tcp = {"tcpSocket": {"port": 8080}, **SECONDS, "failureThreshold": 20}
    namespace.create(pod("all-probes", shell(SERVE, readinessProbe=healthy, livenessProbe=tcp, startupProbe=healthy)))
    becomes = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, **SECONDS}
    # The container becomes ready only after its first status has been sent.
    late = shell(f"sleep 10; touch /tmp/ready; {FOREVER}", readinessProbe=becomes)
    namespace.create(pod("late", late))
    never_started = {"exec": {"command": ["false"]}, **SECONDS, "failureThreshold": 2}
    namespace.create(pod("startup", sleeper(startupProbe=never_started, livenessProbe=dead)))
    missing = [{"name": "v", "hostPath": {"path": "/not/there/at/all", "type": "Directory"}}]
    mount = [{"name": "v", "mountPath": "/v"}]
    namespace.create(pod("no-volume", sleeper(volumeMounts=mount), volumes=missing))
    # Even a busy node starts all pods of this file within the deadline.
    namespace.create(pod("deadline", sleeper(), activeDeadlineSeconds=30))
    namespace.create(pod("deadline-later", sleeper()))
    namespace.create(pod("gated", sleeper(), readinessGates=[{"conditionType": GATE}]))


def test_failing_liveness_probe_restarts_the_container(namespace: Namespace) -> None:
    found = namespace.wait_for("liveness", "a restart", lambda found: restarts(found) >= 1)

    field = "spec.containers{main}"
    unhealthy = namespace.wait_for_event("liveness", "Unhealthy", "Liveness probe failed: no life\n", field)
    assert unhealthy.type == "Warning"
    message = "Container main failed liveness probe, will be restarted"
    killing = namespace.wait_for_event("liveness", "Killing", message, field)
    assert killing.type == "Normal"
    state = last_terminated(found)
    assert state is not None and (state.exit_code, state.reason) == (0, "Completed")


def test_failing_startup_probe_restarts_the_container_before_liveness_is_asked(namespace: Namespace) -> None:
    namespace.wait_for("startup", "a restart", lambda found: restarts(found) >= 1)

    namespace.wait_for_event("startup", "Unhealthy", "Startup probe failed: .*")
    namespace.wait_for_event("startup", "Killing", "Container main failed startup probe, will be restarted")
    assert not [each for each in namespace.events_of("startup") if "Liveness" in each.message]
    versions = [each.object for each in namespace.history("startup")]
    assert not any(main.started for version in versions if (main := container(version)) is not None)


def test_failing_readiness_probe_leaves_the_container_running_and_not_ready(namespace: Namespace) -> None:
    event = namespace.wait_for_event(
        "readiness", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404"
    )
    assert event.type == "Warning"
    found = namespace.wait_for("readiness", "Running", lambda found: found.status.phase == "Running")

    assert restarts(found) == 0
    assert conditions(found)["Ready"].reason == "ContainersNotReady"
    assert conditions(found)["Ready"].message == "containers with unready status: [main]"
    assert not any(is_true(each.object, "Ready") for each in namespace.history("readiness"))


def test_container_that_passes_all_probes_is_ready(namespace: Namespace) -> None:
    (found,) = namespace.wait_for_running("all-probes")

    assert restarts(found) == 0
    main = container(found)
    assert main is not None and main.started


def test_pod_gets_ready_when_its_probe_passes(namespace: Namespace) -> None:
    namespace.wait_for_running("late")

    history = [each.object for each in namespace.history("late")]
    running = next(version for version in history if version.status.phase == "Running")
    assert not is_true(running, "Ready")
    assert conditions(running)["Ready"].reason == "ContainersNotReady"


def test_readiness_gate_holds_the_pod_back_until_its_condition_is_true(core: CoreV1Api, namespace: Namespace) -> None:
    found = namespace.wait_for("gated", "the containers are ready", lambda found: is_true(found, "ContainersReady"))
    ready = conditions(found)["Ready"]
    assert ready.reason == "ReadinessGatesNotReady"
    assert ready.message == f'corresponding condition of pod readiness gate "{GATE}" does not exist.'

    passed = {"type": GATE, "status": "True"}
    core.patch_namespaced_pod_status("gated", namespace.name, {"status": {"conditions": [passed]}})
    namespace.wait_for_running("gated")

    held_back = {"type": GATE, "status": "False"}
    core.patch_namespaced_pod_status("gated", namespace.name, {"status": {"conditions": [held_back]}})
    namespace.wait_for("gated", "not ready", lambda found: not is_true(found, "Ready"))


def test_missing_volume_is_told_and_the_pod_waits(namespace: Namespace) -> None:
    why = "hostPath type check failed: /not/there/at/all is not a directory"
    message = re.escape(f'MountVolume.SetUp failed for volume "v" : {why}')
    event = namespace.wait_for_event("no-volume", "FailedMount", message)
    found = namespace.wait_for("no-volume", "a status", lambda found: bool(found.status.container_statuses))

    assert event.type == "Warning"
    assert found.status.phase == "Pending"
    assert not is_true(found, "PodReadyToStartContainers")
    main = container(found)
    assert main is not None and main.state.waiting is not None
    assert main.state.waiting.reason == "ContainerCreating"


def test_active_deadline_ends_the_pod(namespace: Namespace) -> None:
    assert_ended_by_deadline(namespace, "deadline")


def test_active_deadline_may_be_given_to_a_running_pod(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for_running("deadline-later")

    core.patch_namespaced_pod("deadline-later", namespace.name, {"spec": {"activeDeadlineSeconds": 1}})

    assert_ended_by_deadline(namespace, "deadline-later")


def assert_ended_by_deadline(namespace: Namespace, name: str) -> None:
    ended = namespace.wait_for(name, "Failed", lambda found: found.status.phase == "Failed")
    assert ended.status.reason == "DeadlineExceeded"
    assert ended.status.message == "Pod was active on the node longer than the specified deadline"
    namespace.wait_for_event(name, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
    namespace.wait_for_event(name, "Killing", "Stopping container main")
    namespace.wait_for(name, "an ended container in the status", lambda found: has_ended(found))


def has_ended(found: V1Pod) -> bool:
    main = container(found)
    return main is not None and main.state.terminated is not None
