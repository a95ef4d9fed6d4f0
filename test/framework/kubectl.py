"""Run this machine's kubectls, each with the protocol that it uses for streams."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from framework.containerd import ROOT

# `hack/setup kubectl` installs the newest kubectl here. Debian's, which is older, is in the PATH.
_NEWEST = ROOT / ".venv" / "bin" / "kubectl"
_SWITCHES = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS")


def newest() -> str:
    """Return the path of the newest kubectl, or "" if the machine has none."""
    return str(_NEWEST) if _NEWEST.exists() else shutil.which("kubectl") or ""


def of_the_system() -> str:
    """Return the path of the kubectl in the PATH, or of the newest if the PATH has none."""
    return shutil.which("kubectl") or newest()


@dataclass(frozen=True)
class Kubectl:
    """Run kubectl as a user of a cluster, in a namespace."""

    program: str
    kubeconfig: Path
    namespace: str
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        return [self.program, f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *arguments]

    def env(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def run(self, *arguments: str, stdin: bytes = b"", timeout: float = 120.0) -> subprocess.CompletedProcess[bytes]:
        """Run a command and wait for its end. A failure raises nothing."""
        return subprocess.run(
            self.command(*arguments), input=stdin, env=self.env(), capture_output=True, timeout=timeout, check=False
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command with unbuffered pipes, which work with select. The caller must end the process."""
        command, pipe = self.command(*arguments), subprocess.PIPE
        return subprocess.Popen(command, 0, env=self.env(), stdin=pipe, stdout=pipe, stderr=pipe)


def ways(kubeconfig: Path, namespace: str) -> dict[str, Kubectl]:
    """Return kubectls that stream over WebSockets, over SPDY, and with the default protocol of the system's kubectl."""
    off = dict.fromkeys(_SWITCHES, "false")
    on = dict.fromkeys(_SWITCHES, "true")
    return {
        "websocket": Kubectl(newest(), kubeconfig, namespace, on),
        "spdy": Kubectl(newest(), kubeconfig, namespace, off),
        "system": Kubectl(of_the_system(), kubeconfig, namespace),
    }
