"""A cluster of one node on this machine: the test API server and a kubelet, each a process, on a private containerd."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from kubernetes.client import ApiClient

from framework.cluster_client import Images
from framework.containerd import Containerd
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.program import Program

NODE = "e2e-node"
STOP_TIMEOUT = 20.0
# Nobody answers there; pods want to be told an address.
CLUSTER_DNS = "10.96.0.10"
# Shorter than a real node's, for tests that wait for the next.
STATUS_REPORT_FREQUENCY = 10
# Seconds that a token lives for which the shortest life was asked, for tests that wait until the token is replaced. All
# other tokens live as long as was asked: a test on a slow machine may look at its token minutes later.
SHORTEST_TOKEN = 60


class APIServerProcess:
    """The API server with its controllers; it tells on its standard output how to reach it."""

    def __init__(self, directory: Path) -> None:
        self.log = directory.parent / "apiserver.log"
        arguments = [f"--directory={directory}", "--mount-tokens", f"--shortest-token={SHORTEST_TOKEN}"]
        self._program = Program("framework.apiserver.cluster", arguments, self.log)
        written = json.loads(self._program.start())
        self.admin_kubeconfig = Path(written["admin"])
        self.bootstrap_kubeconfig = Path(written["bootstrap"])

    def stop(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._program.end(signal.SIGTERM, STOP_TIMEOUT)


class ClusterKubelet(KubeletProcess):
    """A kubelet that joins a cluster by a bootstrap kubeconfig, or with one of its own."""

    def __init__(
        self,
        folder: Path,
        node: str,
        containerd: Containerd,
        kubeconfig: Path,
        client_ca: Path,
        bootstrap_kubeconfig: Path | None = None,
    ) -> None:
        config = {
            "cgroupRoot": containerd.cgroup_root,
            "clusterDNS": [CLUSTER_DNS],
            "clusterDomain": "cluster.local",
            "podLogsDir": str(folder / "pod-logs"),
            "nodeStatusReportFrequency": f"{STATUS_REPORT_FREQUENCY}s",
            # So that logs are rotated and volumes measured within the time that a test can wait. Only the log that a
            # test floods gets so large: other tests read what their pods have written since they began.
            "containerLogMaxSize": "2Mi",
            "containerLogMonitorInterval": "3s",
            # None of them is to go because a busy node is slow to write and has rotated more often by then.
            "containerLogMaxFiles": 50,
            "volumeStatsAggPeriod": "2s",
            "rotateCertificates": bootstrap_kubeconfig is not None,
            "enableServer": True,
            "authentication": {"x509": {"clientCAFile": str(client_ca)}},
        }
        # Off unless chosen; a test has many pods wait for their images.
        flags: dict[str, object] = {"kubeconfig": kubeconfig, "pull-critical-images-first": True}
        # One more than by default, for tests that read the log of the container before the restart. Garbage collection,
        # as in Go, counts the new container as dead until it runs, and a busy node may take long to start it.
        flags["maximum-dead-containers-per-container"] = 2
        if bootstrap_kubeconfig is not None:
            flags["bootstrap-kubeconfig"] = bootstrap_kubeconfig
        super().__init__(folder, node, containerd.endpoint, config, flags)
        self._pod_logs = folder / "pod-logs"

    def end(self) -> None:
        """Kill the process if it runs; what its pods left in the runtime goes with the runtime."""
        if self.alive:
            self.kill()
        for link in Path("/var/log/containers").glob("*.log"):
            if link.is_symlink() and link.readlink().is_relative_to(self._pod_logs):
                link.unlink()


class LocalCluster:
    """A context manager; nothing of it is left when it ends.

    `kubeconfig`: of a user who may do everything. `logs`: what its programs say. `kubelet`, `containerd`, `cri`: the
    node from within.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise

    def _start(self) -> None:
        self.containerd = Containerd(self.folder)
        self._stack.callback(self.containerd.clean)
        self.containerd.start()
        self.containerd.import_images()
        self.cri: CRIClient = self.containerd.client()
        self._stack.callback(self.cri.close)
        server = APIServerProcess(self.folder / "cluster")
        self._stack.callback(server.stop)
        self.kubeconfig = server.admin_kubeconfig
        kubeconfig = self.folder / "kubelet.kubeconfig"
        client_ca = self.folder / "cluster" / "kubernetes-ca.crt"
        bootstrap = server.bootstrap_kubeconfig
        self.kubelet = ClusterKubelet(self.folder, NODE, self.containerd, kubeconfig, client_ca, bootstrap)
        self._stack.callback(self.kubelet.end)
        self.kubelet.start()

    @property
    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def kubelet_usage(self) -> tuple[int, int]:
        """The threads and the open files of the kubelet."""
        process = Path(f"/proc/{self.kubelet.pid}")
        return len(list((process / "task").iterdir())), len(list((process / "fd").iterdir()))

    def stop(self) -> None:
        self._stack.close()


@dataclass(frozen=True)
class Environment:
    """The cluster under test. `api` is what the official client's classes take, as in `NodeV1Api(environment.api)`;
    `local` is what only a cluster made here lets tests see and do.
    """

    kubeconfig: Path
    api: ApiClient
    node: str
    images: Images
    local: LocalCluster | None
