#!/usr/bin/env python3
"""Print a line whenever a pod changes, like `kubectl get pods --watch`, and the faults of manifests.

    hack/watch_pods.py [--url http://127.0.0.1:10255] [--debug-socket /var/lib/kubelet/debug.sock]

The script reads the pods from the kubelet's read-only port, and the manifests from its debug socket. It only appends
lines, so the output can be piped and saved.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PERIOD = 0.3
TIMEOUT = 5.0
DEBUG_SOCKET = Path("/var/lib/kubelet/debug.sock")
HEADER = ("TIME", "POD", "READY", "STATUS", "RESTARTS", "ADDRESS")
LINE = "{:<8}  {:<36} {:<6} {:<20} {:<9} {}"


@dataclass(frozen=True)
class Row:
    pod: str
    ready: str
    status: str
    restarts: int
    address: str


def container_reason(status: dict[str, Any]) -> str:
    """Return why a container does not run properly, or "" if it does."""
    state = status.get("state") or {}
    if "waiting" in state:
        return str(state["waiting"].get("reason") or "Waiting")
    if "terminated" in state:
        ended = state["terminated"]
        return str(ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}")
    return ""


def init_reason(pod: dict[str, Any]) -> str:
    """Return the progress of the init containers, or "" if they have finished."""
    statuses = pod["status"].get("initContainerStatuses") or []
    for done, status in enumerate(statuses):
        ended = (status.get("state") or {}).get("terminated")
        if (ended and ended.get("exitCode", 0) == 0) or status.get("started"):
            continue
        reason = container_reason(status)
        if reason in ("", "PodInitializing", "ContainerCreating"):
            return f"Init:{done}/{len(statuses)}"
        return f"Init:{reason}"
    return ""


def pod_status(pod: dict[str, Any]) -> str:
    """Return one word for the state of a pod, as kubectl chooses it."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if initializing := init_reason({"status": status}):
        return initializing
    reasons = [container_reason(each) for each in status.get("containerStatuses") or []]
    wrong = [reason for reason in reasons if reason]
    if wrong and (len(wrong) == len(reasons) or any(reason != "Completed" for reason in wrong)):
        return next((reason for reason in wrong if reason != "Completed"), "Completed")
    return str(status.get("reason") or status.get("phase") or "Pending")


def row_of(pod: dict[str, Any]) -> Row:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    ready = sum(1 for each in containers if each.get("ready"))
    return Row(
        pod=f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
        ready=f"{ready}/{len(pod['spec']['containers'])}",
        status=pod_status(pod),
        restarts=sum(each.get("restartCount", 0) for each in containers),
        address=status.get("podIP") or "-",
    )


def fetch_pods(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/pods", timeout=TIMEOUT) as answer:
        return list(json.load(answer).get("items") or [])


def fetch_manifest_notes(debug_socket: Path) -> dict[str, str]:
    """Return the faults of manifests with the manifests' origins, or an empty dict if there is no debug socket."""
    if not debug_socket.exists():
        return {}
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(TIMEOUT)
    with contextlib.closing(connection):
        connection.sock.connect(str(debug_socket))
        connection.request("GET", "/debug/syncloop/manifests")
        return {note["text"]: note["origin"] for note in json.load(connection.getresponse())["manifests"]}


class Watcher:
    """Remember the printed state of each pod and manifest, and return a line for each change."""

    def __init__(self, url: str, debug_socket: Path) -> None:
        self._url = url
        self._debug_socket = debug_socket
        self._known: dict[str, Row] = {}
        self._notes: dict[str, str] = {}

    def header(self) -> str:
        return LINE.format(*HEADER)

    def look(self) -> Iterator[str]:
        """Yield the lines to print now. Raise OSError if the kubelet does not answer."""
        current = {pod["metadata"]["uid"]: row_of(pod) for pod in fetch_pods(self._url)}
        now = time.strftime("%H:%M:%S")
        for uid, row in current.items():
            if self._known.get(uid) != row:
                yield LINE.format(now, row.pod, row.ready, row.status, row.restarts, row.address)
        for uid, row in self._known.items():
            if uid not in current:
                yield LINE.format(now, row.pod, "-", "Removed", row.restarts, "-")
        self._known = current
        yield from self._look_at_manifests(now)

    def _look_at_manifests(self, now: str) -> Iterator[str]:
        notes = fetch_manifest_notes(self._debug_socket)
        for text in notes:
            if text not in self._notes:
                yield f"{now}  {' '.join(text.split())}"
        for origin in sorted(set(self._notes.values()) - set(notes.values())):
            yield f"{now}  {origin}: its fault is gone"
        self._notes = notes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--url", default="http://127.0.0.1:10255", help="read the pods from this read-only port of the kubelet"
    )
    parser.add_argument(
        "--debug-socket", type=Path, default=DEBUG_SOCKET, help="read the faults of manifests from this debug socket"
    )
    options = parser.parse_args()
    watcher = Watcher(options.url, options.debug_socket)
    print(watcher.header(), flush=True)
    try:
        while True:
            for line in watcher.look():
                print(line, flush=True)
            time.sleep(PERIOD)
    except KeyboardInterrupt:
        pass
    except OSError as err:
        raise SystemExit(f"watch_pods: {err}") from err


if __name__ == "__main__":
    main()
