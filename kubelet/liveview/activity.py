"""What a pod worker is at, read from the stack of its thread.

Go: none

Reading stacks costs nothing while nobody looks, and cannot be forgotten when code changes: a test makes sure that the
functions named here exist.
"""

from __future__ import annotations

import threading
from types import FrameType
from typing import NamedTuple

from pkg.golang import debug

_WORKER = "podworker-"

# (end of the file's name, function) → what a thread that is in it does. The innermost one counts.
STEPS = {
    ("kubelet/pod_workers.py", "_wait_for_update"): "waits for a change or its next sync",
    ("kubelet/container/cache.py", "CacheImpl.get_newer_than"): "waits for the PLEG to see what its last step did",
    ("kubelet/volumemanager/volume_manager.py", "VolumeManager.wait_for_attach_and_mount"): "waits for its volumes",
    ("kubelet/volumemanager/volume_manager.py", "VolumeManager.wait_for_unmount"): "waits until volumes are unmounted",
    ("kubelet/kubelet_pods.py", "KubeletPods.get_pull_secrets_for_pod"): "reads its pull secrets",
    ("kubelet/kubelet.py", "Kubelet._prepare_pod_data_dirs"): "makes its directories",
    ("kubelet/kubelet.py", "Kubelet._ensure_pod_cgroup"): "makes its cgroup",
    ("kubelet/kubelet.py", "Kubelet.try_reconcile_mirror_pods"): "sees to its mirror pod in the API server",
    ("kubelet/images/puller.py", "_Turns.take"): "waits for its turn to pull an image",
    ("kubelet/images/image_manager.py", "ImageManager.ensure_image_exists"): "sees that an image is there",
    ("kubelet/kuberuntime/instrumented_services.py", "InstrumentedImageManagerService.pull_image"): "pulls an image",
    (
        "kubelet/kuberuntime/instrumented_services.py",
        "InstrumentedRuntimeService.run_pod_sandbox",
    ): "has the runtime make its sandbox",
    (
        "kubelet/kuberuntime/instrumented_services.py",
        "InstrumentedRuntimeService.create_container",
    ): "has the runtime create a container",
    (
        "kubelet/kuberuntime/instrumented_services.py",
        "InstrumentedRuntimeService.start_container",
    ): "has the runtime start a container",
    (
        "kubelet/kuberuntime/instrumented_services.py",
        "InstrumentedRuntimeService.stop_pod_sandbox",
    ): "has the runtime stop its sandbox",
    (
        "kubelet/kuberuntime/kuberuntime_container.py",
        "ContainerMethods._run_post_start_hook",
    ): "runs a postStart hook",
    (
        "kubelet/kuberuntime/kuberuntime_container.py",
        "ContainerMethods.kill_containers_with_sync_result",
    ): "waits for its containers to end",
    ("pkg/mount_utils/mount_helper_unix.py", "wait_until"): "waits until nothing of it is mounted any more",
    ("kubelet/kubelet.py", "Kubelet.sync_pod"): "is being synced",
    ("kubelet/kubelet.py", "Kubelet.sync_terminating_pod"): "is being stopped",
    ("kubelet/kubelet.py", "Kubelet.sync_terminating_runtime_pod"): "is being stopped",
    ("kubelet/kubelet.py", "Kubelet.sync_terminated_pod"): "is being cleaned up",
}
VOLUMES = ("kubelet/volumemanager/volume_manager.py", "VolumeManager.wait_for_attach_and_mount")
WAITS_FOR_CHANGE = STEPS["kubelet/pod_workers.py", "_wait_for_update"]

_FUNCTIONS = {function for _, function in STEPS}


class Activity(NamedTuple):
    """What a worker does, and the function of the stack that says so."""

    text: str
    function: str


def of_workers() -> dict[str, Activity]:
    """What the pod workers of this process are at, by the uid of their pods."""
    frames = debug.frames_of_others()
    found = {}
    for thread in threading.enumerate():
        if thread.name.startswith(_WORKER) and (frame := frames.get(thread.ident or 0)) is not None:
            found[thread.name.removeprefix(_WORKER)] = of_frame(frame)
    return found


def of_frame(frame: FrameType | None) -> Activity:
    """What the thread whose innermost frame this is does."""
    while frame is not None:
        function = frame.f_code.co_qualname
        if function in _FUNCTIONS:
            for (file, name), text in STEPS.items():
                if name == function and frame.f_code.co_filename.endswith(file):
                    return Activity(text, function)
        frame = frame.f_back
    return Activity("is between two steps", "")
