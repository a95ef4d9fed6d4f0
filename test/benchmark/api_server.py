"""The test API server as a process of its own, so that what it costs is not taken for the kubelet's.

It is told by lines on its standard input what to do, and answers each with a line of JSON.
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
    """The process as its starter sees it. `admin_kubeconfig`: of a user who may do everything."""

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
        """Forget the calls counted so far."""
        self._ask("clear", "")

    def calls(self, node: str) -> dict[str, int]:
        """How many calls of a node's kubelet were answered, by verb and resource: {"patch pods/status": 3}."""
        found: dict[str, int] = self._ask("calls", f"system:node:{node}")
        return found

    def stop(self) -> None:
        """End it, which it does when its input ends."""
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
    # Pods are as they would be on a node that stays: none are taken from it because it is slow to report.
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
