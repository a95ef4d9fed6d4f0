"""Remove pods that no kubelet removes: those of a deleted node, after a while, and those that never had a node.

Go: pkg/controller/podgc/gc_controller.go
"""

from __future__ import annotations

from pkg import klog

from ..errors import ApiError
from ..interfaces import Object, Server, WatchEvent
from . import base
from .alarms import Alarms

QUARANTINE = 40.0


class PodGarbageCollector(base.WatchController):
    """Remove pods. A node may be missing for `quarantine` seconds before its pods are removed."""

    name = "podgarbage"
    resources = ("nodes", "pods")

    def __init__(self, quarantine: float = QUARANTINE) -> None:
        super().__init__()
        self.quarantine = quarantine
        self._alarms = Alarms("garbage-quarantine")
        self._nodes: dict[str, str] = {}  # The value is the UID of the node of this name.
        self._missing: set[str] = set()

    def start(self, server: Server) -> None:
        self._alarms.start()
        super().start(server)

    def stop(self) -> None:
        super().stop()
        self._alarms.stop()

    def prepare(self) -> None:
        self._nodes = {each["metadata"]["name"]: each["metadata"]["uid"] for each in self.store.list("nodes")}

    def handle(self, resource: str, event: WatchEvent) -> None:
        if resource == "pods":
            self._handle_pod(event)
            return
        name, uid = event.object["metadata"]["name"], event.object["metadata"]["uid"]
        if event.type != "DELETED":
            self._nodes[name] = uid
            return
        if self._nodes.get(name) == uid:
            del self._nodes[name]
        if self.store.list("pods", field_selector=f"spec.nodeName={name}"):
            self._quarantine(name)

    def _handle_pod(self, event: WatchEvent) -> None:
        pod = event.object
        node = (pod.get("spec") or {}).get("nodeName", "")
        if event.type == "DELETED":
            return
        if not node:
            if pod["metadata"].get("deletionTimestamp"):
                base.delete_if_exists(self.store, "pods", pod, grace_period_seconds=0)
        elif node not in self._nodes:
            self._quarantine(node)

    def _quarantine(self, node: str) -> None:
        if node not in self._missing:
            self._missing.add(node)
            self._alarms.call_after(self.quarantine, lambda: self._end_quarantine(node))

    def _end_quarantine(self, node: str) -> None:
        try:
            with self._lock:
                self._missing.discard(node)
                if node not in self._nodes:
                    for pod in self.store.list("pods", field_selector=f"spec.nodeName={node}"):
                        self._lose(pod)
        except ApiError as err:
            # Another client has changed the pod. The event of that change makes the controller try again.
            klog.error_s(err, "Failed to delete the pods of a deleted node", node=node)

    def _lose(self, pod: Object) -> None:
        """Delete a pod about which no kubelet will report any more."""
        metadata = pod["metadata"]
        base.change(self.store, "pods", metadata["name"], metadata["namespace"], _fail, "status")
        base.delete_if_exists(self.store, "pods", pod, grace_period_seconds=0)


def _fail(pod: Object) -> bool:
    status = pod.setdefault("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return False
    status["phase"] = "Failed"
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastProbeTime": None,
        "lastTransitionTime": base.timestamp(),
    }
    others = [each for each in status.get("conditions") or [] if each["type"] != condition["type"]]
    status["conditions"] = [*others, condition]
    return True
