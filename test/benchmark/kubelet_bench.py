"""Measure the kubelet's cost for relisting, for a burst of pods, on an idle node, and at its start.

The fake runtime is a separate process, so that the figures are the kubelet's alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cri_api.v1 import api_pb2 as runtimeapi
from framework.ports import free_port
from framework.waiting import wait_for

from kubelet import container as kubecontainer
from kubelet import pleg
from kubelet.cri import remote
from kubelet.kuberuntime import testing as kuberuntimetesting
from pkg import golang
from pkg.apimachinery import clock

ROOT = Path(__file__).resolve().parents[2]
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"


@contextmanager
def fake_runtime(directory: Path) -> Iterator[str]:
    """Run a fake runtime in its own process, and yield its endpoint."""
    socket = directory / "cri.sock"
    command = [sys.executable, "-m", "kubelet.cri.remote.fake", "--socket", str(socket), "--image", IMAGE]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield f"unix://{socket}"
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@dataclass
class HollowKubelet:
    """Run a kubelet process on a fake runtime, and read its figures from the kernel."""

    directory: Path
    endpoint: str
    more_flags: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.manifests = self.directory / "manifests"
        self.manifests.mkdir()
        self.read_only_port, self.healthz_port = free_port(), free_port()
        self.log = self.directory / "kubelet.log"

    def start(self) -> None:
        flags = [
            f"--container-runtime-endpoint={self.endpoint}",
            f"--root-dir={self.directory}/root",
            f"--device-plugin-directory={self.directory}/root/device-plugins",
            f"--pod-manifest-path={self.manifests}",
            f"--read-only-port={self.read_only_port}",
            f"--healthz-port={self.healthz_port}",
            f"--port={free_port()}",
            f"--cert-dir={self.directory}/pki",
            "--name=bench",
            "--v=2",
            *self.more_flags,
        ]
        self.started = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cmd.kubemark", *flags], cwd=ROOT, stdout=log, stderr=log
            )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)

    @property
    def pid(self) -> int:
        return self.process.pid

    def pods(self) -> list[dict[str, object]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.read_only_port}/pods", timeout=10) as answer:
            items: list[dict[str, object]] = json.load(answer).get("items") or []
        return items

    def running(self) -> int:
        try:
            return sum(pod["status"]["phase"] == "Running" for pod in self.pods())  # type: ignore[index]
        except OSError:
            return 0

    def logged(self, text: str) -> bool:
        return text in self.log.read_text()

    def write_pods(self, count: int) -> None:
        for number in range(count):
            manifest = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"pod-{number:03}"},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": IMAGE, "command": ["sleep", "100000"]}],
                },
            }
            unfinished = self.manifests / f".{number:03}.json"
            unfinished.write_text(json.dumps(manifest))
            unfinished.rename(self.manifests / f"{number:03}.json")


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def process_status(pid: int, name: str) -> int:
    """Return a number from /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise KeyError(name)


@contextmanager
def hollow_kubelet() -> Iterator[HollowKubelet]:
    with tempfile.TemporaryDirectory(prefix="bench.") as directory, fake_runtime(Path(directory)) as endpoint:
        kubelet = HollowKubelet(Path(directory), endpoint)
        kubelet.start()
        try:
            yield kubelet
        finally:
            kubelet.stop()


def startup_seconds() -> dict[str, float]:
    """Return the seconds from the start of the process until it is healthy, and until it has handled its first pod."""
    with hollow_kubelet() as kubelet:
        kubelet.write_pods(1)
        found: dict[str, float] = {}
        for name, text in (("loop", "Starting kubelet main sync loop"), ("first sync", "SyncLoop ADD")):
            wait_for(name, lambda text=text: kubelet.logged(text), 30)  # type: ignore[misc]
            found[name] = time.monotonic() - kubelet.started
        wait_for("running", lambda: kubelet.running() == 1, 30)
        found["first pod running"] = time.monotonic() - kubelet.started
        return found


def burst_and_idle(count: int = 100, idle_seconds: float = 30.0) -> dict[str, float]:
    """Return the seconds until a burst of pods runs, and then the kubelet's cost while all of them are idle."""
    with hollow_kubelet() as kubelet:
        wait_for("the start of the sync loop", lambda: kubelet.logged("Starting kubelet main sync loop"), 30)
        begin, cpu = time.monotonic(), cpu_seconds(kubelet.pid)
        kubelet.write_pods(count)
        wait_for(f"{count} running pods", lambda: kubelet.running() == count, 120)
        burst, burst_cpu = time.monotonic() - begin, cpu_seconds(kubelet.pid) - cpu
        golang.background().wait(5.0)
        begin, cpu = time.monotonic(), cpu_seconds(kubelet.pid)
        golang.background().wait(idle_seconds)
        share = (cpu_seconds(kubelet.pid) - cpu) / (time.monotonic() - begin)
        return {
            "burst seconds": burst,
            "burst cpu seconds": burst_cpu,
            "idle cores": share,
            "idle cpu seconds per minute": share * 60,
            "rss MB": process_status(kubelet.pid, "VmRSS") / 1000,
            "threads": process_status(kubelet.pid, "Threads"),
        }


def relist_cpu_milliseconds(pods: int, rounds: int = 20) -> float:
    """Return the CPU time of a relist without changes."""
    ctx, cancel = golang.with_cancel(golang.background())
    with tempfile.TemporaryDirectory(prefix="bench.") as directory, fake_runtime(Path(directory)) as endpoint:
        service = remote.RemoteRuntimeService(ctx, endpoint, 10.0)
        images = remote.RemoteImageService(ctx, endpoint, 10.0)
        for number in range(pods):
            _run_pod(ctx, service, number)
        runtime = kuberuntimetesting.create_test_runtime_manager(
            directory, runtime_service=service, image_service=images
        ).manager
        events: golang.Channel[pleg.PodLifecycleEvent] = golang.Channel(10 * pods + 10)
        generic = pleg.GenericPLEG(
            runtime, events, pleg.RelistDuration(1.0, 180.0), kubecontainer.CacheImpl(), clock.RealClock()
        )
        generic.relist()
        begin = time.process_time()
        for _ in range(rounds):
            generic.relist()
        spent = time.process_time() - begin
        cancel()
        return spent / rounds * 1000


def _run_pod(ctx: golang.Context, service: remote.RemoteRuntimeService, number: int) -> None:
    """Run a pod of one container, with the labels and annotations by which the kubelet recognizes it."""
    uid = f"00000000-0000-0000-0000-{number:012}"
    labels = {
        "io.kubernetes.pod.name": f"pod-{number}",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": uid,
    }
    sandbox_config = runtimeapi.PodSandboxConfig(
        metadata=runtimeapi.PodSandboxMetadata(name=f"pod-{number}", uid=uid, namespace="default"), labels=labels
    )
    sandbox = service.run_pod_sandbox(ctx, sandbox_config, "")
    config = runtimeapi.ContainerConfig(
        metadata=runtimeapi.ContainerMetadata(name="c"),
        image=runtimeapi.ImageSpec(image=IMAGE),
        command=["sleep", "100000"],
        labels={**labels, "io.kubernetes.container.name": "c"},
        annotations={"io.kubernetes.container.hash": "1", "io.kubernetes.container.restartCount": "0"},
    )
    service.start_container(ctx, service.create_container(ctx, sandbox, config, sandbox_config))
