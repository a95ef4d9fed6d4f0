"""The kubectls of this machine, and which protocol each is to speak for streams."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from framework.containerd import ROOT

# Where `hack/setup kubectl` puts the newest; Debian's, which is older, is in the PATH.
_NEWEST = ROOT / ".venv" / "bin" / "kubectl"
_SWITCHES = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS")


def newest() -> str:
    """The program; nothing if there is none."""
    return str(_NEWEST) if _NEWEST.exists() else shutil.which("kubectl") or ""


def of_the_system() -> str:
    """The one in the PATH; the newest if there is no other."""
    return shutil.which("kubectl") or newest()


@dataclass(frozen=True)
class Kubectl:
    """kubectl as a user of a cluster, in a namespace."""

    program: str
    kubeconfig: Path
    namespace: str
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        return [self.program, f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *arguments]

    def env(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def run(self, *arguments: str, stdin: bytes = b"", timeout: float = 120.0) -> subprocess.CompletedProcess[bytes]:
        """To its end, whatever that is."""
        return subprocess.run(
            self.command(*arguments), input=stdin, env=self.env(), capture_output=True, timeout=timeout, check=False
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """With pipes, that keep nothing back which a select would not tell of; ending it is the caller's."""
        command, pipe = self.command(*arguments), subprocess.PIPE
        return subprocess.Popen(command, 0, env=self.env(), stdin=pipe, stdout=pipe, stderr=pipe)


def ways(kubeconfig: Path, namespace: str) -> dict[str, Kubectl]:
    """Over WebSockets, over SPDY, and as the system's kubectl does it, whatever that is."""
    off = dict.fromkeys(_SWITCHES, "false")
    on = dict.fromkeys(_SWITCHES, "true")
    return {
        "websocket": Kubectl(newest(), kubeconfig, namespace, on),
        "spdy": Kubectl(newest(), kubeconfig, namespace, off),
        "system": Kubectl(of_the_system(), kubeconfig, namespace),
    }
