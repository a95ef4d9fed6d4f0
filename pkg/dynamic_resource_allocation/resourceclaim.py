"""Find the resource claims of a pod, and check whether they belong to the pod.

Go: k8s.io/dynamic-resource-allocation/resourceclaim/resourceclaim.go
"""

from __future__ import annotations

from typing import NamedTuple

from pkg.api.core import v1
from pkg.api.resource import v1 as resourceapi


class ErrClaimNotFound(LookupError):
    """Signal that the pod's claim has not been created yet."""


class ErrAPIUnsupported(ValueError):
    """Signal that the pod refers to a claim in a way that this version does not know."""


class Name(NamedTuple):
    """Hold the name of a claim, or None if the pod needs none.

    `must_check_owner` says that the claim was created for a pod, so that the caller must check the owner with
    is_for_pod.
    """

    name: str | None
    must_check_owner: bool


def name(pod: v1.Pod, pod_claim: v1.PodResourceClaim) -> Name:
    """Return the name of the claim object for a pod's claim. Raise ErrClaimNotFound or ErrAPIUnsupported."""
    if pod_claim.resource_claim_name is not None:
        return Name(pod_claim.resource_claim_name, False)
    subject = f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    if pod_claim.resource_claim_template_name is None:
        raise ErrAPIUnsupported(
            f'{subject}, spec.resourceClaim "{pod_claim.name}": none of the supported fields are set'
        )
    for status in pod.status.resource_claim_statuses:
        if status.name == pod_claim.name:
            return Name(status.resource_claim_name, True)
    raise ErrClaimNotFound(f"{subject}: ResourceClaim not created yet")


def is_for_pod(pod: v1.Pod, claim: resourceapi.ResourceClaim) -> None:
    """Raise ValueError unless the claim was created for the pod."""
    claim_text = f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"
    pod_text = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
    if claim.metadata.namespace != pod.metadata.namespace:
        raise ValueError(f"{claim_text} is not in the same namespace as {pod_text}")
    owners = claim.metadata.owner_references
    if not any(owner.controller and owner.uid == pod.metadata.uid for owner in owners):
        raise ValueError(f"{claim_text} was not created for {pod_text} (Pod is not owner)")


def is_reserved_for_pod(pod: v1.Pod, claim: resourceapi.ResourceClaim) -> bool:
    """Report whether the claim is reserved for the pod."""
    return any(reserved.uid == pod.metadata.uid for reserved in claim.status.reserved_for)


def base_request_ref(request_ref: str) -> str:
    """Return the request that a reference names, without the subrequest: "gpu/large" → "gpu"."""
    return request_ref.partition("/")[0]
