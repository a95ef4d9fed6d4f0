"""A hollow node that is started, stopped, killed and asked as any kubelet, on a fake runtime in the test's hands."""

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

# Threads that belong to gRPC and come and go as it likes.
_OF_GRPC = ("event_engine", "grpc_", "lifeguard", "timer_manager")


class HollowKubelet(KubeletProcess):
    """`runtime` has the controls of the fake runtime and shows what became of the pods; `server` serves it."""

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
        self.environment["TMPDIR"] = str(folder)  # where a hollow node keeps its pods' logs

    def end(self) -> None:
        """End the process, however it stands, and the runtime."""
        if self.alive:
            self.kill()
        self.server.stop()
        self.runtime.close()

    # Its files.

    def write_text(self, name: str, text: str) -> None:
        """Put a file of this name among the manifests, in one step."""
        unfinished = self.manifests / f".{name}"
        unfinished.write_text(text)
        unfinished.rename(self.manifests / name)

    def write_all(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            self.write(manifest)

    def pod_logs(self, name: str = "*") -> list[Path]:
        sandboxes = f"hollow-kubelet.*/pod-logs/*_{name}-{self.node}_*"
        return list(self.folder.glob(sandboxes))

    # What it says.

    def wait_for_event(self, name: str, reason: str, *texts: str) -> str:
        """Wait for an event at a pod, by the name in its manifest, and return the line of the log that has it."""
        of_pod = f'object="default/{self.full_name(name)}"'
        return self.wait_for_log("Event occurred", of_pod, f'reason="{reason}"', *texts)[0]

    def threads(self) -> int:
        """How many threads of its own the process has."""
        names = []
        for task in os.listdir(f"/proc/{self.pid}/task"):
            try:
                names.append(Path(f"/proc/{self.pid}/task/{task}/comm").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue  # has just ended
        return sum(not name.startswith(_OF_GRPC) for name in names)

    # What the runtime has.

    def container_ids(self, name: str) -> list[str]:
        """The ids of a pod's containers that run."""
        full_name = self.full_name(name)
        return [
            each.id
            for each in self.runtime.containers
            if each.sandbox.config.metadata.name == full_name and each.state == runtimeapi.CONTAINER_RUNNING
        ]

    def wait_until_containers_are_old(self) -> None:
        """As upstream, the kubelet takes containers for new that were started less than ten seconds before it was."""

        def look() -> bool:
            running = (each for each in self.runtime.containers if each.state == runtimeapi.CONTAINER_RUNNING)
            return time.time_ns() - max(each.status.started_at for each in running) > 11 * 10**9

        self.wait_for_condition("all containers have run for a while", look)

    def hang(self, method: str, name: str) -> fake.Fault:
        """Let calls of this method that are about this pod hang."""
        return self.runtime.faults.hang(method, sandbox=self.full_name(name))

    def wait_for_call_in(self, fault: fake.Fault) -> None:
        """Wait until a call hangs in this fault."""
        wait_for(f"a call of {fault.method} that hangs", lambda: fault.waiting, timeout=30)

    def calls(self, name: str, *methods: str) -> list[fake.Call]:
        """The recorded calls of these methods that are about a pod, in the order in which they began."""
        ids = self._ids_of(name)
        return sorted(
            (call for call in self.runtime.recorder.calls(methods) if ids & set(_ids_in(call))),
            key=lambda call: call.start,
        )

    def _ids_of(self, name: str) -> set[str]:
        """The pod's name, and the ids of all sandboxes and containers it ever had."""
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
