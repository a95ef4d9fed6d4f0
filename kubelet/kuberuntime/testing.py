"""Build a runtime manager whose services have a state that a test sets, for table tests.

Go: pkg/kubelet/kuberuntime/fake_kuberuntime_manager.go
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kubelet import cadvisor as cadvisorapi
from kubelet import cm, logs
from kubelet import container as kubecontainer
from kubelet.container import testing as containertest
from kubelet.cri import testing as critesting
from kubelet.kuberuntime import KubeGenericRuntimeManager, RuntimeManagerOptions, new_kube_generic_runtime_manager
from kubelet.kuberuntime.instrumented_services import NullRuntimeObserver
from kubelet.prober import results as proberesults
from pkg import golang
from pkg.apimachinery import clock as clockpkg
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.client_go.util import flowcontrol

FAKE_SECCOMP_PROFILE_ROOT = "/fakeRoot/seccomp"
FAKE_POD_LOGS_DIRECTORY = "/var/log/pods"
_FAKE_NODE_ALLOCATABLE = {"memory": "32Gi", "cpu": "16"}


@dataclass(slots=True)
class FakePodStateProvider:
    """Report from two sets of UIDs which parts of a pod may be removed."""

    terminated: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)

    def is_pod_termination_requested(self, uid: types.UID) -> bool:
        return uid in self.removed

    def should_pod_runtime_be_removed(self, uid: types.UID) -> bool:
        return uid in self.terminated

    def should_pod_content_be_removed(self, uid: types.UID) -> bool:
        return uid in self.removed


class FakePodPullingTimeRecorder:
    """Record the pods whose pulls began and ended."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.finished: list[str] = []

    def record_image_started_pulling(self, pod_uid: types.UID) -> None:
        self.started.append(pod_uid)

    def record_image_finished_pulling(self, pod_uid: types.UID) -> None:
        self.finished.append(pod_uid)


class FakeHTTPDoer:
    """Record the requests, and raise `err` if it is set."""

    def __init__(self, err: Exception | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.err = err

    def do(self, ctx: golang.Context, url: str, headers: list[tuple[str, str]]) -> None:
        self.requests.append((url, dict(headers)))
        if self.err is not None:
            raise self.err


class FakeCommandRunner:
    """Record the hooks to run, and raise `err` if it is set."""

    def __init__(self, err: Exception | None = None) -> None:
        self.handlers: list[Any] = []
        self.err = err

    def run(self, ctx: golang.Context, container_id: Any, pod: Any, container: Any, handler: Any) -> str:
        self.handlers.append(handler)
        if self.err is not None:
            raise self.err
        return ""


@dataclass(slots=True)
class TestRuntime:
    """Hold a runtime manager and its fake dependencies.

    Go: kuberuntime_manager_test.go, createTestRuntimeManager
    """

    __test__ = False

    manager: KubeGenericRuntimeManager
    options: RuntimeManagerOptions
    runtime: critesting.FakeRuntimeService
    images: critesting.FakeImageService
    recorder: FakeRecorder
    helper: containertest.FakeRuntimeHelper
    os: containertest.FakeOS
    pod_state: FakePodStateProvider
    http: FakeHTTPDoer
    pulling: FakePodPullingTimeRecorder
    clock: clockpkg.Clock

    def back_off(self) -> flowcontrol.Backoff:
        """Return the kubelet's crash backoff, which grows from 10 seconds to 5 minutes."""
        return flowcontrol.Backoff(10.0, 300.0, clock=self.clock)


class FakeRuntimeObserver(NullRuntimeObserver):
    """Record the killed containers and the reasons."""

    def __init__(self) -> None:
        self.kills: list[tuple[str, str, str]] = []

    def killing(self, uid: types.UID, container: str, reason: str) -> None:
        self.kills.append((uid, container, reason))


def create_test_runtime_manager(
    root_directory: str,
    clock: clockpkg.Clock | None = None,
    runner: kubecontainer.HandlerRunner | None = None,
    **overrides: Any,
) -> TestRuntime:
    """Build a runtime manager; root_directory holds pull records, overrides set fields of RuntimeManagerOptions.

    Without a runner, the runtime runs exec hooks, and the fake HTTP client records requests.
    """
    clock = clock or clockpkg.RealClock()
    runtime = critesting.FakeRuntimeService(clock=clock)
    images = critesting.FakeImageService()
    recorder = FakeRecorder(1000)
    helper = containertest.FakeRuntimeHelper()
    os_interface = containertest.FakeOS()
    pod_state = FakePodStateProvider()
    http = FakeHTTPDoer()
    pulling = FakePodPullingTimeRecorder()
    allocatable = {name: resource.must_parse(text) for name, text in _FAKE_NODE_ALLOCATABLE.items()}
    values: dict[str, Any] = {
        # The kubelet passes the same filter, which drops events without a valid reference.
        "recorder": kubecontainer.filter_event_recorder(recorder),
        "liveness_manager": proberesults.Manager(),
        "startup_manager": proberesults.Manager(),
        "root_directory": root_directory,
        "pod_logs_directory": FAKE_POD_LOGS_DIRECTORY,
        "machine_info": cadvisorapi.MachineInfo(
            num_cores=16, memory_capacity=allocatable["memory"].value(), machine_id="machine"
        ),
        "pod_state_provider": pod_state,
        "os_interface": os_interface,
        "runtime_helper": helper,
        "insecure_container_lifecycle_http_client": http,
        "image_back_off": flowcontrol.Backoff(1.0, 300.0, clock=clock),
        "serialize_image_pulls": False,
        "max_parallel_image_pulls": None,
        "pull_critical_images_first": False,
        "image_pull_qps": 0.0,
        "image_pull_burst": 0,
        "image_pulls_credential_verification_policy": "NeverVerifyPreloadedImages",
        "preloaded_images_credential_verification_whitelist": [],
        "external_credentials": None,
        "single_process_oom_kill": None,
        "cpu_cfs_quota": False,
        "cpu_cfs_quota_period": 0.1,
        "runtime_service": runtime,
        "image_service": images,
        "container_manager": cm.ContainerManagerStub(),
        "log_manager": logs.ContainerLogManagerStub(),
        "runtime_class_manager": None,
        "seccomp_default": False,
        "read_rotated_logs": False,
        "memory_swap_behavior": "NoSwap",
        "get_node_allocatable": lambda: allocatable,
        "get_swap_controller_available": lambda: False,
        "memory_throttling_factor": 0.9,
        "memory_reservation_policy": "None",
        "pod_pulling_time_recorder": pulling,
        "clock": clock,
    }
    if runner is not None:
        values["new_handler_runner"] = lambda *args: runner
    options = RuntimeManagerOptions(**(values | overrides))
    manager, _ = new_kube_generic_runtime_manager(golang.background(), options)
    runtime.reset_calls()
    return TestRuntime(
        manager, options, runtime, images, recorder, helper, os_interface, pod_state, http, pulling, clock
    )
