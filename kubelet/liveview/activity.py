"""What a pod worker is at, in words, with the function that does it.

Go: none
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kubelet.activity import Activity
from kubelet.liveview.history import Call
from kubelet.pod_workers import PodWorkerSnapshot


class Step(NamedTuple):
    """What a worker does, and where: the function in this file."""

    text: str
    file: str
    function: str


STEPS = {
    Activity.BETWEEN_STEPS: Step("is between two steps", "kubelet/pod_workers.py", "PodWorkers.pod_worker_loop"),
    Activity.WAITS_FOR_UPDATE: Step(
        "waits for a change or its next sync", "kubelet/pod_workers.py", "_wait_for_update"
    ),
    Activity.WAITS_FOR_STATUS: Step(
        "waits for the PLEG to see what its last step did", "kubelet/pod_workers.py", "PodWorkers._wait_for_status"
    ),
    Activity.SYNCS: Step("is being synced", "kubelet/kubelet.py", "Kubelet.sync_pod"),
    Activity.TERMINATES: Step("is being stopped", "kubelet/kubelet.py", "Kubelet.sync_terminating_pod"),
    Activity.CLEANS_UP: Step("is being cleaned up", "kubelet/kubelet.py", "Kubelet.sync_terminated_pod"),
    Activity.MAKES_CGROUP: Step("makes its cgroup", "kubelet/kubelet.py", "Kubelet._sync_pod"),
    Activity.RECONCILES_MIRROR_POD: Step(
        "sees to its mirror pod in the API server", "kubelet/kubelet.py", "Kubelet._sync_pod"
    ),
    Activity.MAKES_DIRECTORIES: Step("makes its directories", "kubelet/kubelet.py", "Kubelet._sync_pod"),
    Activity.WAITS_FOR_VOLUMES: Step("waits for its volumes", "kubelet/kubelet.py", "Kubelet._wait_for_volumes"),
    Activity.READS_PULL_SECRETS: Step("reads its pull secrets", "kubelet/kubelet.py", "Kubelet._sync_pod"),
    Activity.ENSURES_IMAGE: Step(
        "sees that an image is there", "kubelet/images/image_manager.py", "ImageManager.ensure_image_exists"
    ),
    Activity.WAITS_FOR_PULL: Step(
        "waits for its turn to pull an image", "kubelet/images/puller.py", "ParallelImagePuller.pull_image"
    ),
    Activity.RUNS_POST_START_HOOK: Step(
        "runs a postStart hook",
        "kubelet/kuberuntime/kuberuntime_container.py",
        "ContainerMethods._run_post_start_hook",
    ),
    Activity.STOPS_CONTAINERS: Step(
        "waits for its containers to end",
        "kubelet/kuberuntime/kuberuntime_container.py",
        "ContainerMethods.kill_containers_with_sync_result",
    ),
    Activity.WAITS_FOR_UNMOUNT: Step(
        "waits until volumes are unmounted", "kubelet/kubelet.py", "Kubelet._sync_terminated_pod"
    ),
    Activity.WAITS_FOR_VOLUME_PATHS: Step(
        "waits until nothing of it is mounted any more", "kubelet/kubelet.py", "Kubelet._sync_terminated_pod"
    ),
}

_SERVICES = "kubelet/kuberuntime/instrumented_services.py"
# The calls of the runtime that a worker waits for itself.
CALLS = {
    "pull_image": Step("pulls an image", _SERVICES, "InstrumentedImageManagerService.pull_image"),
    "run_podsandbox": Step("has the runtime make its sandbox", _SERVICES, "InstrumentedRuntimeService.run_pod_sandbox"),
    "create_container": Step(
        "has the runtime create a container", _SERVICES, "InstrumentedRuntimeService.create_container"
    ),
    "start_container": Step(
        "has the runtime start a container", _SERVICES, "InstrumentedRuntimeService.start_container"
    ),
    "stop_podsandbox": Step(
        "has the runtime stop its sandbox", _SERVICES, "InstrumentedRuntimeService.stop_pod_sandbox"
    ),
}


def of_worker(worker: PodWorkerSnapshot | None, calls: Iterable[Call]) -> Step | None:
    """What the worker does, for whose pod these calls of the runtime are under way; None if there is no worker."""
    if worker is None or worker.activity is None:
        return None
    if worker.step_began is not None:
        for call in calls:
            if call.operation in CALLS:
                return CALLS[call.operation]
    return STEPS[worker.activity]
