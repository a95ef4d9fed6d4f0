"""A small scheduler: binds pods to nodes that are ready, that they tolerate, and that have room for them.

Go: pkg/scheduler/schedule_one.go, and of pkg/scheduler/framework/plugins nodename, nodeunschedulable, tainttoleration,
nodeaffinity (the selector alone) and noderesources. Among the nodes that will do it takes the one with fewest pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.runtime import codec
from pkg.component_helpers import resource as resourcehelpers

from ..errors import ApiError
from ..interfaces import Object, WatchEvent
from . import base

NAME = "default-scheduler"
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_NO_HELP = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True)
class Placed:
    """A pod that takes room."""

    node: str
    requests: Mapping[str, resource.Quantity]


class Scheduler(base.WatchController):
    """Tries a pod when it comes or changes, and all that wait whenever a node changes or a pod goes."""

    name = "scheduler"
    resources = ("pods", "nodes")

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, Object] = {}
        # Those that take room on a node, and those that wait for one, by their uid.
        self._placed: dict[str, Placed] = {}
        self._waiting: dict[str, Object] = {}

    def handle(self, resource: str, event: WatchEvent) -> None:
        if resource == "nodes":
            self._handle_node(event)
        else:
            self._handle_pod(event)

    def _handle_node(self, event: WatchEvent) -> None:
        name = event.object["metadata"]["name"]
        before = self._nodes.pop(name, None)
        if event.type != "DELETED":
            self._nodes[name] = event.object
        if before is None or _matters(before) != _matters(event.object):
            self._try_all()

    def _handle_pod(self, event: WatchEvent) -> None:
        pod = event.object
        uid, spec = pod["metadata"]["uid"], pod.get("spec") or {}
        self._waiting.pop(uid, None)
        before = self._placed.pop(uid, None)
        over = event.type == "DELETED" or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if spec.get("nodeName"):
            if not over:
                self._placed[uid] = _placed(pod)
        elif not over and not pod["metadata"].get("deletionTimestamp") and _is_ours(spec):
            self._try(pod)
        if over and before is not None:
            self._try_all()

    def _try_all(self) -> None:
        for pod in list(self._waiting.values()):
            self._try(pod)

    def _try(self, pod: Object) -> None:
        """Bind a pod, or keep it for later and say why."""
        uid = pod["metadata"]["uid"]
        self._waiting[uid] = pod
        faults = {name: self._faults(pod, node) for name, node in self._nodes.items()}
        if fitting := [name for name, found in faults.items() if not found]:
            load = Counter(each.node for each in self._placed.values())
            self._bind(pod, min(fitting, key=lambda name: (load[name], name)))
            return
        message = _fit_error(faults)
        known = base.condition(pod, "PodScheduled")
        if known is None or known.get("message") != message:
            self._refuse(pod, message)

    def _bind(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "target": {"kind": "Node", "name": node},
        }
        self._waiting.pop(metadata["uid"], None)
        try:
            self.store.create("pods", binding, subresource="binding")
        except ApiError as err:
            if err.code in (404, 409):
                return  # gone, or bound by another
            raise
        self._placed[metadata["uid"]] = replace(_placed(pod), node=node)
        message = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        involved = base.reference("Pod", pod)
        base.record_action(self.store, involved, NAME, "Normal", "Scheduled", "Binding", message)

    def _refuse(self, pod: Object, message: str) -> None:
        metadata = pod["metadata"]
        known = base.condition(pod, "PodScheduled") or {}
        since = known.get("lastTransitionTime") if known.get("status") == "False" else None
        condition = {
            "type": "PodScheduled",
            "observedGeneration": metadata.get("generation", 1),
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": since or base.timestamp(),
        }
        patch = {"status": {"conditions": [condition]}}
        involved = base.reference("Pod", pod)
        base.record_action(self.store, involved, NAME, "Warning", "FailedScheduling", "Scheduling", message)
        self.store.patch("pods", metadata["name"], patch, metadata["namespace"], subresource="status")

    def _faults(self, pod: Object, node: Object) -> list[str]:
        """Why a pod cannot go to a node: what the first filter says that refuses it."""
        spec, node_spec = pod["spec"], node.get("spec") or {}
        tolerations = spec.get("tolerations") or []
        if node_spec.get("unschedulable") and not tolerates(tolerations, _UNSCHEDULABLE):
            return ["node(s) were unschedulable"]
        taints = [each for each in node_spec.get("taints") or [] if each["effect"] != "PreferNoSchedule"]
        if not all(tolerates(tolerations, taint) for taint in taints):
            return ["node(s) had untolerated taint(s)"]
        labels = node["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
            return ["node(s) didn't match Pod's node affinity/selector"]
        return self._lacks(_placed(pod), node)

    def _lacks(self, pod: Placed, node: Object) -> list[str]:
        """The resources that a node has too little of."""
        name = node["metadata"]["name"]
        allocatable = {
            key: resource.parse_quantity(str(value))
            for key, value in ((node.get("status") or {}).get("allocatable") or {}).items()
        }
        others = [each for each in self._placed.values() if each.node == name]
        faults = []
        if "pods" in allocatable and len(others) + 1 > allocatable["pods"].value():
            faults.append("Too many pods")
        for key, wanted in pod.requests.items():
            for each in others:
                wanted = wanted.add(each.requests[key]) if key in each.requests else wanted
            if key not in allocatable or wanted.cmp(allocatable[key]) > 0:
                faults.append(f"Insufficient {key}")
        return faults


def _is_ours(spec: Mapping[str, Any]) -> bool:
    return spec.get("schedulerName", NAME) == NAME and not spec.get("schedulingGates")


def _matters(node: Object) -> object:
    """What of a node decides about pods."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return (
        node["metadata"].get("labels"),
        spec.get("taints"),
        spec.get("unschedulable"),
        status.get("allocatable"),
    )


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    """Whether one of the tolerations is for this taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect", "") not in ("", taint["effect"]) or toleration.get("key", "") not in ("", taint["key"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and str(toleration.get("value") or "") == str(taint.get("value") or "")


def _placed(pod: Object) -> Placed:
    asked = resourcehelpers.pod_requests(codec.convert(pod, v1.Pod), resourcehelpers.PodResourcesOptions())
    return Placed(pod["spec"].get("nodeName", ""), {key: value for key, value in asked.items() if not value.is_zero()})


def _fit_error(faults: Mapping[str, list[str]]) -> str:
    """Why no node will do, as the scheduler says it."""
    if not faults:
        return "no nodes available to schedule pods"
    count = len(faults)
    reasons = Counter(reason for found in faults.values() for reason in found)
    lacking = sum(any(reason.startswith(("Insufficient", "Too many")) for reason in found) for found in faults.values())
    helpless = Counter({_NO_VICTIMS: lacking, _NO_HELP: count - lacking})
    preemption = f"preemption: 0/{count} nodes are available: {_histogram(helpless)}."
    return f"0/{count} nodes are available: {_histogram(reasons)}. no new claims to deallocate, {preemption}"


def _histogram(reasons: Mapping[str, int]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))
