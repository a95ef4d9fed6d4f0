"""Describe in words what a pod worker is doing, and name the function that does it.

Go: none
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kubelet.activity import Activity
from kubelet.liveview.history import Call
from kubelet.pod_workers import PodWorkerSnapshot


class Step(NamedTuple):
    """Describe what a worker does, and name the file and the function that do it."""

    text: str
    file: str
    function: str


STEPS = {
    Activity.BETWEEN_STEPS: Step("is between two steps", "kubelet/pod_workers.py", "PodWorkers.pod_worker_loop"),
    Activity.WAITS_FOR_UPDATE: Step(
        "waits for a change or its next sync", "kubelet/pod_workers.py", "_wait_for_update"
    ),
    Activity.WAITS_FOR_STATUS: Step(
        "waits for the PLEG to observe the result of its last step",
        "kubelet/pod_workers.py",
        "PodWorkers._wait_for_status",
    ),
    Activity.SYNCS: Step("is being synced", "kubelet/kubelet.py", "Kubelet.sync_pod"),
    Activity.TERMINATES: Step("is being stopped", "kubelet/kubelet.py", "Kubelet.sync_terminating_pod"),
    Activity.CLEANS_UP: Step("is being cleaned up", "kubelet/kubelet.py", "Kubelet.sync_terminated_pod"),
    Activity.MAKES_CGROUP: Step("creates its cgroup", "kubelet/kubelet.py", "Kubelet._sync_pod"),
    Activity.RECONCILES_MIRROR_POD: Step(
        "reconciles its mirror pod in the API server", "kubelet/kubelet.py", "Kubelet._sync_pod"
    ),
    Activity.MAKES_DIRECTORIES: Step("creates its directories", "kubelet/kubelet.py", "Kubelet._sync_pod"),
    Activity.WAITS_FOR_VOLUMES: Step("waits for its volumes", "kubelet/kubelet.py", "Kubelet._wait_for_volumes"),
    Activity.READS_PULL_SECRETS: Step("reads its pull secrets", "kubelet/kubelet.py", "Kubelet._sync_pod"),
    Activity.ENSURES_IMAGE: Step(
        "checks whether an image is present", "kubelet/images/image_manager.py", "ImageManager.ensure_image_exists"
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
        "waits for its containers to stop",
        "kubelet/kuberuntime/kuberuntime_container.py",
        "ContainerMethods.kill_containers_with_sync_result",
    ),
    Activity.WAITS_FOR_UNMOUNT: Step(
        "waits until volumes are unmounted", "kubelet/kubelet.py", "Kubelet._sync_terminated_pod"
    ),
    Activity.WAITS_FOR_VOLUME_PATHS: Step(
        "waits until none of its volume paths is mounted", "kubelet/kubelet.py", "Kubelet._sync_terminated_pod"
    ),
}

_SERVICES = "kubelet/kuberuntime/instrumented_services.py"
# These are the runtime calls that a worker itself waits for.
CALLS = {
    "pull_image": Step("pulls an image", _SERVICES, "InstrumentedImageManagerService.pull_image"),
    "run_podsandbox": Step(
        "waits for the runtime to create its sandbox", _SERVICES, "InstrumentedRuntimeService.run_pod_sandbox"
    ),
    "create_container": Step(
        "waits for the runtime to create a container", _SERVICES, "InstrumentedRuntimeService.create_container"
    ),
    "start_container": Step(
        "waits for the runtime to start a container", _SERVICES, "InstrumentedRuntimeService.start_container"
    ),
    "stop_podsandbox": Step(
        "waits for the runtime to stop its sandbox", _SERVICES, "InstrumentedRuntimeService.stop_pod_sandbox"
    ),
}


def of_worker(worker: PodWorkerSnapshot | None, calls: Iterable[Call]) -> Step | None:
    """Return what the worker does, or None if there is no worker. `calls` are the pod's runtime calls under way."""
    if worker is None or worker.activity is None:
        return None
    if worker.step_began is not None:
        for call in calls:
            if call.operation in CALLS:
                return CALLS[call.operation]
    return STEPS[worker.activity]
