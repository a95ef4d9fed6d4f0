"""Approve and sign certificate signing requests.

Go: pkg/controller/certificates/approver/sarapprove.go and pkg/controller/certificates/signer/signer.go
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509

from .. import certificates
from ..interfaces import Authorizer, Object, Request, UserInfo, WatchEvent
from . import base

_SIGNERS = (
    certificates.SIGNER_CLIENT,
    certificates.SIGNER_KUBELET_CLIENT,
    certificates.SIGNER_KUBELET_SERVING,
)
_SHORTEST = datetime.timedelta(minutes=10)


@dataclass
class Policy:
    """Configure what happens to requests. Each field may change at any time and applies to later requests.

    The controller, like upstream's, approves a node's client certificate only if the user may have one. `lifetime` is
    the lifetime of a certificate whose request does not want a shorter one.
    """

    approve_clients: bool = True
    approve_serving: bool = False
    deny: bool = False
    fail: bool = False
    sign: bool = True
    lifetime: datetime.timedelta = datetime.timedelta(days=365)
    # In tests of the rotation, each certificate gets this lifetime, regardless of its request. The lifetime may be very
    # short.
    forced_lifetime: datetime.timedelta | None = None


class Signing(base.WatchController):
    name = "signing"
    resources = ("certificatesigningrequests",)

    def __init__(self, authority: certificates.CertificateAuthority, authorizer: Authorizer) -> None:
        super().__init__()
        self.policy = Policy()
        self._authority = authority
        self._authorizer = authorizer

    def reconsider(self) -> None:
        """Check the undecided requests again after a change of the policy."""
        with self._lock:
            for csr in self.store.list("certificatesigningrequests"):
                self._decide(csr)

    def handle(self, resource: str, event: WatchEvent) -> None:
        if event.type != "DELETED":
            self._decide(event.object)

    def _decide(self, csr: Object) -> None:
        status = csr.get("status") or {}
        conditions = {each["type"] for each in status.get("conditions") or [] if each.get("status", "True") == "True"}
        if status.get("certificate") or conditions & {"Denied", "Failed"}:
            return
        if "Approved" in conditions:
            if self.policy.sign and csr["spec"].get("signerName") in _SIGNERS:
                self._sign(csr)
            return
        if self.policy.deny:
            self._add_condition(csr, "Denied", "DeniedByPolicy", "This request is denied.", "approval")
        elif message := self._approval(csr):
            self._add_condition(csr, "Approved", "AutoApproved", message, "approval")

    def _approval(self, csr: Object) -> str:
        """Return the message of a request's approval, or "" if it is not approved."""
        spec = csr["spec"]
        try:
            request = certificates.decode_request(spec["request"])
            certificates.check_request(request, spec["signerName"], spec.get("usages") or [])
        except certificates.RequestError:
            return ""
        if spec["signerName"] == certificates.SIGNER_KUBELET_SERVING:
            return "Auto approving kubelet serving certificate." if self.policy.approve_serving else ""
        if spec["signerName"] != certificates.SIGNER_KUBELET_CLIENT or not self.policy.approve_clients:
            return ""
        own = spec.get("username") == certificates.common_name(request.subject)
        if own and self._may(csr, "selfnodeclient"):
            return "Auto approving self kubelet client certificate after SubjectAccessReview."
        if self._may(csr, "nodeclient"):
            return "Auto approving kubelet client certificate after SubjectAccessReview."
        return ""

    def _may(self, csr: Object, kind: str) -> bool:
        spec = csr["spec"]
        user = UserInfo(spec.get("username", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()))
        request = Request(
            "POST",
            "",
            user=user,
            verb="create",
            group="certificates.k8s.io",
            resource="certificatesigningrequests",
            subresource=kind,
        )
        return self._authorizer.authorize(request)[0]

    def _sign(self, csr: Object) -> None:
        spec = csr["spec"]
        if self.policy.fail:
            self._add_condition(csr, "Failed", "SignerValidationFailure", "This request fails.", "status")
            return
        try:
            request = certificates.decode_request(spec["request"])
            certificates.check_request(request, spec["signerName"], spec.get("usages") or [])
        except certificates.RequestError as err:
            self._add_condition(csr, "Failed", "SignerValidationFailure", str(err), "status")
            return
        certificate = self._certificate(request, spec.get("usages") or [], spec.get("expirationSeconds"))

        def put(found: Object) -> bool:
            found.setdefault("status", {})["certificate"] = base64.b64encode(certificate).decode()
            return True

        base.change(self.store, "certificatesigningrequests", csr["metadata"]["name"], "", put, "status")

    def _certificate(
        self, request: x509.CertificateSigningRequest, usages: Sequence[str], seconds: int | None
    ) -> bytes:
        lifetime = self.policy.lifetime
        if seconds is not None:
            lifetime = min(max(datetime.timedelta(seconds=seconds), _SHORTEST), lifetime)
        return self._authority.sign(request, usages, self.policy.forced_lifetime or lifetime)

    def _add_condition(self, csr: Object, kind: str, reason: str, message: str, subresource: str) -> None:
        now = base.timestamp()
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastUpdateTime": now,
            "lastTransitionTime": now,
        }

        def add(found: Object) -> bool:
            status = found.setdefault("status", {})
            status["conditions"] = [*(status.get("conditions") or []), condition]
            return True

        base.change(self.store, "certificatesigningrequests", csr["metadata"]["name"], "", add, subresource)
