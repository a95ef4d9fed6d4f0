"""Test that sandbox and container configurations equal those recorded from the Go kubelet of release 1.36."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from google.protobuf import json_format

from kubelet import cadvisor as cadvisorapi
from kubelet import cm
from kubelet import container as kubecontainer
from kubelet.container import testing as containertest
from kubelet.kuberuntime import kuberuntime_container_linux, testing
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.runtime import codec
from pkg.securitycontext import util as securitycontext

_GOLDEN = Path(__file__).parents[2] / "test" / "data" / "golden" / "v1.36.2"
_SCENARIOS = ("01-plain", "02-everything", "03-ends", "04-host", "05-static")
_TERMINATION_LOG = "/dev/termination-log"
# The recording was made on a machine with this much memory.
_MEMORY_CAPACITY = 30 << 30


def _message(kind: type[Any], data: dict[str, Any]) -> Any:
    return json_format.ParseDict(data, kind(), ignore_unknown_fields=True)


@dataclass
class _Recording:
    """Hold one pod of one scenario."""

    pod: v1.Pod
    sandbox: runtimeapi.PodSandboxConfig
    # `containers` holds only first instances, because the data of a restart is not in the configuration alone.
    containers: dict[str, runtimeapi.ContainerConfig] = field(default_factory=dict)


@dataclass
class _RecordedHelper(containertest.FakeRuntimeHelper):
    """Return to the runtime manager what the Go kubelet must have returned."""

    recording: _Recording | None = None

    def generate_run_container_options(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container: v1.Container,
        pod_ip: str,
        pod_ips: Sequence[str],
        image_volumes: kubecontainer.ImageVolumes,
    ) -> tuple[kubecontainer.RunContainerOptions, Callable[[], None] | None]:
        assert self.recording is not None
        config = self.recording.containers[container.name]
        opts = kubecontainer.RunContainerOptions(envs=[kubecontainer.EnvVar(env.key, env.value) for env in config.envs])
        for mount in config.mounts:
            if mount.container_path == _TERMINATION_LOG:
                opts.pod_container_dir = os.path.dirname(mount.host_path)
                continue
            opts.mounts.append(
                kubecontainer.Mount(
                    container_path=mount.container_path,
                    host_path=mount.host_path,
                    read_only=mount.readonly,
                    propagation=mount.propagation,
                )
            )
        return opts, None

    def get_pod_dns(self, ctx: golang.Context, pod: v1.Pod) -> runtimeapi.DNSConfig:
        assert self.recording is not None
        return self.recording.sandbox.dns_config

    def get_pod_cgroup_parent(self, pod: v1.Pod) -> str:
        assert self.recording is not None
        return self.recording.sandbox.linux.cgroup_parent

    def generate_pod_host_name_and_domain(self, pod: v1.Pod) -> tuple[str, str]:
        assert self.recording is not None
        return self.recording.sandbox.hostname, ""

    def get_or_create_user_namespace_mappings(
        self, pod: v1.Pod, runtime_handler: str
    ) -> runtimeapi.UserNamespace | None:
        return runtimeapi.UserNamespace(mode=runtimeapi.NODE)


def _read(scenario: str) -> Iterator[_Recording]:
    folder = _GOLDEN / scenario
    items = json.loads((folder / "pods.json").read_text())["items"]
    pods = {(p["metadata"]["namespace"], p["metadata"]["name"]): codec.convert(p, v1.Pod) for p in items}
    recordings: dict[str, _Recording] = {}
    for line in (folder / "cri.jsonl").read_text().splitlines():
        call = json.loads(line)
        if call["method"] == "RunPodSandbox":
            sandbox = _message(runtimeapi.PodSandboxConfig, call["request"]["config"])
            pod = pods[sandbox.metadata.namespace, sandbox.metadata.name]
            pod = v1.deepcopy(pod)
            # The kubelet itself adds these fields, and the mirror pod of a static pod has another UID than the pod.
            pod.metadata.annotations = dict(sandbox.annotations)
            pod.metadata.uid = sandbox.metadata.uid
            pod.metadata.deletion_grace_period_seconds = None
            recordings.setdefault(sandbox.metadata.uid, _Recording(pod, sandbox))
        elif call["method"] == "CreateContainer":
            uid = call["request"]["sandbox_config"]["metadata"]["uid"]
            config = _message(runtimeapi.ContainerConfig, call["request"]["config"])
            if config.metadata.attempt == 0:
                recordings[uid].containers.setdefault(config.metadata.name, config)
    yield from recordings.values()


def _recordings() -> list[Any]:
    return [
        pytest.param(recording, id=f"{scenario}/{recording.pod.metadata.name}")
        for scenario in _SCENARIOS
        for recording in _read(scenario)
    ]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imitate the machine of the recording: cgroup v1 with swap accounting, and two huge page sizes."""
    monkeypatch.setattr(kuberuntime_container_linux, "huge_page_sizes", lambda: ["2MB", "1GB"])
    monkeypatch.setattr(cm, "is_cgroup2_unified_mode", lambda: False)
    monkeypatch.setattr(securitycontext, "_default_masked_paths", lambda: securitycontext._MASKED_PATHS)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("recording", _recordings())
def test_configurations_equal_the_recorded_ones(recording: _Recording, tmp_path: Path) -> None:
    helper = _RecordedHelper(recording=recording)
    fake = testing.create_test_runtime_manager(
        str(tmp_path),
        runtime_helper=helper,
        cpu_cfs_quota=True,
        machine_info=cadvisorapi.MachineInfo(num_cores=2, memory_capacity=_MEMORY_CAPACITY),
        get_swap_controller_available=lambda: True,
    )
    ctx = golang.background()
    pod = recording.pod
    sandbox = fake.manager.generate_pod_sandbox_config(ctx, pod, recording.sandbox.metadata.attempt)
    assert sandbox == recording.sandbox
    for container in [*pod.spec.init_containers, *pod.spec.containers]:
        expected = recording.containers.get(container.name)
        if expected is None:
            continue
        config, _ = fake.manager.generate_container_config(
            ctx, container, pod, 0, "", expected.image.image, [], None, {}
        )
        for mount in (*config.mounts, *expected.mounts):
            if mount.container_path == _TERMINATION_LOG:
                directory, name = os.path.split(mount.host_path)
                assert len(name) == 8
                mount.host_path = directory
        assert config == expected
