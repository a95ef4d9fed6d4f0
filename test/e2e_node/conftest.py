"""Fixtures of the node tests: one containerd for all of them, a kubelet for each that asks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from framework.containerd import Containerd, new_run_dir, search_path
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.processes import LeftOut, SlowestFirst, logs_folder, worker

HERE = Path(__file__).parent
NEEDED = ("containerd", "runc", "iptables", "gcc", "ip")
SLOWEST = (
    "eviction_test.py",
    "registry_test.py",
    "static_pod_test.py",
    "density_test.py",
    "containerd_outage_test.py",
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: compares the machine before and after, so nothing else may run")
    config.pluginmanager.register(LeftOut(HERE, left_out))
    config.pluginmanager.register(SlowestFirst(HERE, SLOWEST))


def left_out(item: pytest.Item) -> str:
    """Why a test cannot run here; nothing if it can."""
    return "wants the machine for itself, not --numprocesses" if worker() and item.get_closest_marker("alone") else ""


@pytest.fixture(scope="session")
def containerd() -> Iterator[Containerd]:
    """A containerd with the test images, removed with everything it made when the session ends."""
    missing = [program for program in NEEDED if shutil.which(program, path=search_path()) is None]
    if os.geteuid() != 0 or missing:
        pytest.fail(f"the node tests run as root and need {', '.join(missing or NEEDED)}; hack/setup installs them")
    runtime = Containerd(new_run_dir())
    try:
        runtime.start()
        runtime.import_images()
        yield runtime
    finally:
        runtime.clean()


@pytest.fixture(scope="session")
def cri(containerd: Containerd) -> Iterator[CRIClient]:
    """The tests' own view of the runtime."""
    client = containerd.client()
    yield client
    client.close()


@pytest.fixture(scope="module")
def new_kubelet(
    request: pytest.FixtureRequest, containerd: Containerd, cri: CRIClient
) -> Iterator[Callable[..., KubeletProcess]]:
    """Make kubelets, given their node and more configuration or flags; all are cleaned up after the file.

    Their logs are kept in .build/e2e_node when a test of the file failed.
    """
    made: list[KubeletProcess] = []
    failed_before = request.session.testsfailed
    cleaning = ExitStack()

    def make(
        node: str,
        config: Mapping[str, object] | None = None,
        root_dir: Path | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> KubeletProcess:
        # A kubelet removes the logs of pods that it does not know, so those in the usual place can be of one alone.
        logs = containerd.run_dir / f"{node}-logs"
        full = {"cgroupRoot": containerd.node_cgroup_root(node), "podLogsDir": str(logs), **(config or {})}
        made.append(KubeletProcess(containerd.run_dir, node, containerd.endpoint, full, flags, root_dir))
        cleaning.callback(made[-1].clean, cri)
        return made[-1]

    with cleaning:
        yield make
        for process in made:
            if request.session.testsfailed > failed_before and process.log.exists():
                folder = logs_folder("e2e_node")
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(process.log, folder)
                print(f"log of kubelet {process.node}: {folder / process.log.name}")
