"""Print which containers have crashed, how, and the last line of their logs.

python crashes.py [NAMESPACE]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from kubernetes import client, config


@dataclass(frozen=True)
class Crash:
    pod: str
    container: str
    reason: str
    exit_code: int
    last_words: str

    def __str__(self) -> str:
        return f"{self.pod}/{self.container}: {self.reason}, exit code {self.exit_code}: {self.last_words}"


def find_crashes(core: client.CoreV1Api, namespace: str) -> list[Crash]:
    """Return the last crash of each container that has crashed."""
    crashes = []
    for pod in core.list_namespaced_pod(namespace).items:
        for status in pod.status.container_statuses or []:
            ended = status.state.terminated or (status.last_state and status.last_state.terminated)
            if ended is not None and ended.exit_code:
                words = last_words(core, pod, status, previous=status.state.terminated is None)
                crashes.append(Crash(pod.metadata.name, status.name, ended.reason, ended.exit_code, words))
    return crashes


def last_words(core: client.CoreV1Api, pod: Any, status: Any, *, previous: bool) -> str:
    """Return the last line of the log of the crashed container."""
    log = core.read_namespaced_pod_log(
        pod.metadata.name,
        pod.metadata.namespace,
        container=status.name,
        previous=previous,
        tail_lines=1,
        _preload_content=False,
    )
    return bytes(log.data).decode().strip()


def main() -> None:
    config.load_kube_config()
    namespace = sys.argv[1] if len(sys.argv) > 1 else "default"
    for crash in find_crashes(client.CoreV1Api(), namespace):
        print(crash)


if __name__ == "__main__":
    main()
