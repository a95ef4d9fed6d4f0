"""Bind claims to existing volumes, and expand volumes. The module provisions nothing: a test creates its volumes.

Go: pkg/controller/volume/persistentvolume/pv_controller.go; of kubernetes-csi's external-resizer the work for a driver
that needs only a call on the node
"""

from __future__ import annotations

from ..interfaces import Object, WatchEvent
from ..storage_strategies import quantity
from . import base

NAME = "persistentvolume-controller"
_BOUND_BY_US = "pv.kubernetes.io/bound-by-controller"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_RESIZE_PENDING = "FileSystemResizePending"
_RESIZE_MESSAGE = "Waiting for user to (re-)start a pod to finish file system resize of volume on node."


class VolumeBinder(base.WatchController):
    """Bind claims. Claims of storage classes that wait for the first consumer are bound at once, too.

    A claim gets the smallest volume that fits, but a volume that is reserved for it comes first.
    """

    name = "volumebinder"
    resources = ("persistentvolumes", "persistentvolumeclaims")

    def handle(self, resource: str, event: WatchEvent) -> None:
        metadata, gone = event.object["metadata"], event.type == "DELETED"
        if resource == "persistentvolumes":
            reference = event.object["spec"].get("claimRef")
            if not gone:
                self._sync_volume(metadata["name"])
            for claim in self.store.list("persistentvolumeclaims"):
                name = claim["spec"].get("volumeName", "")
                if name == metadata["name"] or (not name and not gone and not (reference or {}).get("uid")):
                    self._sync_claim(claim["metadata"]["name"], claim["metadata"]["namespace"])
        elif not gone:
            self._sync_claim(metadata["name"], metadata["namespace"])
        elif volume := event.object["spec"].get("volumeName"):
            self._sync_volume(volume)

    def _sync_volume(self, name: str) -> None:
        volume = base.find(self.store, "persistentvolumes", name)
        if volume is None:
            return
        reference = volume["spec"].get("claimRef") or {}
        if not reference.get("uid"):
            self._set_volume_phase(name, "Available")
            return
        claim = base.find(self.store, "persistentvolumeclaims", reference["name"], reference["namespace"])
        if claim is not None and claim["metadata"]["uid"] == reference["uid"]:
            self._set_volume_phase(name, "Bound")
        elif volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete":
            base.delete_if_exists(self.store, "persistentvolumes", volume)
        else:
            self._set_volume_phase(name, "Released")

    def _set_volume_phase(self, name: str, phase: str) -> None:
        def mutate(volume: Object) -> bool:
            changed = (volume.get("status") or {}).get("phase") != phase
            volume["status"] = {"phase": phase, "lastPhaseTransitionTime": base.timestamp()}
            return changed

        base.change(self.store, "persistentvolumes", name, "", mutate, "status")

    def _sync_claim(self, name: str, namespace: str) -> None:
        claim = base.find(self.store, "persistentvolumeclaims", name, namespace)
        if claim is None or claim["metadata"].get("deletionTimestamp"):
            return
        wanted = claim["spec"].get("volumeName", "")
        volume = base.find(self.store, "persistentvolumes", wanted) if wanted else self._best_volume(claim)
        if volume is not None and _is_free_for(volume, claim):
            self._bind(volume, claim)
            self._grow(volume["metadata"]["name"], name, namespace)
        elif volume is None and (claim.get("status") or {}).get("phase") == "Bound":
            self._lose(claim)
        elif volume is None and not wanted and not claim["spec"].get("storageClassName"):
            message = "no persistent volumes available for this claim and no storage class is set"
            self._record_once(claim, "Normal", "FailedBinding", message)

    def _best_volume(self, claim: Object) -> Object | None:
        volumes = [each for each in self.store.list("persistentvolumes") if _is_free_for(each, claim)]
        fitting = [each for each in volumes if each["spec"].get("claimRef") or _fits(each, claim)]
        return min(fitting, key=lambda each: (not each["spec"].get("claimRef"), _size(each)), default=None)

    def _bind(self, volume: Object, claim: Object) -> None:
        """Bind a volume and a claim. If the controller stops after any of the steps, its next start completes them."""
        volume_name, metadata = volume["metadata"]["name"], claim["metadata"]
        reference = base.reference("PersistentVolumeClaim", claim)

        def claim_volume(found: Object) -> bool:
            if (found["spec"].get("claimRef") or {}).get("uid") == metadata["uid"] or not _is_free_for(found, claim):
                return False
            if not found["spec"].get("claimRef"):
                found["metadata"].setdefault("annotations", {})[_BOUND_BY_US] = "yes"
            found["spec"]["claimRef"] = reference
            return True

        def name_volume(found: Object) -> bool:
            annotations = found["metadata"].setdefault("annotations", {})
            if annotations.get(_BIND_COMPLETED):
                return False
            annotations[_BIND_COMPLETED] = "yes"
            if not found["spec"].get("volumeName"):
                annotations[_BOUND_BY_US] = "yes"
            found["spec"]["volumeName"] = volume_name
            return True

        def be_bound(found: Object) -> bool:
            if found["status"].get("phase") == "Bound":
                return False
            modes, capacity = volume["spec"]["accessModes"], volume["spec"]["capacity"]
            found["status"] |= {"phase": "Bound", "accessModes": modes, "capacity": capacity}
            return True

        base.change(self.store, "persistentvolumes", volume_name, "", claim_volume)
        self._set_volume_phase(volume_name, "Bound")
        claim_name = metadata["name"], metadata["namespace"]
        base.change(self.store, "persistentvolumeclaims", *claim_name, name_volume)
        base.change(self.store, "persistentvolumeclaims", *claim_name, be_bound, "status")

    def _lose(self, claim: Object) -> None:
        def mutate(found: Object) -> bool:
            found["status"] = {"phase": "Lost"}
            return True

        metadata = claim["metadata"]
        base.change(self.store, "persistentvolumeclaims", metadata["name"], metadata["namespace"], mutate, "status")
        message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        self._record_once(claim, "Warning", "ClaimLost", message)

    def _record_once(self, claim: Object, kind: str, reason: str, message: str) -> None:
        involved = base.reference("PersistentVolumeClaim", claim)
        known = self.store.list("events", claim["metadata"]["namespace"])
        if not any(each["involvedObject"].get("uid") == involved["uid"] and each["reason"] == reason for each in known):
            base.record(self.store, involved, NAME, kind, reason, message)

    def _grow(self, volume_name: str, name: str, namespace: str) -> None:
        """Set the requested size of a claim's volume. The node then expands the file system."""
        volume = base.find(self.store, "persistentvolumes", volume_name)
        claim = base.find(self.store, "persistentvolumeclaims", name, namespace)
        if volume is None or claim is None or "csi" not in volume["spec"]:
            return
        wanted = claim["spec"]["resources"]["requests"]["storage"]
        has = (claim["status"].get("capacity") or {}).get("storage")
        if quantity(wanted).cmp(quantity(has)) <= 0 or claim["status"].get("allocatedResourceStatuses"):
            return

        def enlarge(found: Object) -> bool:
            found["spec"]["capacity"] = {"storage": wanted}
            return True

        def wait_for_node(found: Object) -> bool:
            condition = {
                "type": _RESIZE_PENDING,
                "status": "True",
                "lastTransitionTime": base.timestamp(),
                "message": _RESIZE_MESSAGE,
            }
            others = [each for each in found["status"].get("conditions") or [] if each["type"] != _RESIZE_PENDING]
            found["status"] |= {
                "conditions": [*others, condition],
                "allocatedResources": {"storage": wanted},
                "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            }
            return True

        base.change(self.store, "persistentvolumes", volume_name, "", enlarge)
        base.change(self.store, "persistentvolumeclaims", name, namespace, wait_for_node, "status")


def _is_free_for(volume: Object, claim: Object) -> bool:
    """Report whether a volume is bound to this claim, reserved for it, or free."""
    reference = volume["spec"].get("claimRef")
    if not reference:
        return not volume["metadata"].get("deletionTimestamp")
    metadata = claim["metadata"]
    if (reference.get("namespace"), reference.get("name")) != (metadata["namespace"], metadata["name"]):
        return False
    return reference.get("uid", "") in ("", metadata["uid"])


def _fits(volume: Object, claim: Object) -> bool:
    has, wants = volume["spec"], claim["spec"]
    return (
        has.get("storageClassName", "") == wants.get("storageClassName", "")
        and has["volumeMode"] == wants["volumeMode"]
        and set(wants["accessModes"]) <= set(has["accessModes"])
        and _size(volume) >= quantity(wants["resources"]["requests"]["storage"]).value()
        and _selects(wants.get("selector") or {}, volume["metadata"].get("labels") or {})
    )


def _selects(selector: Object, labels: Object) -> bool:
    """Report whether the labels contain all labels of a selector. The selector's expressions are ignored."""
    return all(labels.get(name) == value for name, value in (selector.get("matchLabels") or {}).items())


def _size(volume: Object) -> int:
    return quantity(volume["spec"]["capacity"]["storage"]).value()
