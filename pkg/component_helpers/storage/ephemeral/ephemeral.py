"""Claims that are made for one volume of one pod and go with it.

Go: k8s.io/component-helpers/storage/ephemeral/ephemeral.go
"""

from __future__ import annotations

from pkg.api.core import v1


def volume_claim_name(pod: v1.Pod, volume: v1.Volume) -> str:
    """The name of the claim that is made for the volume; volume_is_for_pod tells whether it is that one."""
    return f"{pod.metadata.name}-{volume.name}"


def volume_is_for_pod(pod: v1.Pod, pvc: v1.PersistentVolumeClaim) -> None:
    """Raises ValueError for a claim that only has the name of one that is made for the pod."""
    controlled = any(ref.controller and ref.uid == pod.metadata.uid for ref in pvc.metadata.owner_references)
    if pvc.metadata.namespace != pod.metadata.namespace or not controlled:
        raise ValueError(
            f"PVC {pvc.metadata.namespace}/{pvc.metadata.name} was not created for pod "
            f"{pod.metadata.namespace}/{pod.metadata.name} (pod is not owner)"
        )
