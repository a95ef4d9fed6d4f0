"""Define the fixtures of the integration tests: kubelets on the hollow runtime, alone or as nodes of a cluster."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from framework import client_faults, plugin_faults, runtime_faults
from framework.apiserver.cluster import Cluster
from framework.cluster_node import ClusterNode
from framework.hollow_kubelet import HollowKubelet
from framework.pod_history import PodHistory
from framework.processes import SlowestFirst, logs_folder

from pkg import golang

# After a request to stop, threads get this many seconds to end.
_GRACE = 30.0
SLOWEST = (
    "api_identity_test.py",
    "api_outage_test.py",
    "api_killed_at_step_test.py",
    "csi_killed_test.py",
    "csi_driver_killed_test.py",
    "api_admission_test.py",
    "hostile_clients_test.py",
    "runtime_hangs_test.py",
    "runtime_late_test.py",
    "plugin_streams_test.py",
    "runtime_errors_test.py",
    "runtime_nonsense_test.py",
    "plugin_errors_test.py",
    "client_hangs_test.py",
    "runtime_empty_test.py",
    "api_node_test.py",
    "api_restart_test.py",
    "api_watch_test.py",
    "client_late_test.py",
    "client_status_test.py",
    "pods_test.py",
    "csi_registration_test.py",
    "client_nonsense_test.py",
    "plugin_hangs_test.py",
    "client_wrong_types_test.py",
    "client_empty_test.py",
    "plugin_empty_test.py",
    "plugin_late_test.py",
    "api_pods_test.py",
    "client_errors_test.py",
    "client_garbage_test.py",
    "client_cut_test.py",
    "api_environment_test.py",
    "plugin_nonsense_test.py",
    "api_clock_test.py",
    "runtime_seldom_calls_test.py",
    "dra_test.py",
    "api_deletion_test.py",
    "volumes_killed_test.py",
    "api_resize_test.py",
    "api_mirror_pods_test.py",
    "live_view_test.py",
    "kubelet_restart_test.py",
)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SlowestFirst(Path(__file__).parent, SLOWEST))


@pytest.fixture(autouse=True, scope="module")
def _no_leaked_threads() -> Iterator[None]:
    """Check for leaked threads only after each file.

    This fixture replaces the fixture that checks after each test, because the runtime's server lives as long as its
    file.
    """
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + _GRACE
    started = [thread for thread in threading.enumerate() if thread not in before]
    for thread in started:
        if isinstance(thread, golang.Thread) or not thread.daemon:
            thread.join(max(deadline - time.monotonic(), 0.0))
            assert not thread.is_alive(), f"thread {thread.name} still runs"


@pytest.fixture(scope="module")
def new_kubelet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., HollowKubelet]]:
    """Yield a function that makes kubelets, with the arguments of HollowKubelet. End all kubelets after the file.

    The function starts the runtime of each kubelet unless `runtime_up` is false. If a test of the file failed, the
    fixture keeps the kubelets' logs in .build/integration.
    """
    made: list[HollowKubelet] = []
    failed_before = request.session.testsfailed

    def make(
        node: str,
        config: Mapping[str, object] | None = None,
        root_dir: Path | None = None,
        runtime_up: bool = True,
    ) -> HollowKubelet:
        folder = tmp_path_factory.mktemp(node, numbered=False)
        kubelet = HollowKubelet(folder, node, config, root_dir=root_dir)
        made.append(kubelet)
        if runtime_up:
            kubelet.server.start()
        return kubelet

    yield make
    _end(made, request.session.testsfailed > failed_before)


def _end(kubelets: Iterable[HollowKubelet], keep_logs: bool) -> None:
    for kubelet in kubelets:
        kubelet.end()
        if keep_logs and kubelet.log.exists():
            folder = logs_folder("integration")
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(kubelet.log, folder)
            print(f"log of kubelet {kubelet.node}: {folder / Path(kubelet.log).name}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield the file's API server. Its cluster has everything except nodes."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def history(cluster: Cluster) -> Iterator[PodHistory]:
    """Yield the history of every state that every pod has had in the API server."""
    history = PodHistory(cluster.store)
    yield history
    history.stop()


@pytest.fixture(scope="module")
def runtime_round(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[runtime_faults.Round]:
    """Yield the file's node, whose runtime calls fail in the way that the file's KIND names."""
    with runtime_faults.round_of(request.module.KIND, tmp_path_factory.mktemp("faulty")) as life:
        yield life


@pytest.fixture(scope="module")
def client_round(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[client_faults.Round]:
    """Yield the file's node, whose API server calls fail in the way that the file's KIND names."""
    with client_faults.round_of(request.module.KIND, tmp_path_factory.mktemp("faulty")) as life:
        yield life


@pytest.fixture(scope="module")
def plugin_round(request: pytest.FixtureRequest) -> Iterator[plugin_faults.Round]:
    """Yield the file's node, whose plugin calls fail in the ways that the file's KINDS name."""
    # The path of a Unix socket must be short.
    with (
        tempfile.TemporaryDirectory(prefix="plug-") as folder,
        plugin_faults.round_of(request.module.KINDS, Path(folder)) as life,
    ):
        yield life


@pytest.fixture(scope="module")
def new_node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, history: PodHistory
) -> Iterator[Callable[..., ClusterNode]]:
    """Yield a function that makes kubelets of the cluster, with the arguments of ClusterNode.

    `ClusterNode.join` starts such a kubelet. Otherwise the fixture works like `new_kubelet`.
    """
    made: list[ClusterNode] = []
    failed_before = request.session.testsfailed

    def make(
        node: str,
        config: Mapping[str, object] | None = None,
        flags: Mapping[str, object] | None = None,
        root_dir: Path | None = None,
        runtime_up: bool = True,
    ) -> ClusterNode:
        folder = tmp_path_factory.mktemp(node)
        kubelet = ClusterNode(folder, node, cluster, history, config, flags, root_dir)
        made.append(kubelet)
        if runtime_up:
            kubelet.server.start()
        return kubelet

    yield make
    _end(made, request.session.testsfailed > failed_before)
