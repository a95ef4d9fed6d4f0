"""Remove the dead containers of running pods in the background.

Go: pkg/kubelet/pod_container_deletor.go
"""

from __future__ import annotations

from kubelet import container as kubecontainer
from pkg import golang, klog

# At most this many requests may wait. Further ones are dropped; the next event of the pod repeats them.
CONTAINER_DELETOR_BUFFER_LIMIT = 50


class PodContainerDeletor:
    """Delete containers one by one, in a thread that ends with ctx."""

    def __init__(self, ctx: golang.Context, runtime: kubecontainer.Runtime, containers_to_keep: int) -> None:
        self._worker: golang.Channel[kubecontainer.ContainerID] = golang.Channel(CONTAINER_DELETOR_BUFFER_LIMIT)
        self._containers_to_keep = containers_to_keep
        golang.go(self._run, ctx, runtime, name="pod-container-deletor")

    def _run(self, ctx: golang.Context, runtime: kubecontainer.Runtime) -> None:
        while taken := golang.select(self._worker, ctx.done()).took(self._worker):
            try:
                runtime.delete_container(ctx, taken.value)
            except Exception as err:
                # The pod's next event or the garbage collector finds the remaining container again.
                klog.info_s("DeleteContainer returned error", containerID=str(taken.value), err=err)

    def delete_containers_in_pod(
        self, filter_container_id: str, pod_status: kubecontainer.PodStatus, remove_all: bool
    ) -> None:
        """Delete the containers that get_containers_to_delete_in_pod returns; with `remove_all`, all dead ones."""
        containers_to_keep = self._containers_to_keep
        if remove_all:
            containers_to_keep = 0
            filter_container_id = ""
        candidates = get_containers_to_delete_in_pod(filter_container_id, pod_status, containers_to_keep)
        for index, candidate in enumerate(candidates):
            if not self._worker.try_send(candidate.id):
                # DIVERGES (safer): once the queue is full, one log line gives the number of containers that are left
                # over.
                # Go: pkg/kubelet/pod_container_deletor.go, (*podContainerDeletor).deleteContainersInPod: the Go kubelet
                # tries each container, and writes a line for each.
                # Why: for a pod whose thousand containers exit together, the sync loop would write a million lines.
                # Test: pod_container_deletor_test.py:test_requests_beyond_the_limit_are_dropped
                klog.info_s(
                    "Failed to issue the request to remove container",
                    containerID=str(candidate.id),
                    others=len(candidates) - index - 1,
                )
                return


def get_containers_to_delete_in_pod(
    filter_container_id: str, pod_status: kubecontainer.PodStatus, containers_to_keep: int
) -> list[kubecontainer.Status]:
    """Return the pod's exited containers, newest first, without the `containers_to_keep` newest ones.

    With `filter_container_id`, return only those that have the same name as the container with that ID.
    """
    name = None
    if filter_container_id:
        matches = [c.name for c in pod_status.container_statuses if c.id.id == filter_container_id]
        if not matches:
            klog.info_s("Container not found in pod's containers", containerID=filter_container_id)
            return []
        name = matches[0]
    candidates = [
        c
        for c in pod_status.container_statuses
        if c.state == kubecontainer.CONTAINER_STATE_EXITED and (name is None or c.name == name)
    ]
    candidates.sort(key=kubecontainer.creation_order, reverse=True)
    return candidates[containers_to_keep:]
