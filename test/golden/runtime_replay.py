"""Run the runtime manager with recorded pods, on a runtime that responds as the recorded one did.

The recording provides what the kubelet itself adds to a container (environment, mounts, DNS, host name, cgroup parent),
because only the runtime manager's part of the requests is under test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2 as runtimeapi
from golden import normalize
from google.protobuf import json_format

from kubelet import cadvisor, cm, kuberuntime, logs
from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.container import testing as containertesting
from kubelet.cri.remote import fake
from kubelet.prober import results as proberesults
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.clock import testing as clocktesting
from pkg.apimachinery.runtime import codec
from pkg.client_go.tools.record import testing as recordtesting
from pkg.client_go.util import flowcontrol

BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
NOT_THERE = "registry.k8s.io/not-there:1"
# This is the memory of the recorded machine, which determines the OOM scores.
_MEMORY = 31 * 1024**3
_ANNOTATIONS = {
    kubetypes.CONFIG_SOURCE_ANNOTATION_KEY: kubetypes.APISERVER_SOURCE,
    kubetypes.CONFIG_FIRST_SEEN_ANNOTATION_KEY: "2026-01-01T00:00:00.000000001Z",
}
_LOGS = "/var/log/pods"


def recorded_pod(scenario: str, name: str) -> v1.Pod:
    """Return the pod as the kubelet received it: without status, with the annotations of its source."""
    [item] = [pod for pod in normalize.pods(scenario) if pod["metadata"]["name"] == name]
    pod = codec.decode_json(json.dumps({**item, "status": {}}).encode(), v1.Pod)
    pod.metadata.annotations = {**pod.metadata.annotations, **_ANNOTATIONS}
    return pod


class RecordedKubelet(containertesting.FakeRuntimeHelper):
    """Give the runtime manager the recorded kubelet's options."""

    def __init__(self, scenario: str, pod: v1.Pod, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        uid = pod.metadata.uid
        lines = [line["request"] for line in normalize.load(scenario) if line["method"] == "RunPodSandbox"]
        [self._sandbox] = [r["config"] for r in lines if r["config"]["metadata"]["uid"] == uid]
        self._containers = {
            line["request"]["config"]["metadata"]["name"]: line["request"]["config"]
            for line in normalize.load(scenario)
            if line["method"] == "CreateContainer" and line["request"]["sandbox_config"]["metadata"]["uid"] == uid
        }

    def generate_run_container_options(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container: v1.Container,
        pod_ip: str,
        pod_ips: Sequence[str],
        image_volumes: kubecontainer.ImageVolumes,
    ) -> tuple[kubecontainer.RunContainerOptions, Callable[[], None] | None]:
        if container.name not in self._containers:
            raise ValueError(f"the recording has no container {container.name}: the runtime refused its configuration")
        recorded = self._containers[container.name]
        directory = self._directory / "pods" / pod.metadata.uid / "containers" / container.name
        directory.mkdir(parents=True, exist_ok=True)
        mounts = [
            kubecontainer.Mount(
                container_path=mount["container_path"],
                host_path=mount["host_path"],
                read_only=mount.get("readonly", False),
                propagation=runtimeapi.MountPropagation.Value(mount.get("propagation", "PROPAGATION_PRIVATE")),
            )
            for mount in recorded.get("mounts", [])
            if mount["container_path"] != container.termination_message_path
        ]
        options = kubecontainer.RunContainerOptions(
            envs=[kubecontainer.EnvVar(e["key"], e.get("value", "")) for e in recorded.get("envs", [])],
            mounts=mounts,
            pod_container_dir=str(directory),
        )
        return options, None

    def get_pod_dns(self, ctx: golang.Context, pod: v1.Pod) -> runtimeapi.DNSConfig:
        dns = runtimeapi.DNSConfig()
        json_format.ParseDict(self._sandbox.get("dns_config", {}), dns)
        return dns

    def get_pod_cgroup_parent(self, pod: v1.Pod) -> str:
        return str(self._sandbox["linux"]["cgroup_parent"])

    def get_pod_dir(self, pod_uid: types.UID) -> str:
        return str(self._directory / "pods" / pod_uid)

    def get_or_create_user_namespace_mappings(
        self, pod: v1.Pod, runtime_handler: str
    ) -> runtimeapi.UserNamespace | None:
        return runtimeapi.UserNamespace(mode=runtimeapi.NODE)

    def generate_pod_host_name_and_domain(self, pod: v1.Pod) -> tuple[str, str]:
        return self._sandbox.get("hostname", ""), ""


class _NotTerminating:
    def is_pod_termination_requested(self, uid: types.UID) -> bool:
        return False

    def should_pod_content_be_removed(self, uid: types.UID) -> bool:
        return False

    def should_pod_runtime_be_removed(self, uid: types.UID) -> bool:
        return False


class _NoPullingTimes:
    def record_image_started_pulling(self, pod_uid: types.UID) -> None: ...

    def record_image_finished_pulling(self, pod_uid: types.UID) -> None: ...


class Replay:
    """Run one recorded pod on one runtime manager."""

    def __init__(self, scenario: str, name: str, directory: Path) -> None:
        self.scenario = scenario
        self.pod = recorded_pod(scenario, name)
        self.clock = clocktesting.FakeClock()
        self.runtime = fake.FakeRuntime(self.clock, images_present=[BUSYBOX])
        self.runtime.images.pull_errors[NOT_THERE] = fake.not_found(NOT_THERE)
        self.runtime.recorder.on = True
        self.directory = directory
        self.back_off = flowcontrol.Backoff(10, 300, clock=self.clock)
        self.liveness, self.startup = proberesults.Manager(), proberesults.Manager()
        self.manager, _ = kuberuntime.new_kube_generic_runtime_manager(golang.background(), self._options())

    def _options(self) -> kuberuntime.RuntimeManagerOptions:
        return kuberuntime.RuntimeManagerOptions(
            recorder=recordtesting.FakeRecorder(1000),
            liveness_manager=self.liveness,
            startup_manager=self.startup,
            root_directory=str(self.directory),
            pod_logs_directory=str(self.directory / "logs"),
            machine_info=cadvisor.MachineInfo(num_cores=4, memory_capacity=_MEMORY),
            pod_state_provider=_NotTerminating(),
            os_interface=kubecontainer.RealOS(),
            runtime_helper=RecordedKubelet(self.scenario, self.pod, self.directory),
            insecure_container_lifecycle_http_client=None,  # type: ignore[arg-type]  # no HTTP hook is recorded
            image_back_off=flowcontrol.Backoff(10, 300, clock=self.clock),
            serialize_image_pulls=True,
            max_parallel_image_pulls=None,
            pull_critical_images_first=False,
            image_pull_qps=0,
            image_pull_burst=0,
            image_pulls_credential_verification_policy="NeverVerifyPreloadedImages",
            preloaded_images_credential_verification_whitelist=[],
            external_credentials=None,
            single_process_oom_kill=None,
            cpu_cfs_quota=True,
            cpu_cfs_quota_period=0.1,
            runtime_service=fake.InProcessRuntimeService(self.runtime),
            image_service=fake.InProcessImageService(self.runtime),
            container_manager=cm.ContainerManagerStub(),
            log_manager=logs.ContainerLogManagerStub(),
            runtime_class_manager=None,
            seccomp_default=False,
            read_rotated_logs=False,
            memory_swap_behavior="",
            get_node_allocatable=dict,
            # The recorded machine had cgroup v1 with swap accounting.
            get_swap_controller_available=lambda: True,
            memory_throttling_factor=0.9,
            memory_reservation_policy="",
            pod_pulling_time_recorder=_NoPullingTimes(),
            clock=self.clock,
        )

    def sync(self) -> kubecontainer.PodSyncResult:
        """Sync the pod as its pod worker does."""
        ctx = golang.background()
        return self.manager.sync_pod(ctx, self.pod, self._status(), [], self.back_off, False)

    def kill(self) -> None:
        """Stop the pod: its containers, then its sandbox."""
        ctx = golang.background()
        running = kubecontainer.convert_pod_status_to_running_pod(self.manager.type(), self._status())
        self.manager.kill_pod(ctx, self.pod, running, None)

    def probed(self, container: str, results: proberesults.Manager, result: proberesults.Result) -> None:
        """Set the result of a probe of the container."""
        container_id = self.runtime.container(self.pod.metadata.name, container).id
        results.set(kubecontainer.ContainerID(self.manager.type(), container_id), result, self.pod)

    def wait_for_stops(self, number: int) -> None:
        """Wait until this many threads wait on the clock: to stop a container, or for the stop of others."""
        self.clock.wait_for_waiters(number)

    def _status(self) -> kubecontainer.PodStatus:
        ctx = golang.background()
        try:
            pod = self.manager.get_pod(ctx, self.pod.metadata.uid)
        except kubecontainer.ErrPodNotFound:
            meta = self.pod.metadata
            return kubecontainer.PodStatus(id=meta.uid, name=meta.name, namespace=meta.namespace)
        return self.manager.get_pod_status(ctx, pod)

    def conversation(self) -> list[normalize.Call]:
        """Return the calls about the pod."""
        lines = [json.loads(json.dumps(call.as_json())) for call in self.runtime.recorder.calls()]
        directories = {str(self.directory / "logs"): _LOGS, str(self.directory): "/var/lib/kubelet"}
        found = normalize.conversations(lines, directories=directories)
        return found.get(self.pod.metadata.name, [])


def recorded_conversation(scenario: str, name: str) -> list[normalize.Call]:
    """Return the Go kubelet's calls about the pod."""
    return normalize.conversations(normalize.load(scenario))[name]


def differences(recorded: list[normalize.Call], ours: list[normalize.Call], ignore: Any = ()) -> str:
    """Return all differences as one text, which is empty if there are none."""
    return "\n".join(normalize.diff_conversations(recorded, ours, ignore))
