"""Test the rows that kubectl prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from framework.apiserver.resources import BY_PLURAL
from framework.apiserver.storage import Entry
from framework.apiserver.tables import Table, human_duration


def _cells(resource: str, obj: dict[str, Any]) -> dict[str, Any]:
    obj = {**obj, "metadata": {"name": "x", "creationTimestamp": "2020-01-01T00:00:00Z", **obj.get("metadata", {})}}
    table = json.loads(Table(BY_PLURAL[resource], "").encode(Entry(("", "x"), obj, 1)))
    names = [column["name"] for column in table["columnDefinitions"]]
    cells = table["rows"][0]["cells"]
    assert len(names) == len(cells)
    return dict(zip(names, cells, strict=True))


def _container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "c", "state": state, **more}


_RUNNING = _container({"running": {}}, ready=True)
_DONE = _container({"terminated": {"exitCode": 0, "reason": "Completed"}})
_INIT = {"containers": [{"name": "c"}], "initContainers": [{"name": "c"}, {"name": "s", "restartPolicy": "Always"}]}


@pytest.mark.parametrize(
    ("pod", "ready", "status"),
    [
        ({"status": {"phase": "Pending"}}, "0/1", "Pending"),
        ({"status": {"phase": "Running", "containerStatuses": [_RUNNING]}}, "1/1", "Running"),
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "0/1", "Evicted"),
        (
            {"status": {"containerStatuses": [_container({"waiting": {"reason": "CrashLoopBackOff"}})]}},
            "0/1",
            "CrashLoopBackOff",
        ),
        ({"status": {"containerStatuses": [_container({"terminated": {"exitCode": 3}})]}}, "0/1", "ExitCode:3"),
        ({"status": {"containerStatuses": [_container({"terminated": {"signal": 9}})]}}, "0/1", "Signal:9"),
        ({"status": {"phase": "Succeeded", "containerStatuses": [_DONE]}}, "0/1", "Completed"),
        ({"status": {"containerStatuses": [_DONE, _RUNNING]}}, "1/1", "NotReady"),
        (
            {"status": {"containerStatuses": [_DONE, _RUNNING], "conditions": [{"type": "Ready", "status": "True"}]}},
            "1/1",
            "Running",
        ),
        ({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}}, "0/1", "Terminating"),
        (
            {"spec": _INIT, "status": {"initContainerStatuses": [_container({"running": {}})]}},
            "0/2",
            "Init:0/2",
        ),
        (
            {"spec": _INIT, "status": {"initContainerStatuses": [_container({"waiting": {"reason": "ErrImagePull"}})]}},
            "0/2",
            "Init:ErrImagePull",
        ),
        (
            {
                "spec": _INIT,
                "status": {
                    "phase": "Running",
                    "initContainerStatuses": [_DONE, {"name": "s", "started": True, "ready": True, "state": {}}],
                    "containerStatuses": [_RUNNING],
                },
            },
            "2/2",
            "Running",
        ),
    ],
)
def test_pods(pod: dict[str, Any], ready: str, status: str) -> None:
    cells = _cells("pods", {"spec": {"containers": [{"name": "c"}]}, **pod})
    assert (cells["Ready"], cells["Status"], cells["Restarts"]) == (ready, status, "0")


def test_restarts_say_when_the_last_was() -> None:
    ended = {"terminated": {"finishedAt": "2020-01-01T00:00:00Z"}}
    status = {"containerStatuses": [{**_RUNNING, "restartCount": 3, "lastState": ended}]}
    restarts = _cells("pods", {"spec": {"containers": [{}]}, "status": status})["Restarts"]
    assert restarts.startswith("3 (") and restarts.endswith(" ago)")


def test_nodes() -> None:
    node = {
        "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "x"}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "False"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd::1"}],
            "nodeInfo": {"kernelVersion": "6.1", "architecture": "amd64", "kubeletVersion": "v1"},
        },
    }
    cells = _cells("nodes", node)
    assert (cells["Status"], cells["Roles"]) == ("NotReady,SchedulingDisabled", "worker,x")
    assert (cells["Internal-IP"], cells["External-IP"]) == ("10.0.0.1", "<none>")
    assert (cells["Kernel-Version"], cells["OS-Image"]) == ("6.1 (amd64)", "<unknown>")


def test_events() -> None:
    event = {
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
        "source": {"component": "kubelet", "host": "n"},
        "message": " text \n",
        "lastTimestamp": "2020-01-01T00:00:00Z",
    }
    cells = _cells("events", event)
    assert (cells["Object"], cells["Source"], cells["Message"], cells["Count"]) == ("pod/p", "kubelet, n", "text", 1)
    assert (cells["First Seen"], cells["Subobject"]) == ("<unknown>", "spec.containers{c}")


@pytest.mark.parametrize(
    ("resource", "obj", "column", "cell"),
    [
        ("services", {"spec": {"type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP"}]}}, "Port(s)", "80/TCP"),
        ("services", {"spec": {"type": "LoadBalancer"}}, "External-IP", "<pending>"),
        ("secrets", {"data": {"a": "", "b": ""}}, "Data", 2),
        ("configmaps", {"data": {"a": ""}, "binaryData": {"b": ""}}, "Data", 2),
        ("leases", {"spec": {"holderIdentity": "n"}}, "Holder", "n"),
        ("namespaces", {"status": {"phase": "Active"}}, "Status", "Active"),
        (
            "certificatesigningrequests",
            {"status": {"conditions": [{"type": "Approved"}], "certificate": "x"}},
            "Condition",
            "Approved,Issued",
        ),
        ("certificatesigningrequests", {"spec": {"expirationSeconds": 86400}}, "RequestedDuration", "24h"),
        ("persistentvolumes", {"spec": {"claimRef": {"namespace": "n", "name": "c"}}}, "Claim", "n/c"),
        ("persistentvolumeclaims", {"status": {"phase": "Bound"}}, "Status", "Bound"),
        ("deployments", {}, "Name", "x"),
    ],
)
def test_others(resource: str, obj: dict[str, Any], column: str, cell: Any) -> None:
    assert _cells(resource, obj)[column] == cell


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (121, "2m1s"), (599, "9m59s"), (600, "10m"), (10799, "179m"),
        (10800, "3h"), (11000, "3h3m"), (28800, "8h"), (172799, "47h"), (172800, "2d"), (180000, "2d2h"),
        (691200, "8d"), (63071999, "729d"), (63072000, "2y"), (63158400, "2y1d"), (-1, "0s"), (-5, "<invalid>"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text
