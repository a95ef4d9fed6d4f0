"""Compute for each disruption budget how many of its pods are healthy, and how many may be disrupted.

Go: pkg/controller/disruption/disruption.go
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from .. import evictions
from ..errors import ApiError
from ..interfaces import Object, Server, WatchEvent
from ..resources import BY_KIND
from ..times import parse_timestamp
from . import base
from .alarms import Alarms

NAME = "controllermanager"
DELETION_TIMEOUT = 120.0
_BUDGETS = "poddisruptionbudgets"
# The size of these objects counts. A replica set with a deployment as its controller counts as the deployment.
_SCALED = ("deployments", "replicasets", "replicationcontrollers", "statefulsets")


class SyncError(Exception):
    """Signal that the expected number of pods cannot be computed. The message is the reason."""


class Disruption(base.WatchController):
    """Update the statuses of disruption budgets.

    `deletion_timeout` is the number of seconds after which an evicted pod that still exists counts again.
    """

    name = "disruption"
    resources = (_BUDGETS, "pods", *_SCALED)

    def __init__(self, deletion_timeout: float = DELETION_TIMEOUT) -> None:
        super().__init__()
        self.deletion_timeout = deletion_timeout
        self._alarms = Alarms("disruption-recheck")
        self._labels: dict[str, Mapping[str, str]] = {}  # The value is the last labels of the pod with this UID.
        self._recorded: set[tuple[str, str]] = set()  # Each entry is the UID of a budget and the reason of an event.

    def start(self, server: Server) -> None:
        self._alarms.start()
        super().start(server)

    def stop(self) -> None:
        super().stop()
        self._alarms.stop()

    def handle(self, resource: str, event: WatchEvent) -> None:
        obj = event.object
        namespace = obj["metadata"]["namespace"]
        if resource == _BUDGETS:
            if event.type != "DELETED":
                self._sync(obj["metadata"]["name"], namespace)
            return
        for budget in self.store.list(_BUDGETS, namespace):
            if resource != "pods" or self._concerns(budget, obj):
                self._sync(budget["metadata"]["name"], namespace)
        if resource == "pods":
            self._remember(event)

    def _remember(self, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        if event.type == "DELETED":
            self._labels.pop(metadata["uid"], None)
        else:
            self._labels[metadata["uid"]] = metadata.get("labels") or {}

    def _concerns(self, budget: Object, pod: Object) -> bool:
        """Report whether the budget selects the pod or selected it before the last change of its labels."""
        before = self._labels.get(pod["metadata"]["uid"])
        selector = evictions.selector_of(budget)
        return evictions.selects(budget, pod) or (before is not None and selector.matches(before))

    def _recheck(self, name: str, namespace: str) -> None:
        try:
            with self._lock:
                self._sync(name, namespace)
        except ApiError:
            pass  # The budget changes all the time, and each change leads to another sync.

    def _sync(self, name: str, namespace: str) -> None:
        budget = base.find(self.store, _BUDGETS, name, namespace)
        if budget is None:
            return
        pods = [pod for pod in self.store.list("pods", namespace) if evictions.selects(budget, pod)]
        if not pods:
            self._record_once(budget, "Normal", "NoPods", "No matching pods found")
        try:
            expected, desired = self._expected(budget, pods)
        except SyncError as err:
            self._fail(budget, str(err))
            return

        def mutate(found: Object) -> bool:
            if found["metadata"]["generation"] != budget["metadata"]["generation"]:
                return False  # The new generation leads to another sync.
            before = found["status"]
            found["status"] = self._status(found, pods, expected, desired)
            evictions.update_condition(found)
            return bool(found["status"] != before)

        base.change(self.store, _BUDGETS, name, namespace, mutate, "status")

    def _status(self, budget: Object, pods: Sequence[Object], expected: int, desired: int) -> Object:
        """Return the new status of a budget, with its present conditions."""
        disrupted = self._disrupted(budget, pods)
        healthy = sum(_is_healthy(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
        status = {
            "observedGeneration": budget["metadata"]["generation"],
            # A budget without pods allows no disruption, so that its first pods are safe until they are counted.
            "disruptionsAllowed": max(healthy - desired, 0) if expected > 0 else 0,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": [dict(each) for each in budget["status"].get("conditions") or []],
        }
        return status | {"disruptedPods": disrupted} if disrupted else status

    def _fail(self, budget: Object, why: str) -> None:
        metadata = budget["metadata"]

        def mutate(found: Object) -> bool:
            before = {**found["status"], "conditions": [dict(each) for each in found["status"].get("conditions") or []]}
            found["status"] = {**found["status"], "disruptionsAllowed": 0}
            evictions.set_disruption_allowed(found, "False", "SyncFailed", why)
            return bool(found["status"] != before)

        base.change(self.store, _BUDGETS, metadata["name"], metadata["namespace"], mutate, "status")
        self._record_once(budget, "Warning", "CalculateExpectedPodCountFailed", _FAILED + why)

    def _record_once(self, budget: Object, kind: str, reason: str, message: str) -> None:
        metadata = budget["metadata"]
        if (metadata["uid"], reason) not in self._recorded:
            self._recorded.add((metadata["uid"], reason))
            involved = base.reference("PodDisruptionBudget", budget) | {"apiVersion": "policy/v1"}
            base.record(self.store, involved, NAME, kind, reason, message)

    def _expected(self, budget: Object, pods: Sequence[Object]) -> tuple[int, int]:
        """Return the expected number of pods and of healthy pods. Raise SyncError if a pod's controller is gone."""
        spec = budget["spec"]
        if "maxUnavailable" in spec:
            expected = self._scale(budget, pods)
            return expected, max(expected - _share(spec["maxUnavailable"], expected), 0)
        if isinstance(least := spec.get("minAvailable", 0), int):
            return (len(pods) if "minAvailable" in spec else 0), least
        expected = self._scale(budget, pods)
        return expected, _share(least, expected)

    def _scale(self, budget: Object, pods: Sequence[Object]) -> int:
        """Return the sum of the sizes of the pods' controllers."""
        scales: dict[str, int] = {}
        unmanaged = False
        for pod in pods:
            owner = _controller_of(pod)
            if owner is None:
                unmanaged = True
            elif owner["uid"] not in scales:
                scales |= self._scale_of(pod, owner)
        if unmanaged:
            self._record_once(budget, "Warning", "UnmanagedPods", _UNMANAGED)
        return sum(scales.values())

    def _scale_of(self, pod: Object, owner: Object) -> dict[str, int]:
        """Return the UID of the object that determines the number of pods, and that number."""
        found = self._find(owner, pod["metadata"]["namespace"])
        if found is None:
            raise SyncError(f'found no controllers for pod "{pod["metadata"]["name"]}"')
        above = _controller_of(found)
        if above is not None and found["kind"] == "ReplicaSet":
            found = self._find(above, pod["metadata"]["namespace"]) or found
        return {found["metadata"]["uid"]: (found.get("spec") or {}).get("replicas", 1)}

    def _find(self, owner: Object, namespace: str) -> Object | None:
        resource = BY_KIND.get((owner["apiVersion"], owner["kind"]))
        if resource is None or resource.plural not in _SCALED:
            return None
        found = base.find(self.store, resource.plural, owner["name"], namespace)
        return found if found is not None and found["metadata"]["uid"] == owner["uid"] else None

    def _disrupted(self, budget: Object, pods: Sequence[Object]) -> dict[str, str]:
        """Return the pods that were evicted and still exist, with the times of the evictions."""
        metadata = budget["metadata"]
        evicted = budget["status"].get("disruptedPods") or {}
        found = {}
        for pod in pods:
            name = pod["metadata"]["name"]
            if name not in evicted or pod["metadata"].get("deletionTimestamp"):
                continue
            if _age(evicted[name]) < self.deletion_timeout:
                found[name] = evicted[name]
        if found:
            wait = self.deletion_timeout - max(map(_age, found.values()))
            self._alarms.call_after(wait, lambda: self._recheck(metadata["name"], metadata["namespace"]))
        return found


_FAILED = "Failed to calculate the number of expected pods: "
_UNMANAGED = (
    "Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status of the PDB cannot "
    "be calculated correctly, which may result in undefined behavior. To account for these pods please set "
    '".spec.minAvailable" field of the PDB to an integer value.'
)


def _controller_of(obj: Object) -> Object | None:
    owners: list[Object] = obj["metadata"].get("ownerReferences") or []
    return next((each for each in owners if each.get("controller")), None)


def _age(moment: str) -> float:
    """Return the seconds since a time."""
    return (datetime.datetime.now(datetime.UTC) - parse_timestamp(moment)).total_seconds()


def _is_healthy(pod: Object) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and evictions.is_ready(pod)


def _share(amount: Any, of: int) -> int:
    """Return a number, or a percentage of a number, rounded up."""
    return amount if isinstance(amount, int) else -(-int(amount[:-1]) * of // 100)
