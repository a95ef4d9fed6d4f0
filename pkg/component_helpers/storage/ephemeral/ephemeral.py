"""Handle generic ephemeral volumes, whose claims are created for one pod and deleted with it.

Go: k8s.io/component-helpers/storage/ephemeral/ephemeral.go
"""

from __future__ import annotations

from pkg.api.core import v1


def volume_claim_name(pod: v1.Pod, volume: v1.Volume) -> str:
    """Return the name of the volume's claim; call volume_is_for_pod to check the claim of this name."""
    return f"{pod.metadata.name}-{volume.name}"


def volume_is_for_pod(pod: v1.Pod, pvc: v1.PersistentVolumeClaim) -> None:
    """Raise ValueError if the claim was not created for the pod, and only has the same name."""
    controlled = any(ref.controller and ref.uid == pod.metadata.uid for ref in pvc.metadata.owner_references)
    if pvc.metadata.namespace != pod.metadata.namespace or not controlled:
        raise ValueError(
            f"PVC {pvc.metadata.namespace}/{pvc.metadata.name} was not created for pod "
            f"{pod.metadata.namespace}/{pod.metadata.name} (pod is not owner)"
        )
