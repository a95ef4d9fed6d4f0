"""Test one kubelet on the hollow runtime, from its start until nothing is left of its pods.

A fixture creates the pods of the slow tests all at once, and each test then checks its own pod, so that their waits
overlap. The last test waits for the garbage collector, which first runs a minute after the start.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.hollow_kubelet import HollowKubelet
from framework.pods import Pod, pod, shell, sleeper
from framework.web import ManifestServer

from kubelet.cri.remote import fake

CROWD = 100
# The garbage collector, which removes the sandboxes and logs of pods that are gone, runs once a minute.
COLLECTED = 90


@pytest.fixture(scope="module")
def empty(new_kubelet: Callable[..., HollowKubelet]) -> HollowKubelet:
    """Return a kubelet that has no pods yet."""
    kubelet = new_kubelet("pods")
    kubelet.start()
    kubelet.wait_for_log("SyncLoop ADD")
    return kubelet


@pytest.fixture(scope="module")
def threads_of_empty(empty: HollowKubelet) -> int:
    """Return the number of threads of a kubelet without pods, after it has run a pod and served its ports."""
    empty.write(pod("first", sleeper()))
    empty.wait_for_running("first")
    empty.remove("first")
    wait_until_gone(empty)
    empty.wait_for_log("Pod worker has stopped")
    empty.get("/healthz", empty.healthz_port)
    return empty.threads()


@pytest.fixture(scope="module")
def web() -> Iterator[ManifestServer]:
    """Yield the server that a pod's readiness probe queries."""
    with ManifestServer() as server:
        yield server


@pytest.fixture(scope="module")
def kubelet(empty: HollowKubelet, web: ManifestServer) -> HollowKubelet:
    """Return the kubelet with the pods of the slow tests."""
    runtime = empty.runtime
    name = empty.full_name
    empty.write(pod("crashes", shell("exit 7")))

    runtime.images.pull_errors["example.org/late:1"] = fake.not_found("example.org/late:1")
    empty.write(pod("late-image", {"name": "main", "image": "example.org/late:1"}))

    runtime.behaviours.add(fake.Behaviour(run_for=0, exit_code=1), pod=name("init"), name="second", times=1)
    inits = [shell("true", "first"), shell("true", "second")]
    empty.write(pod("init", sleeper(), initContainers=inits))

    runtime.behaviours.add(fake.Behaviour(run_for=0, exit_code=1), pod=name("on-failure"), times=1)
    empty.write(pod("on-failure", shell("exit 0"), restartPolicy="OnFailure"))
    empty.write(pod("never-fails", shell("exit 3"), restartPolicy="Never"))
    empty.write(pod("never-succeeds", shell("exit 0"), restartPolicy="Never"))

    runtime.behaviours.add(fake.Behaviour(exec_exit_code=1), pod=name("alive"), times=1)
    alive = {"exec": {"command": ["check"]}, "periodSeconds": 1, "failureThreshold": 1}
    empty.write(pod("alive", sleeper(livenessProbe=alive), grace=0))
    web.status = 500
    asked = {"host": "127.0.0.1", "port": int(web.url.split(":")[2].split("/")[0]), "path": "/"}
    ready = {"httpGet": asked, "periodSeconds": 1, "failureThreshold": 1}
    empty.write(pod("ready", sleeper(readinessProbe=ready)))
    return empty


def wait_until_gone(kubelet: HollowKubelet) -> None:
    """Wait until no pod is left, and nothing of any pod except what the garbage collector removes."""
    kubelet.wait_for("no pod is left", lambda pods: not pods)
    kubelet.wait_for_condition("no pod directory is left", lambda: not kubelet.pod_directories())
    running = runtimeapi.CONTAINER_RUNNING
    assert not [each.id for each in kubelet.runtime.containers if each.state == running]
    assert not [each.id for each in kubelet.runtime.sandboxes if each.ready]


def wait_for_threads(kubelet: HollowKubelet, count: int) -> None:
    """Wait until the kubelet has at most `count` threads."""
    kubelet.wait_for_condition(f"at most {count} threads", lambda: kubelet.threads() <= count)


def test_hundred_pods_at_once_come_and_go(empty: HollowKubelet, threads_of_empty: int) -> None:
    names = [f"crowd-{number}" for number in range(CROWD)]

    empty.write_all(*(pod(name, sleeper()) for name in names))
    running = empty.wait_for_running(*names, timeout=60)

    assert [each.restarts() for each in running] == [0] * CROWD
    assert len({each.status["podIP"] for each in running}) == CROWD
    assert empty.pod_directories() == {each.uid for each in running}
    assert all(len(empty.container_ids(name)) == 1 for name in names)

    for name in names:
        empty.remove(name)
    wait_until_gone(empty)
    wait_for_threads(empty, threads_of_empty)


def test_image_that_cannot_be_pulled_is_waited_for(kubelet: HollowKubelet) -> None:
    kubelet.wait_for_event("late-image", "Failed", "ErrImagePull")
    kubelet.wait_for_event("late-image", "Failed", "ImagePullBackOff")

    waiting = kubelet.wait_for_pod("late-image", lambda found: found.state().get("is") == "waiting")
    assert waiting.phase == "Pending"
    assert waiting.state()["reason"] in ("ErrImagePull", "ImagePullBackOff")
    assert "example.org/late:1: not found" in waiting.state()["message"]
    del kubelet.runtime.images.pull_errors["example.org/late:1"]


def test_init_containers_run_in_order_and_a_failing_one_again(kubelet: HollowKubelet) -> None:
    running = kubelet.wait_for_pod("init", lambda found: found.running)

    created = [call.request.config.metadata.name for call in kubelet.calls("init", "CreateContainer")]
    assert created == ["first", "second", "second", "main"]
    assert running.restarts("first", "initContainerStatuses") == 0
    assert running.restarts("second", "initContainerStatuses") == 1


def test_on_failure_ends_as_succeeded_after_a_restart(kubelet: HollowKubelet) -> None:
    ended = kubelet.wait_for_pod("on-failure", lambda found: found.phase == "Succeeded")

    assert ended.restarts() == 1
    assert ended.state()["reason"] == "Completed"


@pytest.mark.parametrize(
    ("name", "phase", "exit_code"), [("never-fails", "Failed", 3), ("never-succeeds", "Succeeded", 0)]
)
def test_never_ends_with_the_phase_of_the_exit_code(
    kubelet: HollowKubelet, name: str, phase: str, exit_code: int
) -> None:
    ended = kubelet.wait_for_pod(name, lambda found: found.phase == phase)

    assert (ended.restarts(), ended.state().get("exitCode", 0)) == (0, exit_code)
    assert len(kubelet.calls(name, "CreateContainer")) == 1


def test_failing_liveness_probe_restarts_the_container(kubelet: HollowKubelet) -> None:
    restarted = kubelet.wait_for_pod("alive", lambda found: found.running and found.restarts() == 1)

    kubelet.wait_for_event("alive", "Unhealthy", "Liveness probe failed")
    kubelet.wait_for_event("alive", "Killing", "failed liveness probe, will be restarted")
    (ended,) = kubelet.calls("alive", "StopContainer")
    assert ended.request.container_id != restarted.container_id()
    asked = [call.request.container_id for call in kubelet.calls("alive", "ExecSync")]
    assert asked[0] == ended.request.container_id


def test_readiness_probe_flips_ready(kubelet: HollowKubelet, web: ManifestServer) -> None:
    def ready(found: Pod) -> bool:
        conditions = {each["type"]: each["status"] for each in found.status["conditions"]}
        return bool(conditions["Ready"] == "True")

    kubelet.wait_for_event("ready", "Unhealthy", "Readiness probe failed", "500")
    unready = kubelet.wait_for_pod("ready", lambda found: found.phase == "Running")
    assert not ready(unready) and not unready.running
    web.status = 200
    assert ready(kubelet.wait_for_pod("ready", lambda found: found.running))
    web.status = 500
    unready = kubelet.wait_for_pod("ready", lambda found: not found.running)
    assert not ready(unready)
    assert unready.restarts() == 0


def test_edited_manifest_replaces_pod_and_old_one_goes_first(kubelet: HollowKubelet) -> None:
    kubelet.runtime.behaviours.add(fake.Behaviour(stop_after=0.5), pod=kubelet.full_name("edited"), times=1)
    kubelet.write(pod("edited", sleeper()))
    (old,) = kubelet.wait_for_running("edited")

    kubelet.write(pod("edited", sleeper("renamed")))

    new = kubelet.wait_for_pod("edited", lambda found: found.running and found.uid != old.uid)
    assert new.name == old.name
    story = kubelet.calls("edited", "RunPodSandbox", "StopContainer", "StopPodSandbox", "StartContainer")
    methods = [call.method for call in story]
    assert methods[:4] == ["RunPodSandbox", "StartContainer", "StopContainer", "StopPodSandbox"]
    assert story[2].request.container_id == old.container_id()
    again = methods.index("RunPodSandbox", 1)
    assert story[again].start >= story[3].start + story[3].duration
    assert story[again].request.config.metadata.uid == new.uid


def test_removed_manifest_ends_pod_within_its_grace(kubelet: HollowKubelet) -> None:
    kubelet.write(pod("removed", sleeper(), grace=7))
    (gone,) = kubelet.wait_for_running("removed")

    kubelet.remove("removed")

    kubelet.wait_for("the pod is gone", lambda pods: "removed" not in pods)
    kubelet.wait_for_condition("the pod's directory is gone", lambda: gone.uid not in kubelet.pod_directories())
    stopped, *_ = story = kubelet.calls("removed", "StopContainer", "StopPodSandbox")
    assert [call.method for call in story[:2]] == ["StopContainer", "StopPodSandbox"]
    assert (stopped.request.container_id, stopped.request.timeout) == (gone.container_id(), 7)
    kubelet.wait_for_event("removed", "Killing", "Stopping container main")


def test_pod_put_back_while_terminating_comes_up_after(kubelet: HollowKubelet) -> None:
    manifest = pod("put-back", sleeper(), grace=30)
    kubelet.write(manifest)
    (first,) = kubelet.wait_for_running("put-back")
    hang = kubelet.hang("StopContainer", "put-back")
    added = ("SyncLoop ADD", kubelet.full_name("put-back"))

    kubelet.remove("put-back")
    kubelet.wait_for_call_in(hang)
    kubelet.write(manifest)
    kubelet.wait_for_log(*added, count=2)
    assert len(kubelet.calls("put-back", "RunPodSandbox")) == 1
    kubelet.runtime.faults.remove(hang)

    second = kubelet.wait_for_pod(
        "put-back", lambda found: found.running and found.container_id() != first.container_id()
    )
    assert second.uid == first.uid
    assert kubelet.container_ids("put-back") == [second.container_id()]
    *_, again = kubelet.calls("put-back", "RunPodSandbox")
    stopped, *_ = kubelet.calls("put-back", "StopContainer")
    assert again.start >= stopped.start + stopped.duration


def test_active_deadline_ends_the_pod(kubelet: HollowKubelet) -> None:
    kubelet.write(pod("deadline", sleeper(), activeDeadlineSeconds=1))

    ended = kubelet.wait_for_pod("deadline", lambda found: found.phase == "Failed")

    assert ended.status["reason"] == "DeadlineExceeded"
    kubelet.wait_for_condition("the pod's container has ended", lambda: not kubelet.container_ids("deadline"))
    kubelet.wait_for_event("deadline", "DeadlineExceeded")


def test_image_is_pulled_once_it_is_there(kubelet: HollowKubelet) -> None:
    kubelet.wait_for_running("late-image")

    pulls = [c for c in kubelet.runtime.recorder.calls(["PullImage"]) if "late" in c.request.image.image]
    # The kubelet tried at least once before the image appeared, or more often if the image appeared late.
    assert len(pulls) >= 2
    assert [bool(each.error) for each in pulls] == [True] * (len(pulls) - 1) + [False]
    pauses = [after.start - before.start for before, after in itertools.pairwise(pulls)]
    assert all(pause >= min(10 * 2**number, 300) for number, pause in enumerate(pauses)), pauses


def test_crashing_container_is_restarted_with_growing_back_off(kubelet: HollowKubelet) -> None:
    kubelet.wait_for_log("Back-off restarting failed container", "back-off 20s", "crashes-pods")

    crashing = kubelet.wait_for_pod("crashes", lambda found: found.restarts() >= 2)
    assert crashing.phase == "Running"
    kubelet.wait_for_event("crashes", "BackOff", "Back-off restarting failed container main")
    _, second, third = (call.start for call in kubelet.calls("crashes", "StartContainer")[:3])
    assert third - second >= 10
    told = kubelet.logged("Event occurred", f'object="default/{kubelet.full_name("crashes")}"')
    reasons = [each for line in told for each in ("Started", "BackOff") if f'reason="{each}"' in line]
    assert reasons[:2] == ["Started", "Started"], "the kubelet delayed the first restart"
    attempts = [call.request.config.metadata.attempt for call in kubelet.calls("crashes", "CreateContainer")]
    assert attempts[:3] == [0, 1, 2]


def test_one_hanging_sandbox_stalls_its_own_pod_alone(kubelet: HollowKubelet) -> None:
    hangs = {f"stuck-{method.lower()}": method for method in ("PodSandboxStatus", "ContainerStatus")}
    faults = {name: kubelet.hang(method, name) for name, method in hangs.items()}

    kubelet.write_all(*(pod(name, sleeper()) for name in hangs))
    for fault in faults.values():
        kubelet.wait_for_call_in(fault)
    kubelet.write(pod("beside", sleeper()))
    (beside,) = kubelet.wait_for_running("beside")
    kubelet.runtime.end_container(beside.container_id(), 1)
    kubelet.wait_for_pod("beside", lambda found: found.running and found.restarts() == 1)
    kubelet.remove("beside")
    kubelet.wait_for("the removed pod is gone", lambda pods: "beside" not in pods)
    kubelet.wait_for_condition("the pod's directory is gone", lambda: beside.uid not in kubelet.pod_directories())

    for name, fault in faults.items():
        stuck = kubelet.pods()[name]
        (sandbox,) = (each.id for each in kubelet.runtime.sandboxes if each.config.metadata.uid == stuck.uid)
        call = f'call="GetPodStatus of pod default/{stuck.name} (uid {stuck.uid}, sandbox {sandbox}) has not returned'
        kubelet.wait_for_log("Inspecting the pod takes long", call)
        assert (stuck.phase, fault.waiting > 0) == ("Pending", True)
    assert kubelet.get("/healthz", kubelet.healthz_port) == "ok"

    for fault in faults.values():
        kubelet.runtime.faults.remove(fault)
    kubelet.wait_for_running(*hangs)


def test_runtime_that_dies_and_comes_again(kubelet: HollowKubelet) -> None:
    kubelet.write_all(pod("stays", sleeper()), pod("goes", sleeper()))
    stays, goes = kubelet.wait_for_running("stays", "goes")

    kubelet.server.stop()
    kubelet.wait_for_log("GenericPLEG: Unable to retrieve pods", "is the container runtime running?")
    kubelet.write(pod("comes", sleeper()))
    kubelet.remove("goes")
    kubelet.wait_for_event("comes", "FailedCreatePodSandBox", "is the container runtime running?")
    kubelet.wait_for_log("Pod has been deleted and must be killed", goes.name)
    assert kubelet.pods()["stays"].running
    kubelet.server.start()

    kubelet.wait_for_running("stays", "comes")
    kubelet.wait_for_condition("the removed pod's container has ended", lambda: not kubelet.container_ids("goes"))
    kubelet.wait_for_condition("the pod's directory is gone", lambda: goes.uid not in kubelet.pod_directories())
    found = kubelet.pods()["stays"]
    assert (found.container_id(), found.restarts()) == (stays.container_id(), 0)
    assert kubelet.container_ids("stays") == [stays.container_id()]
    assert [len(kubelet.calls(name, "StartContainer")) for name in ("stays", "comes")] == [1, 1]


def test_nothing_is_left(kubelet: HollowKubelet, threads_of_empty: int) -> None:
    for manifest in kubelet.manifests.glob("*.json"):
        manifest.unlink()

    wait_until_gone(kubelet)
    wait_for_threads(kubelet, threads_of_empty)
    kubelet.wait_for_condition("no container is left", lambda: not kubelet.runtime.containers, COLLECTED)
    kubelet.wait_for_condition("no sandbox is left", lambda: not kubelet.runtime.sandboxes, COLLECTED)
    kubelet.wait_for_condition("no logs are left", lambda: not kubelet.pod_logs(), COLLECTED)
    # The worker counts date from the last housekeeping, so they may be out of date.
    kubelet.wait_for_condition("the metrics count no pod", lambda: not any(counted_pods(kubelet).values()), COLLECTED)


def counted_pods(kubelet: HollowKubelet) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in kubelet.get("/metrics").splitlines()]
    counted = ("kubelet_working_pods{", "kubelet_running_pods ")
    counts = {name: float(value) for name, blank, value in lines if (name + blank).startswith(counted)}
    assert counts
    return counts
