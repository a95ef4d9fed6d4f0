"""Test the table of `make run`: the names of pod states, and when a line is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import watch_pods
from framework.web import ManifestServer

from pkg import golang
from pkg.golang import http

RUNNING = {"ready": True, "restartCount": 0, "state": {"running": {}}}


def pod(name: str = "p", containers: int = 1, **status: object) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{}] * containers},
        "status": {"phase": "Pending", **status},
    }


def ended(code: int, reason: str) -> dict[str, Any]:
    return {"ready": False, "restartCount": 1, "state": {"terminated": {"exitCode": code, "reason": reason}}}


def waiting(reason: str) -> dict[str, Any]:
    return {"ready": False, "restartCount": 2, "state": {"waiting": {"reason": reason}}}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(pod(), "Pending", id="nothing known yet"),
        pytest.param(pod(containerStatuses=[waiting("ContainerCreating")]), "ContainerCreating", id="creating"),
        pytest.param(pod(containerStatuses=[waiting("ImagePullBackOff")]), "ImagePullBackOff", id="no image"),
        pytest.param(pod(phase="Running", containerStatuses=[RUNNING]), "Running", id="running"),
        pytest.param(
            pod(phase="Running", containerStatuses=[RUNNING, waiting("CrashLoopBackOff")]),
            "CrashLoopBackOff",
            id="one of two crashes",
        ),
        pytest.param(
            pod(phase="Running", containerStatuses=[RUNNING, ended(0, "Completed")]),
            "Running",
            id="one is done",
        ),
        pytest.param(pod(phase="Succeeded", containerStatuses=[ended(0, "Completed")]), "Completed", id="done"),
        pytest.param(pod(phase="Failed", containerStatuses=[ended(3, "Error")]), "Error", id="failed"),
        pytest.param(pod(phase="Failed", reason="Evicted"), "Evicted", id="evicted"),
        pytest.param(
            pod(initContainerStatuses=[ended(0, "Completed"), waiting("PodInitializing")]),
            "Init:1/2",
            id="first init container done",
        ),
        pytest.param(
            pod(initContainerStatuses=[waiting("CrashLoopBackOff")]),
            "Init:CrashLoopBackOff",
            id="init crashes",
        ),
        pytest.param(
            pod(
                initContainerStatuses=[{**RUNNING, "started": True}],
                phase="Running",
                containerStatuses=[RUNNING],
            ),
            "Running",
            id="sidecar",
        ),
    ],
)
def test_pod_status(found: dict[str, Any], want: str) -> None:
    assert watch_pods.pod_status(found) == want


def test_watcher_prints_what_changed_and_nothing_else(tmp_path: Path) -> None:
    with ManifestServer() as server:
        watcher = watch_pods.Watcher(server.url, tmp_path / "debug.sock")

        def look(*pods: dict[str, Any]) -> list[list[str]]:
            server.body = json.dumps({"items": pods}).encode()
            return [line.split()[1:] for line in watcher.look()]

        first = pod("a", phase="Running", podIP="10.0.0.1", containerStatuses=[RUNNING])
        assert look(pod("a"), pod("b")) == [
            ["default/a", "0/1", "Pending", "0", "-"],
            ["default/b", "0/1", "Pending", "0", "-"],
        ]
        assert look(pod("a"), pod("b")) == []
        assert look(first, pod("b")) == [["default/a", "1/1", "Running", "0", "10.0.0.1"]]
        assert look(first) == [["default/b", "-", "Removed", "0", "-"]]
        assert look(first) == []


def test_watcher_tells_what_is_wrong_with_manifests(tmp_path: Path) -> None:
    notes: list[dict[str, str]] = []
    mux = http.ServeMux()
    mux.handle("/debug/syncloop/manifests", lambda w, r: w.write(json.dumps({"manifests": notes}).encode()))
    debug = http.Server(mux, name="test-debug")
    debug.listen_unix(str(tmp_path / "debug.sock"))
    ctx, cancel = golang.with_cancel(golang.background())
    thread = golang.go(debug.serve, ctx, name="test-debug")
    with ManifestServer() as server:
        server.body = b'{"items": []}'
        watcher = watch_pods.Watcher(server.url, tmp_path / "debug.sock")

        def look() -> list[str]:
            return [line.split(maxsplit=1)[1] for line in watcher.look()]

        assert look() == []
        notes.append({"origin": "/m/a.yaml", "text": "/m/a.yaml: spec.containers:\n Required value"})
        assert look() == ["/m/a.yaml: spec.containers: Required value"]
        assert look() == []
        notes.clear()
        assert look() == ["/m/a.yaml: its fault is gone"]
    cancel()
    thread.join()
