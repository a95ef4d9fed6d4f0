"""Define the fixtures of the node tests: one containerd for all of them, and kubelets for each test that needs them."""

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
    config.addinivalue_line("markers", "alone: compares the machine before and after, so no other test may run")
    config.pluginmanager.register(LeftOut(HERE, left_out))
    config.pluginmanager.register(SlowestFirst(HERE, SLOWEST))


def left_out(item: pytest.Item) -> str:
    """Return the reason why a test cannot run here, or an empty string if it can."""
    return (
        "needs the machine for itself, without --numprocesses" if worker() and item.get_closest_marker("alone") else ""
    )


@pytest.fixture(scope="session")
def containerd() -> Iterator[Containerd]:
    """Yield a containerd with the test images. At the end of the session, remove it with everything that it made."""
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
    """Yield a client of the runtime for the tests themselves."""
    client = containerd.client()
    yield client
    client.close()


@pytest.fixture(scope="module")
def new_kubelet(
    request: pytest.FixtureRequest, containerd: Containerd, cri: CRIClient
) -> Iterator[Callable[..., KubeletProcess]]:
    """Yield a function that makes kubelets, given a node name and further configuration or flags.

    The fixture cleans up after the file. If a test of the file failed, it keeps the kubelets' logs in .build/e2e_node.
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
        # A kubelet removes the logs of pods that it does not know, so only one kubelet may use the default log
        # directory.
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
