"""Define a plain CRI client, which inspects the runtime without the kubelet's code."""

from __future__ import annotations

import json
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as runtimeapi
from cri_api.v1 import api_pb2_grpc

POD_UID = "io.kubernetes.pod.uid"
POD_NAME = "io.kubernetes.pod.name"
CONTAINER_NAME = "io.kubernetes.container.name"
# TIMEOUT is the time, in seconds, that a busy runtime may take to respond.
TIMEOUT = 60.0


class CRIClient:
    """Hold the stubs of one endpoint, and the requests that tests send most often."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(endpoint)
        # The generated stubs have no types.
        self.runtime: Any = api_pb2_grpc.RuntimeServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.images: Any = api_pb2_grpc.ImageServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self._channel.close()

    def ready(self) -> bool:
        """Report whether the runtime and its network can run pods."""
        try:
            answer = self.runtime.Status(runtimeapi.StatusRequest(), timeout=5)
        except grpc.RpcError:
            return False
        return all(condition.status for condition in answer.status.conditions)

    def has_events(self) -> bool:
        """Report whether the runtime sends container events: if it does, the stream stays open until the deadline."""
        try:
            next(self.runtime.GetContainerEvents(runtimeapi.GetEventsRequest(), timeout=2))
        except grpc.RpcError as err:
            if err.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED):
                raise
            return err.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        return True

    def sandboxes(self, pod: str = "") -> list[runtimeapi.PodSandbox]:
        """Return the sandboxes in any state, of one pod if its name is given, the newest first."""
        selector = {POD_NAME: pod} if pod else {}
        request = runtimeapi.ListPodSandboxRequest(filter=runtimeapi.PodSandboxFilter(label_selector=selector))
        found = self.runtime.ListPodSandbox(request, timeout=TIMEOUT).items
        return sorted(found, key=lambda sandbox: -sandbox.created_at)

    def containers(self, pod: str = "") -> list[runtimeapi.Container]:
        """Return the containers in any state, of one pod if its name is given, the newest first."""
        selector = {POD_NAME: pod} if pod else {}
        request = runtimeapi.ListContainersRequest(filter=runtimeapi.ContainerFilter(label_selector=selector))
        found = self.runtime.ListContainers(request, timeout=TIMEOUT).containers
        return sorted(found, key=lambda container: -container.created_at)

    def running_containers(self, pod: str = "") -> list[runtimeapi.Container]:
        return [found for found in self.containers(pod) if found.state == runtimeapi.CONTAINER_RUNNING]

    def container_status(self, container_id: str) -> runtimeapi.ContainerStatus:
        request = runtimeapi.ContainerStatusRequest(container_id=container_id)
        status: runtimeapi.ContainerStatus = self.runtime.ContainerStatus(request, timeout=TIMEOUT).status
        return status

    def container_pid(self, container_id: str) -> int:
        """Return the host's PID of a container's first process."""
        request = runtimeapi.ContainerStatusRequest(container_id=container_id, verbose=True)
        info = self.runtime.ContainerStatus(request, timeout=TIMEOUT).info
        return int(json.loads(info["info"])["pid"])

    def exec(self, container_id: str, *command: str) -> runtimeapi.ExecSyncResponse:
        request = runtimeapi.ExecSyncRequest(container_id=container_id, cmd=command, timeout=int(TIMEOUT))
        answer: runtimeapi.ExecSyncResponse = self.runtime.ExecSync(request, timeout=TIMEOUT + 5)
        return answer

    def remove_sandbox(self, sandbox_id: str) -> None:
        """Stop and remove a sandbox with its containers."""
        self.runtime.StopPodSandbox(runtimeapi.StopPodSandboxRequest(pod_sandbox_id=sandbox_id), timeout=60)
        self.runtime.RemovePodSandbox(runtimeapi.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id), timeout=60)
