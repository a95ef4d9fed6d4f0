"""Bind pods to nodes that match their selectors, whose taints they tolerate, and that have room for them.

Go: pkg/scheduler/schedule_one.go, and of pkg/scheduler/framework/plugins nodeunschedulable, tainttoleration,
nodeaffinity, nodeports and noderesources, as far as they filter. Of the nodes that pass the filters this scheduler
takes the one with the fewest pods. It preempts no pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pkg.api.core import v1
from pkg.apimachinery.runtime import codec
from pkg.component_helpers import resource as resourcehelpers
from pkg.component_helpers.scheduling.corev1 import nodeaffinity as required
from pkg.scheduler import framework
from pkg.scheduler.framework.plugins import nodeaffinity, nodeports, noderesources
from pkg.scheduler.framework.types import pod_resources_options

from ..errors import ApiError
from ..interfaces import Object, WatchEvent
from . import base

NAME = "default-scheduler"
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_NO_HELP = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True)
class Placed:
    """Describe a pod that occupies a node."""

    node: str
    pod: v1.Pod
    requests: Mapping[str, str]


@dataclass(frozen=True)
class Fault:
    """Describe why a node rejects a pod, and whether it could accept the pod if other pods left."""

    reasons: tuple[str, ...]
    resolvable: bool = False


class Scheduler(base.WatchController):
    """Try to place a pod when it is new or changes, and all waiting pods when a node changes or a pod makes room."""

    name = "scheduler"
    resources = ("nodes", "pods")

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, Object] = {}
        # Each value describes the occupied parts of a node. It is created on demand.
        self._infos: dict[str, framework.NodeInfo] = {}
        # The keys of both maps are UIDs: those of pods that occupy a node, and those of pods that wait for a node.
        self._placed: dict[str, Placed] = {}
        self._waiting: dict[str, Object] = {}
        # The value is the last message about the waiting pod with this UID.
        self._told: dict[str, str] = {}

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
        if before is None or event.type == "DELETED" or _matters(before) != _matters(event.object):
            self._infos.pop(name, None)
            self._try_all()

    def _handle_pod(self, event: WatchEvent) -> None:
        pod = event.object
        uid, spec = pod["metadata"]["uid"], pod.get("spec") or {}
        self._waiting.pop(uid, None)
        over = event.type == "DELETED" or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if over or spec.get("nodeName"):
            self._told.pop(uid, None)
            self._place(uid, None if over else _placed(pod))
        elif not pod["metadata"].get("deletionTimestamp") and _is_ours(spec):
            self._try(pod)

    def _place(self, uid: str, placed: Placed | None) -> None:
        """Record what a pod occupies, and try the waiting pods if that has changed."""
        before = self._placed.pop(uid, None)
        if placed is not None:
            self._placed[uid] = placed
        if before is not None and placed is not None and _takes(before) == _takes(placed):
            return
        for each in (before, placed):
            if each is not None:
                self._infos.pop(each.node, None)
        if before is not None:
            self._try_all()

    def _try_all(self) -> None:
        for pod in sorted(self._waiting.values(), key=lambda pod: -int(pod["spec"].get("priority") or 0)):
            self._try(pod)

    def _try(self, pod: Object) -> None:
        """Bind a pod, or keep it for later and report the reason."""
        uid = pod["metadata"]["uid"]
        self._waiting[uid] = pod
        typed = codec.convert(pod, v1.Pod)
        faults = {name: self._fault(typed, name) for name in self._nodes}
        if fitting := [name for name, fault in faults.items() if fault is None]:
            load = Counter(each.node for each in self._placed.values())
            self._bind(pod, min(fitting, key=lambda name: (load[name], name)))
            return
        message = _fit_error(pod, [fault for fault in faults.values() if fault is not None])
        known = self._told.get(uid) or (base.condition(pod, "PodScheduled") or {}).get("message")
        self._told[uid] = message
        if known != message:
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
                return  # The pod is deleted, or another scheduler has bound it.
            raise
        self._told.pop(metadata["uid"], None)
        self._place(metadata["uid"], replace(_placed(pod), node=node))
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

    def _fault(self, pod: v1.Pod, name: str) -> Fault | None:
        """Return the fault of the first filter that rejects the node, or None if the pod can run there."""
        node = self._nodes[name]
        spec = node.get("spec") or {}
        tolerations: list[Object] = codec.to_builtins(pod.spec.tolerations)
        if spec.get("unschedulable") and not tolerates(tolerations, _UNSCHEDULABLE):
            return Fault(("node(s) were unschedulable",))
        taints = [each for each in spec.get("taints") or [] if each["effect"] != "PreferNoSchedule"]
        if not all(tolerates(tolerations, taint) for taint in taints):
            return Fault(("node(s) had untolerated taint(s)",))
        info = self._info(name)
        if not required.get_required_node_affinity(pod).match(info.node):
            return Fault((nodeaffinity.ERR_REASON_POD,))
        if not nodeports.fits(pod, info):
            return Fault((nodeports.ERR_REASON,), resolvable=True)
        if lacking := noderesources.fits(pod, info):
            # If even the empty node is too small, preempting other pods does not help.
            too_small = any(each.requested > each.capacity for each in lacking if each.resource_name != "pods")
            return Fault(tuple(each.reason for each in lacking), resolvable=not too_small)
        return None

    def _info(self, name: str) -> framework.NodeInfo:
        if (info := self._infos.get(name)) is None:
            info = self._infos[name] = framework.NodeInfo(
                *(each.pod for each in self._placed.values() if each.node == name)
            )
            info.set_node(codec.convert(self._nodes[name], v1.Node))
        return info


def _is_ours(spec: Mapping[str, Any]) -> bool:
    return spec.get("schedulerName", NAME) == NAME and not spec.get("schedulingGates")


def _matters(node: Object) -> object:
    """Return the parts of a node that matter to pods."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return (
        node["metadata"].get("labels"),
        spec.get("taints"),
        spec.get("unschedulable"),
        status.get("allocatable"),
    )


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    """Report whether one of the tolerations tolerates this taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect", "") not in ("", taint["effect"]) or toleration.get("key", "") not in ("", taint["key"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and str(toleration.get("value") or "") == str(taint.get("value") or "")


def _placed(pod: Object) -> Placed:
    typed = codec.convert(pod, v1.Pod)
    asked = resourcehelpers.pod_requests(typed, pod_resources_options(use_status=True))
    return Placed(typed.spec.node_name, typed, {key: str(value) for key, value in asked.items()})


def _takes(placed: Placed) -> object:
    """Return what matters to other pods. Host ports are not included because they never change."""
    return placed.node, placed.requests


def _fit_error(pod: Object, faults: list[Fault]) -> str:
    """Return the scheduler's message that no node fits."""
    if not faults:
        return "no nodes available to schedule pods"
    count = len(faults)
    reasons = Counter(reason for fault in faults for reason in fault.reasons)
    helpless = Counter(_NO_VICTIMS if fault.resolvable else _NO_HELP for fault in faults)
    preemption = f"0/{count} nodes are available: {_histogram(helpless)}."
    if pod["spec"].get("preemptionPolicy") == "Never":
        preemption = "not eligible due to preemptionPolicy=Never."
    histogram = _histogram(reasons)
    return f"0/{count} nodes are available: {histogram}. no new claims to deallocate, preemption: {preemption}"


def _histogram(reasons: Mapping[str, int]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))
