"""Run a containerd that belongs to the tests alone; hack/containerd starts and removes it.

The environment variable CONTAINERD_BIN_DIR names a directory with another containerd than the machine's, its shim and
ctr. The directory may contain a runc, too; otherwise containerd uses the machine's:

    CONTAINERD_BIN_DIR=/opt/containerd-2.1/bin pytest test/e2e_node
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from framework.cri import CRIClient
from framework.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
PAUSE = "registry.k8s.io/pause:3.10"
BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
# This image contains busybox, too, and names SIGQUIT as its stop signal.
BUSYBOX_SIGQUIT = "registry.k8s.io/e2e-test-images/busybox-sigquit:1.0"
WEB = "registry.k8s.io/e2e-test-images/web:1.0"


def search_path() -> str:
    """Return the search path for the programs. Raise FileNotFoundError if CONTAINERD_BIN_DIR has no containerd."""
    path = os.environ.get("PATH", os.defpath)
    folder = os.environ.get("CONTAINERD_BIN_DIR")
    if not folder:
        return path
    if not Path(folder, "containerd").exists():
        raise FileNotFoundError(f"CONTAINERD_BIN_DIR: no containerd in {folder}")
    return f"{folder}{os.pathsep}{path}"


def hack(script: str, *arguments: str) -> str:
    """Run a developer script with this interpreter. If it fails, its output is part of the RuntimeError."""
    finished = subprocess.run(
        [sys.executable, str(ROOT / "hack" / script), *arguments],
        env={**os.environ, "PATH": search_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        raise RuntimeError(f"hack/{script} {' '.join(arguments)}: {finished.stdout}{finished.stderr}")
    return finished.stdout


def new_run_dir() -> Path:
    """Create a directory for a containerd and its kubelet. Containerd.clean removes it."""
    # The directory is directly below /tmp because the socket's path must be short.
    run_dir = Path(tempfile.mkdtemp(prefix="kubelet-e2e-"))
    # The root user of a pod with a user namespace is another user on the node, and that user must reach the pod's root
    # directory.
    run_dir.chmod(0o711)
    return run_dir


class Containerd:
    """Run a private containerd with its images. `clean` removes everything that it created."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.socket = run_dir / "containerd.sock"
        self.endpoint = f"unix://{self.socket}"

    def start(self) -> None:
        """Start containerd and wait until it can run pods."""
        hack("containerd", "--run-dir", str(self.run_dir), "start")
        client = self.client()
        wait_for("containerd can run pods", client.ready, timeout=60, describe=self._end_of_log)
        client.close()

    @property
    def cgroup_root(self) -> str:
        """Return the parent cgroup of the pods of all kubelets that use this containerd."""
        return (self.run_dir / "cgroup-root").read_text()

    def node_cgroup_root(self, node: str) -> str:
        """Create a cgroup below the common parent for one kubelet.

        Kubelets must not share a parent, because each removes the cgroups of pods that it does not know.
        """
        path = f"{self.cgroup_root}/{node}"
        hierarchies = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]
        for hierarchy in hierarchies:
            if (above := Path(f"{hierarchy}{self.cgroup_root}")).is_dir():
                (above / node).mkdir(exist_ok=True)
        return path

    def import_images(self) -> None:
        hack("build_images", "--import-into", str(self.socket))

    def stop(self) -> None:
        """Stop containerd alone; its containers continue to run."""
        hack("containerd", "--run-dir", str(self.run_dir), "stop")

    def clean(self) -> None:
        hack("containerd", "--run-dir", str(self.run_dir), "clean")

    def client(self) -> CRIClient:
        """Return a new client. The caller must close it."""
        return CRIClient(self.endpoint)

    def _end_of_log(self) -> str:
        return (self.run_dir / "containerd.log").read_text()[-2000:]
