"""Taint nodes by their conditions, and mark nodes that no longer report.

Go: pkg/controller/nodelifecycle/node_lifecycle_controller.go. Pods that do not tolerate such a taint stay, because
the controller that evicts them is not part of this package.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pkg import klog

from ..errors import ApiError
from ..interfaces import Object, Server, WatchEvent
from . import base
from .alarms import Alarms

NAME = "node-controller"
GRACE_PERIOD = 50.0

_PREFIX = "node.kubernetes.io"
_NOT_READY = f"{_PREFIX}/not-ready"
_UNREACHABLE = f"{_PREFIX}/unreachable"
# The key is the type and status of a condition, and the value is the key of its taint.
_TAINTS = {
    ("Ready", "False"): _NOT_READY,
    ("Ready", "Unknown"): _UNREACHABLE,
    ("MemoryPressure", "True"): f"{_PREFIX}/memory-pressure",
    ("DiskPressure", "True"): f"{_PREFIX}/disk-pressure",
    ("PIDPressure", "True"): f"{_PREFIX}/pid-pressure",
    ("NetworkUnavailable", "True"): f"{_PREFIX}/network-unavailable",
}
_UNSCHEDULABLE = f"{_PREFIX}/unschedulable"
_OURS = {*_TAINTS.values(), _UNSCHEDULABLE}
_OF_THE_KUBELET = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeLifecycle(base.WatchController):
    """Taint nodes. `grace_period` is the number of seconds that a node may be silent; None means forever."""

    name = "nodelifecycle"
    resources = ("nodes", "leases")

    def __init__(self, grace_period: float | None = GRACE_PERIOD) -> None:
        super().__init__()
        self.grace_period = grace_period
        self._alarms = Alarms("nodelifecycle-silence")
        # These are the monotonic time of each node's last sign of life, and its last heartbeat and renewal.
        self._heard: dict[str, float] = {}
        self._heartbeats: dict[tuple[str, str], str] = {}
        self._nodes: dict[str, Object] = {}

    def start(self, server: Server) -> None:
        self._alarms.start()
        super().start(server)

    def stop(self) -> None:
        super().stop()
        self._alarms.stop()

    def handle(self, resource: str, event: WatchEvent) -> None:
        name = event.object["metadata"]["name"]
        if resource == "leases":
            renewed = (event.object.get("spec") or {}).get("renewTime", "")
            if event.object["metadata"].get("namespace") == "kube-node-lease":
                self._hear(name, "lease", renewed)
        elif event.type == "DELETED":
            self._forget(name)
        else:
            self._handle_node(name, event.object)

    def _handle_node(self, name: str, node: Object) -> None:
        before = self._nodes.get(name)
        self._nodes[name] = node
        if before is None or before["metadata"]["uid"] != node["metadata"]["uid"]:
            self._record(node, "RegisteredNode", f"Node {name} event: Registered Node {name} in Controller")
        ready = base.condition(node, "Ready")
        self._hear(name, "status", (ready or {}).get("lastHeartbeatTime") or "")
        base.change(self.store, "nodes", name, "", set_taints)
        if before is not None and _status(before, "Ready") == "True" and _status(node, "Ready") == "False":
            self._lose(node)

    def _forget(self, name: str) -> None:
        self._heard.pop(name, None)
        if node := self._nodes.pop(name, None):
            self._record(node, "RemovingNode", f"Node {name} event: Removing Node {name} from Controller")

    def _hear(self, name: str, what: str, when: str) -> None:
        """Record a sign of life of a node if it is a new one."""
        if self._heartbeats.get((name, what)) == when and name in self._heard:
            return
        self._heartbeats[name, what] = when
        first = name not in self._heard
        self._heard[name] = time.monotonic()
        if first and self.grace_period is not None:
            self._alarms.call_after(self.grace_period, lambda: self._check(name))

    def _check(self, name: str) -> None:
        with self._lock:
            heard = self._heard.get(name)
            if heard is None or self.grace_period is None or name not in self._nodes:
                self._heard.pop(name, None)
                return
            silent = time.monotonic() - heard
            if silent >= self.grace_period:
                self._mark_unknown(name)
                silent = 0.0
            self._alarms.call_after(self.grace_period - silent, lambda: self._check(name))

    def _mark_unknown(self, name: str) -> None:
        was_ready = _status(self._nodes[name], "Ready") == "True"
        try:
            node = base.change(self.store, "nodes", name, "", mark_unknown, "status")
            if node is not None and was_ready:
                self._lose(node)
        except ApiError as err:
            # The next check tries again.
            klog.error_s(err, "Failed to mark a silent node", node=name)

    def _lose(self, node: Object) -> None:
        """Report that a node and its pods are no longer ready."""
        name = node["metadata"]["name"]
        self._record(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        for pod in self.store.list("pods", field_selector=f"spec.nodeName={name}"):
            metadata = pod["metadata"]
            if base.change(self.store, "pods", metadata["name"], metadata["namespace"], mark_not_ready, "status"):
                involved = base.reference("Pod", pod)
                base.record(self.store, involved, NAME, "Warning", "NodeNotReady", "Node is not ready")

    def _record(self, node: Object, reason: str, message: str) -> None:
        involved = base.reference("Node", node)
        involved.pop("resourceVersion", None)
        base.record(self.store, involved, NAME, "Normal", reason, message)


def set_taints(node: Object) -> bool:
    """Add the taints that a node's conditions require, and remove the others. Return True if this changed the node."""
    spec = node.setdefault("spec", {})
    present = spec.get("taints") or []
    status = {kind: _status(node, kind) for kind, _ in _TAINTS}
    wanted = {key for (kind, value), key in _TAINTS.items() if status[kind] == value}
    if spec.get("unschedulable"):
        wanted.add(_UNSCHEDULABLE)
    pairs = [(key, "NoSchedule") for key in wanted]
    pairs += [(key, "NoExecute") for key in wanted & {_NOT_READY, _UNREACHABLE}]
    kept = [each for each in present if not _is_ours(each) or (each["key"], each["effect"]) in pairs]
    known = {(each["key"], each["effect"]) for each in kept}
    added = [_taint(key, effect) for key, effect in sorted(pairs) if (key, effect) not in known]
    if not added and len(kept) == len(present):
        return False
    spec["taints"] = [*kept, *added]
    if not spec["taints"]:
        del spec["taints"]
    return True


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return taint["key"] in _OURS and taint["effect"] in ("NoSchedule", "NoExecute")


def _taint(key: str, effect: str) -> Object:
    return {"key": key, "effect": effect, "timeAdded": base.timestamp()}


def mark_unknown(node: Object) -> bool:
    """Set the conditions that a kubelet reports to Unknown. Return True if this changed any of them."""
    status = node.setdefault("status", {})
    conditions = status.setdefault("conditions", [])
    changed = False
    for kind in _OF_THE_KUBELET:
        found = next((each for each in conditions if each["type"] == kind), None)
        if found is None:
            found = {
                "type": kind,
                "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
            }
            conditions.append(found)
        elif found["status"] == "Unknown":
            continue
        else:
            found.update(reason="NodeStatusUnknown", message="Kubelet stopped posting node status.")
        found.update(status="Unknown", lastTransitionTime=base.timestamp())
        changed = True
    return changed


def mark_not_ready(pod: Object) -> bool:
    """Set a pod's Ready condition to False. Return True if it was True."""
    found = base.condition(pod, "Ready")
    if found is None or found.get("status") != "True":
        return False
    found.update(status="False", lastTransitionTime=base.timestamp())
    return True


def _status(node: Object, kind: str) -> str:
    """Return the status of a node's condition, or "" if the node does not have it."""
    return str((base.condition(node, kind) or {}).get("status", ""))
