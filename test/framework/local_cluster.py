"""Run a cluster of one node on this machine: the processes of the test API server, a kubelet and a containerd."""

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
# Pods need a DNS server in their configuration. None listens at this address.
CLUSTER_DNS = "10.96.0.10"
# The frequency is higher than on a real node, for tests that wait for the next report.
STATUS_REPORT_FREQUENCY = 10
# A token whose requested lifetime is the shortest possible one lives this many seconds, for tests that wait until the
# kubelet replaces the token. All other tokens live as long as requested, because a test on a slow machine may read its
# token minutes later.
SHORTEST_TOKEN = 60


class APIServerProcess:
    """Run the API server with its controllers. Its first line of output names its kubeconfigs."""

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
    """Run a kubelet that joins a cluster with a bootstrap kubeconfig or with a kubeconfig."""

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
            # These values make the kubelet rotate logs and measure volumes within the time that a test can wait. Only
            # the log that a test floods becomes this large, because other tests read everything that their pods have
            # written since their start.
            "containerLogMaxSize": "2Mi",
            "containerLogMonitorInterval": "3s",
            # The number is high, so that the kubelet deletes none of the files even if it rotates more often on a busy
            # node, which writes slowly.
            "containerLogMaxFiles": 50,
            "volumeStatsAggPeriod": "2s",
            "rotateCertificates": bootstrap_kubeconfig is not None,
            "enableServer": True,
            "authentication": {"x509": {"clientCAFile": str(client_ca)}},
        }
        # This feature is off by default. A test makes many pods wait for their images.
        flags: dict[str, object] = {"kubeconfig": kubeconfig, "pull-critical-images-first": True}
        # The value is one more than the default, for tests that read the log of the container before the restart.
        # Garbage collection, as in Go, counts the new container as dead until it runs, and a busy node may take long to
        # start it.
        flags["maximum-dead-containers-per-container"] = 2
        if bootstrap_kubeconfig is not None:
            flags["bootstrap-kubeconfig"] = bootstrap_kubeconfig
        super().__init__(folder, node, containerd.endpoint, config, flags)
        self._pod_logs = folder / "pod-logs"

    def end(self) -> None:
        """Kill the process if it runs. What its pods leave in the runtime disappears with the runtime."""
        if self.alive:
            self.kill()
        for link in Path("/var/log/containers").glob("*.log"):
            if link.is_symlink() and link.readlink().is_relative_to(self._pod_logs):
                link.unlink()


class LocalCluster:
    """Run a cluster of one node. `stop` removes everything that it created.

    `kubeconfig` is the kubeconfig of a user with all permissions. `logs` returns the logs of the programs. `kubelet`,
    `containerd` and `cri` give direct access to the node.
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
        """Return the number of threads and of open files of the kubelet."""
        process = Path(f"/proc/{self.kubelet.pid}")
        return len(list((process / "task").iterdir())), len(list((process / "fd").iterdir()))

    def stop(self) -> None:
        self._stack.close()


@dataclass(frozen=True)
class Environment:
    """Describe the cluster under test.

    `api` is the argument of the official client's classes, as in `NodeV1Api(environment.api)`. `local` gives the
    additional access to a cluster that the tests have started themselves; it is None for another cluster.
    """

    kubeconfig: Path
    api: ApiClient
    node: str
    images: Images
    local: LocalCluster | None
