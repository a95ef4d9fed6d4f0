"""Test a node that gets no more threads: it reports what waits, nothing crashes, and everything recovers later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from framework.apiserver import APIServer
from framework.hollow_node import HollowNode
from framework.waiting import wait_for

from pkg import golang

Object = dict[str, Any]
TIMEOUT = 60.0


def _pod(name: str) -> Object:
    """Return a pod that needs many threads: for several containers, probes, volumes, and a referenced object."""
    volumes = [
        {"name": "empty", "emptyDir": {}},
        {"name": "settings", "configMap": {"name": "settings", "optional": True}},
    ]
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    hook = {"preStop": {"exec": {"command": ["true"]}}}
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    container = {"image": "web:1", "readinessProbe": probe, "lifecycle": hook, "volumeMounts": mounts}
    containers = [{"name": f"c{number}", **container} for number in range(3)]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": "node-1",
            "terminationGracePeriodSeconds": 1,
            "containers": containers,
            "volumes": volumes,
        },
    }


def _phase(api: APIServer, name: str) -> str:
    phase: str = api.store.get("pods", name, "default")["status"].get("phase", "")
    return phase


def _events(api: APIServer, name: str) -> list[str]:
    return [event["message"] for event in api.store.list("events") if event["involvedObject"].get("name") == name]


@contextmanager
def _out_of_threads(node: HollowNode) -> Iterator[list[str]]:
    """Refuse all new threads of the node, but no others, and yield the names of the refused threads."""
    refused: list[str] = []
    start = golang.Thread.start

    def refuse(thread: golang.Thread) -> None:
        if thread.group is not node._threads:
            return start(thread)
        refused.append(thread.name)
        raise RuntimeError("can't start new thread")

    with mock.patch.object(golang.Thread, "start", refuse):
        yield refused


def test_node_without_threads() -> None:
    with APIServer() as api, HollowNode(api) as node:
        for name in ("bystander", "ends"):
            api.store.create("pods", _pod(name))
        for name in ("bystander", "ends"):
            wait_for(f"pod {name} runs", lambda name=name: _phase(api, name) == "Running", TIMEOUT)  # type: ignore[misc]
        with _out_of_threads(node) as refused:
            api.store.create("pods", _pod("late"))
            api.store.delete("pods", "ends", "default")
            wait_for("an event about the limit", lambda: "TasksMax" in str(_events(api, "late")), TIMEOUT)
            wait_for("the end of the containers", lambda: _phase(api, "ends") in ("Succeeded", "Failed"), TIMEOUT)
        assert {name.partition("-")[0] for name in refused} >= {"podworker", "kill", "prestop"}
        wait_for("the end of a pod", lambda: not _exists(api, "ends"), TIMEOUT)
        wait_for("pod late runs", lambda: _phase(api, "late") == "Running", TIMEOUT)
        bystander = api.store.get("pods", "bystander", "default")
        assert [one["restartCount"] for one in bystander["status"]["containerStatuses"]] == [0, 0, 0]
        assert bystander["status"]["phase"] == "Running"


def _exists(api: APIServer, name: str) -> bool:
    return any(pod["metadata"]["name"] == name for pod in api.store.list("pods"))
