"""Run a hollow node like any kubelet process, on a fake runtime that the test controls."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from cri_api.v1 import api_pb2 as runtimeapi

from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest
from framework.waiting import wait_for
from kubelet.cri.remote import fake

# These threads belong to gRPC, which starts and ends them on its own.
_OF_GRPC = ("event_engine", "grpc_", "lifeguard", "timer_manager")


class HollowKubelet(KubeletProcess):
    """Run a hollow node. `runtime` controls the fake runtime and shows what happened to pods; `server` serves it."""

    program = "cmd.kubemark"

    def __init__(
        self,
        folder: Path,
        node: str,
        config: Mapping[str, object] | None = None,
        flags: Mapping[str, object] | None = None,
        root_dir: Path | None = None,
    ) -> None:
        self.folder = folder
        self.runtime = fake.FakeRuntime()
        self.runtime.recorder.on = True
        self.server = fake.FakeServer(f"unix://{folder}/{node}.sock", self.runtime)
        endpoint = self.server.endpoint
        super().__init__(
            folder, node, endpoint, config, {"container-runtime-endpoint": endpoint, **(flags or {})}, root_dir
        )
        self.environment["TMPDIR"] = str(folder)  # A hollow node keeps its pods' logs there.

    def end(self) -> None:
        """End the process, whatever its state, and then the runtime."""
        if self.alive:
            self.kill()
        self.server.stop()
        self.runtime.close()

    def write_text(self, name: str, text: str) -> None:
        """Put a file with this name into the manifest directory, in one step."""
        unfinished = self.manifests / f".{name}"
        unfinished.write_text(text)
        unfinished.rename(self.manifests / name)

    def write_all(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            self.write(manifest)

    def pod_logs(self, name: str = "*") -> list[Path]:
        sandboxes = f"hollow-kubelet.*/pod-logs/*_{name}-{self.node}_*"
        return list(self.folder.glob(sandboxes))

    def wait_for_event(self, name: str, reason: str, *texts: str) -> str:
        """Wait for an event about the pod of a manifest, and return the line of the log that has it."""
        of_pod = f'object="default/{self.full_name(name)}"'
        return self.wait_for_log("Event occurred", of_pod, f'reason="{reason}"', *texts)[0]

    def threads(self) -> int:
        """Return the number of the process's threads, without those of gRPC."""
        names = []
        for task in os.listdir(f"/proc/{self.pid}/task"):
            try:
                names.append(Path(f"/proc/{self.pid}/task/{task}/comm").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue  # The thread has just ended.
        return sum(not name.startswith(_OF_GRPC) for name in names)

    def container_ids(self, name: str) -> list[str]:
        """Return the IDs of a pod's running containers."""
        full_name = self.full_name(name)
        return [
            each.id
            for each in self.runtime.containers
            if each.sandbox.config.metadata.name == full_name and each.state == runtimeapi.CONTAINER_RUNNING
        ]

    def wait_until_containers_are_old(self) -> None:
        """Wait until all containers have run for more than ten seconds.

        A kubelet, like the Go kubelet, treats a container as new if it started less than ten seconds before the
        kubelet.
        """

        def look() -> bool:
            running = (each for each in self.runtime.containers if each.state == runtimeapi.CONTAINER_RUNNING)
            return time.time_ns() - max(each.status.started_at for each in running) > 11 * 10**9

        self.wait_for_condition("all containers have run for a while", look)

    def hang(self, method: str, name: str) -> fake.Fault:
        """Make this method's calls that are about the pod hang."""
        return self.runtime.faults.hang(method, sandbox=self.full_name(name))

    def wait_for_call_in(self, fault: fake.Fault) -> None:
        """Wait until a call hangs in this fault."""
        wait_for(f"a call of {fault.method} that hangs", lambda: fault.waiting, timeout=30)

    def calls(self, name: str, *methods: str) -> list[fake.Call]:
        """Return the recorded calls of these methods that are about a pod, in the order in which they began."""
        ids = self._ids_of(name)
        return sorted(
            (call for call in self.runtime.recorder.calls(methods) if ids & set(_ids_in(call))),
            key=lambda call: call.start,
        )

    def _ids_of(self, name: str) -> set[str]:
        """Return the pod's name and the IDs of all sandboxes and containers that it ever had."""
        ids = {self.full_name(name)}
        for call in self.runtime.recorder.calls(["RunPodSandbox", "CreateContainer"]):
            if ids & set(_ids_in(call)) and not call.error:
                ids.add(call.response.pod_sandbox_id if call.method == "RunPodSandbox" else call.response.container_id)
        return ids


def _ids_in(call: fake.Call) -> list[str]:
    request = call.request
    found = [getattr(request, "pod_sandbox_id", ""), getattr(request, "container_id", "")]
    if call.method == "RunPodSandbox":
        found.append(request.config.metadata.name)
    return [each for each in found if each]
