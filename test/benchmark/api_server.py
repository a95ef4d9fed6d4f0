"""Run the test API server as a separate process, so that its cost does not count as the kubelet's.

The process reads commands from its standard input, one a line, and writes a line of JSON for each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from framework.apiserver import cluster
from framework.program import environment

ROOT = Path(__file__).resolve().parents[2]


class APIServer:
    """Control the API server's process. `admin_kubeconfig` is the kubeconfig of a user with all permissions."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "apiserver.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(directory / "cluster")],
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.admin_kubeconfig = Path(self._answer())

    def node_kubeconfig(self, node: str) -> Path:
        return Path(self._ask("node-kubeconfig", node))

    def clear_calls(self) -> None:
        """Forget the calls that have been counted so far."""
        self._ask("clear", "")

    def calls(self, node: str) -> dict[str, int]:
        """Return the number of finished calls of a node's kubelet, by verb and resource: {"patch pods/status": 3}."""
        found: dict[str, int] = self._ask("calls", f"system:node:{node}")
        return found

    def stop(self) -> None:
        """Close the input of the process, and wait for its end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def _ask(self, command: str, argument: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command} {argument}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the API server has ended: {self.log.read_text()[-2000:]}")
        return json.loads(line)


@contextmanager
def api_server(directory: Path) -> Iterator[APIServer]:
    server = APIServer(directory)
    try:
        yield server
    finally:
        server.stop()


def main(directory: Path) -> None:
    # The node keeps its pods as a healthy node does, even if it reports slowly.
    with cluster.Cluster(directory, cluster.Options(node_grace_period=None)) as running:
        print(json.dumps(str(running.admin_kubeconfig)), flush=True)
        for line in sys.stdin:
            command, _, argument = line.rstrip("\n").partition(" ")
            answer: object = None
            match command:
                case "node-kubeconfig":
                    answer = str(running.node_kubeconfig(argument))
                case "calls":
                    answer = running.requests.count_by_verb(user=argument)
                case "clear":
                    running.requests.clear()
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
