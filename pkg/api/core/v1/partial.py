"""A pod of which not everything can be read.

Go: none, for its clients fail the whole list or watch because of one object.
"""

from __future__ import annotations

from pkg.api.core.v1.types import Pod


class PartialPod(Pod):
    """A pod without those of its fields that cannot be decoded, never known in full.

    Nothing can be concluded from what it lacks: not which containers are to run, nor which volumes they need.
    """

    @classmethod
    def of(cls, pod: Pod) -> PartialPod:
        """The pod's parts, taken over from a pod that has only those."""
        return cls(api_version="v1", kind="Pod", metadata=pod.metadata, spec=pod.spec, status=pod.status)
