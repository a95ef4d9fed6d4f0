"""Create the claims of pods' generic ephemeral volumes. The garbage collector removes them with the pods.

Go: pkg/controller/volume/ephemeral/controller.go
"""

from __future__ import annotations

from ..interfaces import Object, WatchEvent
from . import base

NAME = "ephemeral_volume"


class EphemeralClaims(base.WatchController):
    name = "ephemeralclaims"
    resources = ("pods", "persistentvolumeclaims")

    def handle(self, resource: str, event: WatchEvent) -> None:
        metadata, gone = event.object["metadata"], event.type == "DELETED"
        if resource == "pods":
            if not gone and not metadata.get("deletionTimestamp"):
                self._make_claims(event.object)
            return
        owner = _pod_uid(event.object)
        if gone and owner is not None:  # Another client has deleted the claim, but its pod still needs it.
            for pod in self.store.list("pods", metadata["namespace"]):
                if pod["metadata"]["uid"] == owner and not pod["metadata"].get("deletionTimestamp"):
                    self._make_claims(pod)

    def _make_claims(self, pod: Object) -> None:
        metadata = pod["metadata"]
        for volume in (pod.get("spec") or {}).get("volumes") or []:
            if "ephemeral" not in volume:
                continue
            name = f"{metadata['name']}-{volume['name']}"
            found = base.find(self.store, "persistentvolumeclaims", name, metadata["namespace"])
            if found is None:
                claim = _claim(pod, name, volume["ephemeral"]["volumeClaimTemplate"])
                base.create_unless_exists(self.store, "persistentvolumeclaims", claim)
            elif _pod_uid(found) != metadata["uid"]:
                why = f'PVC "{name}" was not created for pod "{metadata["name"]}"'
                message = f"ephemeral volume {volume['name']}: {why} (pod is not owner)"
                involved = base.reference("Pod", pod)
                base.record(self.store, involved, NAME, "Warning", "FailedBinding", message)


def _claim(pod: Object, name: str, template: Object) -> Object:
    metadata = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    kept = {key: value for key, value in (template.get("metadata") or {}).items() if key in ("labels", "annotations")}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**kept, "name": name, "namespace": metadata["namespace"], "ownerReferences": [owner]},
        "spec": template["spec"],
    }


def _pod_uid(claim: Object) -> str | None:
    """Return the UID of the pod for which a claim was created, or None."""
    owners = claim["metadata"].get("ownerReferences") or []
    return next((each["uid"] for each in owners if each.get("controller") and each["kind"] == "Pod"), None)
