"""Test pods from their creation: the content and order of their statuses, their ends, and their events.

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap.
"""

from __future__ import annotations

import re

import pytest
from framework.cluster_client import (
    Namespace,
    conditions,
    container,
    is_true,
    last_terminated,
    restarts,
    terminated,
    waiting_reason,
)
from framework.pods import pod, shell, sleeper
from kubernetes.client import CoreV1Api, V1Pod

# Nothing listens at this address on any machine, so the pull fails at once.
NO_IMAGE = "localhost:1/not-there:1"
BAD_IMAGE = "Not/A/Reference::"


@pytest.fixture(scope="module", autouse=True)
def pods(namespace: Namespace) -> None:
    namespace.create(pod("runs", sleeper()))
    namespace.create(pod("crashes", shell("exit 7")))
    namespace.create(pod("no-image", {"name": "main", "image": NO_IMAGE}))
    namespace.create(pod("bad-image", {"name": "main", "image": BAD_IMAGE}))
    namespace.create(pod("never-pulled", {"name": "main", "image": NO_IMAGE, "imagePullPolicy": "Never"}))
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "echo not well; exit 4"]}}}
    namespace.create(pod("bad-hook", sleeper(lifecycle=hook), restartPolicy="Never"))
    sidecar = sleeper("sidecar", restartPolicy="Always")
    # The sidecar must run long enough for a status that shows it running.
    namespace.create(pod("sidecar", shell("sleep 10"), initContainers=[sidecar], restartPolicy="Never", grace=30))
    namespace.create(pod("succeeds", shell("echo -n done > /dev/termination-log"), restartPolicy="Never"))
    namespace.create(pod("fails", shell("exit 3"), restartPolicy="Never"))
    again = "test -e /data/tried && exit 0; touch /data/tried; exit 1"
    namespace.create(with_data(pod("on-failure", shell(again), restartPolicy="OnFailure")))
    # The other container sees the file only if both share the volume.
    sees = {"exec": {"command": ["test", "-e", "/data/ready"]}, "periodSeconds": 1}
    writer = shell("touch /data/ready; trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done", "writer")
    namespace.create(with_data(pod("two", writer, sleeper("reader", readinessProbe=sees))))
    namespace.create(pod("on-host", sleeper(), hostNetwork=True))
    env = {"name": "MARK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['mark']"}}}
    labelled = pod("labelled", shell("echo -n $MARK > /dev/termination-log; sleep 1; exit 0", env=[env]))
    labelled["metadata"]["labels"] = {"mark": "before"}
    namespace.create(labelled)


def with_data(manifest: dict[str, object]) -> dict[str, object]:
    """Mount one empty directory at /data in all containers."""
    spec = manifest["spec"]
    assert isinstance(spec, dict)
    spec["volumes"] = [{"name": "data", "emptyDir": {}}]
    for each in [*spec.get("initContainers", []), *spec["containers"]]:
        each["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return manifest


def test_running_pod_tells_all_about_itself(namespace: Namespace) -> None:
    (found,) = namespace.wait_for_running("runs")

    status = found.status
    assert status.pod_ip and status.pod_ips[0].ip == status.pod_ip
    assert status.host_ip and status.host_ips[0].ip == status.host_ip
    assert status.pod_ip != status.host_ip
    assert status.start_time is not None
    assert status.qos_class == "BestEffort"
    assert {name: each.status for name, each in conditions(found).items()} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    main = container(found)
    assert main is not None
    assert main.state.running is not None and main.state.running.started_at is not None
    assert (main.ready, main.started, main.restart_count) == (True, True, 0)
    assert re.fullmatch(r"\w+://\w+", main.container_id)
    assert main.image and main.image_id


def test_conditions_become_true_in_order_and_stay_so(namespace: Namespace) -> None:
    namespace.wait_for_running("runs")

    versions = [each.object for each in namespace.history("runs")]
    first_true = {
        name: next(number for number, version in enumerate(versions) if is_true(version, name))
        for name in ("PodScheduled", "Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready")
    }
    assert first_true["PodScheduled"] <= first_true["Initialized"] <= first_true["PodReadyToStartContainers"]
    assert first_true["PodReadyToStartContainers"] <= first_true["ContainersReady"] <= first_true["Ready"]
    for name, number in first_true.items():
        assert all(is_true(version, name) for version in versions[number:]), name
    phases = [version.status.phase for version in versions]
    assert phases == sorted(phases, key=["Pending", "Running"].index)


def test_events_of_a_start_are_in_the_words_of_upstream(namespace: Namespace) -> None:
    field = "spec.containers{main}"
    image = re.escape(namespace.images.busybox)
    namespace.wait_for_event(
        "runs", "Pulled", f'(Container image "{image}" already present on machine|Successfully pulled image).*', field
    )
    namespace.wait_for_event("runs", "Created", "Container created", field)
    started = namespace.wait_for_event("runs", "Started", "Container started", field)

    assert started.type == "Normal"
    assert started.source.component == "kubelet"
    assert started.source.host == namespace.node
    assert started.reporting_component == "kubelet"
    assert started.count == 1
    assert started.involved_object.kind == "Pod"
    assert started.involved_object.uid == namespace.history("runs")[0].object.metadata.uid


def test_container_that_ends_well_succeeds(namespace: Namespace) -> None:
    ended = namespace.wait_for("succeeds", "Succeeded", lambda found: found.status.phase == "Succeeded")

    state = terminated(ended)
    assert state is not None
    assert (state.exit_code, state.reason, state.message) == (0, "Completed", "done")
    assert state.started_at is not None and state.finished_at is not None
    assert restarts(ended) == 0
    assert conditions(ended)["Ready"].status == "False"
    assert conditions(ended)["Ready"].reason == "PodCompleted"
    assert conditions(ended)["Initialized"].reason == "PodCompleted"


def test_container_that_ends_badly_fails(namespace: Namespace) -> None:
    ended = namespace.wait_for("fails", "Failed", lambda found: found.status.phase == "Failed")

    state = terminated(ended)
    assert state is not None
    assert (state.exit_code, state.reason) == (3, "Error")
    assert restarts(ended) == 0
    assert conditions(ended)["Ready"].reason == "PodFailed"
    namespace.wait_for(
        "fails", "no sandbox in the status", lambda found: not is_true(found, "PodReadyToStartContainers")
    )


def test_on_failure_is_tried_again_until_it_succeeds(namespace: Namespace) -> None:
    ended = namespace.wait_for("on-failure", "Succeeded", lambda found: found.status.phase == "Succeeded")

    assert restarts(ended) == 1
    assert conditions(ended)["Initialized"].reason == "PodCompleted"


def test_two_containers_share_a_volume(namespace: Namespace) -> None:
    (found,) = namespace.wait_for_running("two")

    assert [each.name for each in found.status.container_statuses] == ["reader", "writer"]
    assert all(each.ready for each in found.status.container_statuses)


def test_host_network_pod_has_the_address_of_the_node(namespace: Namespace) -> None:
    (found,) = namespace.wait_for_running("on-host")

    assert found.status.pod_ip == found.status.host_ip


def test_label_reaches_the_environment_at_the_next_start_and_not_before(core: CoreV1Api, namespace: Namespace) -> None:
    first = namespace.wait_for_seen("labelled", "the first end", lambda found: ended_with(found) == "before")
    core.patch_namespaced_pod("labelled", namespace.name, {"metadata": {"labels": {"mark": "after"}}})

    again = namespace.wait_for_seen("labelled", "a later end", lambda found: ended_with(found) == "after")
    assert first.metadata.uid == again.metadata.uid
    assert again.metadata.labels == {"mark": "after"}


def ended_with(found: V1Pod) -> str:
    state = terminated(found) or last_terminated(found)
    return state.message or "" if state is not None else ""


def test_missing_image_is_pulled_again_with_back_off(namespace: Namespace) -> None:
    namespace.wait_for_seen("no-image", "ErrImagePull", lambda found: waiting_reason(found) == "ErrImagePull")
    found = namespace.wait_for_seen(
        "no-image", "ImagePullBackOff", lambda found: waiting_reason(found) == "ImagePullBackOff"
    )

    image = re.escape(NO_IMAGE)
    assert found.status.phase == "Pending"
    assert conditions(found)["ContainersReady"].message == "containers with unready status: [main]"
    field = "spec.containers{main}"
    namespace.wait_for_event("no-image", "Pulling", f'Pulling image "{image}"', field)
    namespace.wait_for_event("no-image", "Failed", f'Failed to pull image "{image}": .+', field)
    namespace.wait_for_event("no-image", "Failed", "Error: ErrImagePull", field)
    back_off = namespace.wait_for_event("no-image", "BackOff", f'Back-off pulling image "{image}"', field)
    assert back_off.type == "Normal"
    namespace.wait_for_event("no-image", "Failed", "Error: ImagePullBackOff", field)


def test_corrected_image_lets_the_pod_run(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for_seen("bad-image", "InvalidImageName", lambda found: waiting_reason(found) == "InvalidImageName")
    inspect = namespace.wait_for_event(
        "bad-image",
        "InspectFailed",
        f'Failed to apply default image tag "{re.escape(BAD_IMAGE)}": '
        f'couldn\'t parse image name "{re.escape(BAD_IMAGE)}": invalid reference format.*',
    )
    namespace.wait_for_event("bad-image", "Failed", "Error: InvalidImageName")
    assert inspect.type == "Warning"

    image = namespace.images.pause
    core.patch_namespaced_pod("bad-image", namespace.name, {"spec": {"containers": [{"name": "main", "image": image}]}})

    (found,) = namespace.wait_for_running("bad-image")
    assert restarts(found) == 0


def test_image_that_must_not_be_pulled_is_missed(namespace: Namespace) -> None:
    namespace.wait_for("never-pulled", "ErrImageNeverPull", lambda found: waiting_reason(found) == "ErrImageNeverPull")

    message = f'Container image "{re.escape(NO_IMAGE)}" is not present with pull policy of Never'
    event = namespace.wait_for_event("never-pulled", "ErrImageNeverPull", message, "spec.containers{main}")
    assert event.type == "Warning"
    namespace.wait_for_event("never-pulled", "Failed", "Error: ErrImageNeverPull", "spec.containers{main}")


def test_failing_post_start_hook_ends_the_container(namespace: Namespace) -> None:
    namespace.wait_for("bad-hook", "Failed or Succeeded", lambda found: terminated(found) is not None)

    event = namespace.wait_for_event("bad-hook", "FailedPostStartHook", "PostStartHook failed", "spec.containers{main}")
    assert event.type == "Warning"
    namespace.wait_for_event("bad-hook", "Killing", "FailedPostStartHook", "spec.containers{main}")


def test_sidecar_runs_before_the_main_container_and_ends_after_it(namespace: Namespace) -> None:
    ended = namespace.wait_for("sidecar", "Succeeded", lambda found: found.status.phase == "Succeeded")

    main, sidecar = terminated(ended), terminated(ended, "sidecar")
    assert main is not None and sidecar is not None
    assert (main.exit_code, sidecar.exit_code) == (0, 0)
    assert sidecar.started_at is not None and main.started_at is not None and sidecar.started_at <= main.started_at
    assert main.finished_at is not None and sidecar.finished_at is not None and main.finished_at <= sidecar.finished_at
    assert any(is_true(each.object, "Ready") for each in namespace.history("sidecar"))


def test_crashing_container_is_restarted_with_back_off(namespace: Namespace) -> None:
    found = namespace.wait_for_seen(
        "crashes",
        "CrashLoopBackOff",
        lambda found: waiting_reason(found) == "CrashLoopBackOff",
    )

    uid = found.metadata.uid
    assert found.status.phase == "Running"
    state = last_terminated(found)
    assert state is not None and (state.exit_code, state.reason) == (7, "Error")
    main = container(found)
    assert main is not None and main.state.waiting is not None
    text = f"back-off 10s restarting failed container=main pod=crashes_{namespace.name}({uid})"
    assert main.state.waiting.message == text
    message = re.escape(f"Back-off restarting failed container main in pod crashes_{namespace.name}({uid})")
    event = namespace.wait_for_event("crashes", "BackOff", message, "spec.containers{main}")
    assert event.type == "Warning"
    namespace.wait_for("crashes", "two restarts", lambda found: restarts(found) >= 2)


def test_restart_counts_never_fall(namespace: Namespace) -> None:
    namespace.wait_for("crashes", "a restart", lambda found: restarts(found) >= 1)

    counts = [restarts(each.object) for each in namespace.history("crashes")]
    assert counts == sorted(counts)
