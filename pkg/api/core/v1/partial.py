"""Represent a pod that can be decoded only in part.

Go: none; because of one such object, Go's clients fail the whole list or watch
"""

from __future__ import annotations

from pkg.api.core.v1.types import Pod


class PartialPod(Pod):
    """Represent a pod without the fields that cannot be decoded.

    Code must not conclude anything from missing fields, such as which containers should run or which volumes they need.
    """

    @classmethod
    def of(cls, pod: Pod) -> PartialPod:
        """Return a PartialPod with the fields of a pod that was decoded in part."""
        return cls(api_version="v1", kind="Pod", metadata=pod.metadata, spec=pod.spec, status=pod.status)
