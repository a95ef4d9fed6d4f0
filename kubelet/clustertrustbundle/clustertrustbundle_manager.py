"""Where trust anchors come from.

Go: pkg/kubelet/clustertrustbundle/clustertrustbundle_manager.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pkg.apimachinery.apis.meta import v1 as metav1


class Manager(Protocol):
    """Trust anchors as PEM, each once, in an order that no one should rely on. Safe from any thread.

    Where there are none, methods raise LookupError, or return b"" if allow_missing.
    """

    def get_trust_anchors_by_name(self, name: str, allow_missing: bool) -> bytes: ...

    def get_trust_anchors_by_signer(
        self, signer_name: str, label_selector: metav1.LabelSelector | None, allow_missing: bool
    ) -> bytes:
        """No selector matches nothing, an empty one everything of the signer."""
        ...


class NoopManager:
    """Has none, and says why."""

    def get_trust_anchors_by_name(self, name: str, allow_missing: bool) -> bytes:
        raise LookupError("ClusterTrustBundle projection is not supported in static kubelet mode")

    def get_trust_anchors_by_signer(
        self, signer_name: str, label_selector: metav1.LabelSelector | None, allow_missing: bool
    ) -> bytes:
        raise LookupError("ClusterTrustBundle projection is not supported in static kubelet mode")
