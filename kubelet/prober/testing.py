"""Define a pod, its status and a probe manager with a fake runner.

Go: pkg/kubelet/prober/common_test.go
"""

from __future__ import annotations

import datetime
from typing import Any

from kubelet import container as kubecontainer
from kubelet.container import testing as containertesting
from kubelet.prober import prober_manager, results
from kubelet.prober.prober import ProbeType
from kubelet.prober.status_index import StatusIndex
from kubelet.prober.worker import Worker
from kubelet.status.testing import FakePodStatusProvider
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.util import exec as utilexec

POD_UID = types.UID("pOd_UiD")
CONTAINER_NAME = "cOnTaInEr_NaMe"
CONTAINER_ID = kubecontainer.ContainerID("test", "cOnTaInEr_Id")


class FakeRunner(containertesting.FakeContainerCommandRunner):
    """Count the runs of probe commands, and let them succeed, fail or raise."""

    runs = 0

    def run_in_container(self, *args: Any, **kwargs: Any) -> bytes:
        self.runs += 1
        return super().run_in_container(*args, **kwargs)

    def succeed(self) -> None:
        self.err = None

    def fail(self) -> None:
        self.err = utilexec.CodeExitError(ValueError("exited with 1"), 1)

    def break_down(self) -> None:
        self.err = RuntimeError("runtime is down")


class ProbeWorld:
    """Run a probe manager with a fake clock, fake pod statuses and a fake runner."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.runner = FakeRunner()
        self.statuses = FakePodStatusProvider()
        self.recorder = FakeRecorder(1000)
        self.manager = prober_manager.Manager(
            self.statuses,
            results.Manager(),
            results.Manager(),
            results.Manager(),
            self.runner,
            self.recorder,
            self.clock,
        )

    def worker(self, probe_type: ProbeType, **spec: int) -> Worker:
        """Return a worker for the test pod's container; `spec` sets fields of its probe."""
        pod = new_pod()
        set_probe(pod.spec.containers[0], probe_type, **spec)
        return Worker(self.manager, probe_type, pod, pod.spec.containers[0], StatusIndex(pod))

    def sidecar_worker(self, probe_type: ProbeType, **spec: int) -> Worker:
        """Return a worker for a sidecar with the name of the test container."""
        sidecar = v1.Container(name=CONTAINER_NAME, restart_policy=v1.CONTAINER_RESTART_POLICY_ALWAYS)
        set_probe(sidecar, probe_type, **spec)
        pod = new_pod()
        pod.spec.init_containers, pod.spec.containers = [sidecar], [v1.Container(name="main")]
        return Worker(self.manager, probe_type, pod, sidecar, StatusIndex(pod))

    def set_status(self, status: v1.PodStatus) -> None:
        self.statuses.statuses[POD_UID] = status

    def result(self, probe_type: ProbeType, container_id: str = str(CONTAINER_ID)) -> results.Result | None:
        return self.manager.results_manager(probe_type).get(kubecontainer.parse_container_id(container_id))

    def running(self, started: bool | None = True, age: float = 0.0) -> v1.PodStatus:
        """Return a status in which the container has been running for `age` seconds."""
        since = self.clock.now() - datetime.timedelta(seconds=age)
        state = v1.ContainerState(running=v1.ContainerStateRunning(started_at=since))
        return status_with(state, started=started)


def status_with(state: v1.ContainerState, **fields: Any) -> v1.PodStatus:
    """Return the status of a running pod with one container in this state."""
    container = v1.ContainerStatus(name=CONTAINER_NAME, container_id=str(CONTAINER_ID), state=state, **fields)
    return v1.PodStatus(phase=v1.POD_RUNNING, container_statuses=[container])


def terminated(exit_code: int) -> v1.PodStatus:
    return status_with(v1.ContainerState(terminated=v1.ContainerStateTerminated(exit_code=exit_code)))


def waiting() -> v1.PodStatus:
    return status_with(v1.ContainerState(waiting=v1.ContainerStateWaiting()))


def new_pod() -> v1.Pod:
    """Return a pod with restart policy Never and one container."""
    return v1.Pod(
        metadata=metav1.ObjectMeta(name="testPod", namespace="ns", uid=POD_UID),
        spec=v1.PodSpec(containers=[v1.Container(name=CONTAINER_NAME)], restart_policy=v1.RESTART_POLICY_NEVER),
    )


def set_probe(container: v1.Container, probe_type: ProbeType, **spec: int) -> None:
    """Give the container an exec probe, with a period of one second unless `spec` sets another."""
    fields: dict[str, Any] = {
        "timeout_seconds": 1,
        "period_seconds": 1,
        "success_threshold": 1,
        "failure_threshold": 1,
        **spec,
    }
    probe = v1.Probe(exec=v1.ExecAction(), **fields)
    setattr(container, f"{probe_type.lower()}_probe", probe)
