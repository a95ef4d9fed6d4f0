"""Define the fixtures of the cluster tests, for the cluster that KUBECONFIG names or for a local one. See README.md."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework.cluster_client import Images, Namespace, is_true, new_client
from framework.containerd import new_run_dir, search_path
from framework.local_cluster import Environment, LocalCluster
from framework.pod_ways import Pods, StaticPods
from framework.pods import pod, sleeper
from framework.processes import LeftOut, SlowestFirst, logs_folder
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api, V1Node

HERE = Path(__file__).parent
NEEDED = ("containerd", "runc", "iptables", "gcc", "ip")
NODE_TIMEOUT = 120.0
SLOWEST = (
    "kubectl_streams_test.py",
    "volume_faults_test.py",
    "kubectl_logs_test.py",
    "volume_updates_test.py",
    "containers_test.py",
    "probes_test.py",
    "environment_test.py",
    "node_test.py",
    "termination_test.py",
    "hooks_test.py",
    "resize_test.py",
    "burst_test.py",
    "registry_test.py",
)


# --- Selection of tests -----------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("KUBECONFIG") and config.getoption("numprocesses", None):
        raise pytest.UsageError("tests taint and cordon the node of a KUBECONFIG, so run them in only one process")
    config.addinivalue_line("markers", "local: needs the node itself, so the test runs only on the local cluster")
    config.addinivalue_line("markers", "kubectl: needs kubectl")
    config.pluginmanager.register(LeftOut(HERE, left_out))
    config.pluginmanager.register(SlowestFirst(HERE, SLOWEST))


def left_out(item: pytest.Item) -> str:
    """Return the reason why a test cannot run here, or an empty string if it can."""
    if item.get_closest_marker("local") and os.environ.get("KUBECONFIG"):
        return "needs the node itself, not only a KUBECONFIG"
    if item.get_closest_marker("kubectl") and shutil.which("kubectl") is None:
        return "kubectl is not installed"
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the history of the namespace's pods and the end of the kubelet's log to the report of a failure."""
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        namespace = getattr(item, "funcargs", {}).get("namespace")
        environment = getattr(item, "funcargs", {}).get("environment")
        sections: list[tuple[str, str]] = report.sections  # type: ignore[attr-defined]
        if namespace is not None:
            sections.append(("pods and events", namespace.describe()))
        if environment is not None and environment.local is not None:
            sections.append(("end of the kubelet's log", environment.local.kubelet.end_of_log()))
    return report


# --- The cluster ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def environment(request: pytest.FixtureRequest) -> Iterator[Environment]:
    """Yield the cluster that KUBECONFIG names, or a local cluster that is removed after the last test.

    If a test failed, the fixture keeps the logs of the local cluster in .build/e2e. Each of several pytest processes
    makes a cluster of its own.
    """
    if kubeconfig := os.environ.get("KUBECONFIG"):
        yield connect(Path(kubeconfig), None)
        return
    local = start_local_cluster()
    try:
        yield connect(local.kubeconfig, local)
    finally:
        if request.session.testsfailed:
            folder = logs_folder("e2e")
            folder.mkdir(parents=True, exist_ok=True)
            for log in local.logs:
                shutil.copy(log, folder)
            print(f"logs: {folder}")
        local.stop()


def start_local_cluster() -> LocalCluster:
    missing = [program for program in NEEDED if shutil.which(program, path=search_path()) is None]
    if os.geteuid() != 0 or missing:
        pytest.fail(
            f"without KUBECONFIG the cluster tests run as root and need {', '.join(missing or NEEDED)}; "
            "hack/setup installs them"
        )
    return LocalCluster(new_run_dir())


def connect(kubeconfig: Path, local: LocalCluster | None) -> Environment:
    api = new_client(kubeconfig)
    return Environment(kubeconfig, api, choose_node(CoreV1Api(api)), Images.from_environment(), local)


def choose_node(core: CoreV1Api) -> str:
    """Return the node that E2E_NODE names, or the first node that is Ready and schedulable."""
    wanted = os.environ.get("E2E_NODE", "")

    def usable(node: V1Node) -> bool:
        if wanted:
            return bool(node.metadata.name == wanted) and is_true(node, "Ready")
        return is_true(node, "Ready") and not node.spec.unschedulable and not node.spec.taints

    def look() -> list[str]:
        return [node.metadata.name for node in core.list_node().items if usable(node)]

    return wait_for(f"node {wanted or 'that is not tainted'} Ready", look, NODE_TIMEOUT)[0]


@pytest.fixture(scope="session")
def core(environment: Environment) -> CoreV1Api:
    return CoreV1Api(environment.api)


@pytest.fixture(scope="session")
def local(environment: Environment) -> LocalCluster:
    """Return the local cluster, for tests that need access to its node and are marked local."""
    assert environment.local is not None, "a test that uses the fixture `local` must be marked local"
    return environment.local


@pytest.fixture(scope="session")
def new_namespace(environment: Environment) -> Iterator[Callable[[str], Namespace]]:
    """Yield a function that makes namespaces. After the last test, wait until all of them are gone."""
    made: list[Namespace] = []

    def make(name: str) -> Namespace:
        made.append(Namespace(environment.api, environment.node, environment.images, name))
        return made[-1]

    yield make
    for namespace in made:
        namespace.wait_gone()


@pytest.fixture(scope="module")
def namespace(request: pytest.FixtureRequest, new_namespace: Callable[[str], Namespace]) -> Iterator[Namespace]:
    """Yield the namespace of a file's tests. When they have ended, delete the namespace while other tests run."""
    made = new_namespace(Path(request.module.__file__).stem.removesuffix("_test").replace("_", "-"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def both_ways(environment: Environment, namespace: Namespace) -> Iterator[dict[str, Pods]]:
    """Yield API pods and, on the local cluster, static pods too, for the first fixture of a file."""
    ways = {"api": Pods(namespace, environment.local)}
    if environment.local is not None:
        ways["static"] = StaticPods(namespace, environment.local)
    yield ways
    for pods in ways.values():
        pods.close()


@pytest.fixture(params=["api", pytest.param("static", marks=pytest.mark.local)])
def pods(request: pytest.FixtureRequest, both_ways: dict[str, Pods]) -> Pods:
    """Return API pods or static pods, for tests that expect the same of both."""
    return both_ways[request.param]


@pytest.fixture(scope="session")
def used_kubelet(environment: Environment, new_namespace: Callable[[str], Namespace]) -> None:
    """Run a pod and delete it, so that the kubelet has started every thread that it starts on first use.

    The node may be Ready before the kubelet has started these threads.
    """
    namespace = new_namespace("first-use")
    namespace.create(pod("first", sleeper()))
    namespace.wait_for_running("first")
    namespace.core.delete_namespaced_pod("first", namespace.name)
    namespace.wait_deleted("first")
    namespace.close()
