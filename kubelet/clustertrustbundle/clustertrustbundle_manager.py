"""Get trust anchors from ClusterTrustBundle objects.

Go: pkg/kubelet/clustertrustbundle/clustertrustbundle_manager.go
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from pkg import golang, klog
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1

if TYPE_CHECKING:
    from pkg.api.certificates import v1beta1 as certificatesv1beta1
    from pkg.client_go import kubernetes
    from pkg.client_go.listers.certificates import v1beta1 as certificateslisters
    from pkg.client_go.tools import cache

MAX_LABEL_SELECTOR_LENGTH = 100 * 1024
# A pod waits at most this time, in seconds, for the first list of all bundles.
_SYNC_TIMEOUT = 10.0
_GROUP_VERSION = "certificates.k8s.io/v1beta1"
_LINE = 64


class UnknownBundlesError(Exception):
    """Signal that the kubelet does not know the bundles yet."""


class Manager(Protocol):
    """Define how volumes get trust anchors. Any thread may call it.

    The result is PEM without duplicates, in an order on which callers must not rely. Where there are no anchors, the
    methods raise LookupError or apierrors.StatusError (not found), or return b"" if allow_missing is set. They raise
    UnknownBundlesError while the kubelet does not know the bundles.
    """

    def get_trust_anchors_by_name(self, name: str, allow_missing: bool) -> bytes: ...

    def get_trust_anchors_by_signer(
        self, signer_name: str, label_selector: metav1.LabelSelector | None, allow_missing: bool
    ) -> bytes:
        """Return the anchors of the signer's bundles that match.

        If the selector is None, no bundle matches. An empty selector matches all bundles of the signer.
        """
        ...


class InformerManager:
    """Get trust anchors from an informer's bundles."""

    def __init__(
        self,
        informer: cache.SharedIndexInformer[certificatesv1beta1.ClusterTrustBundle],
        lister: certificateslisters.ClusterTrustBundleLister,
    ) -> None:
        self._informer = informer
        self._lister = lister
        # The anchors are sorted by salted hashes.
        # DIVERGES (fault of Go): trust anchors in a projected volume keep their order while the kubelet runs.
        # Go: pkg/kubelet/clustertrustbundle/clustertrustbundle_manager.go, (*InformerManager).normalizeTrustAnchors:
        # the Go kubelet shuffles them again when the result is five minutes old or a bundle of the signer has changed.
        # Why: pods would see their file of anchors change although the anchors have not changed.
        # Test: clustertrustbundle_manager_test.py:test_order_of_anchors_stays_when_another_bundle_changes
        self._salt = os.urandom(16)

    def get_trust_anchors_by_name(self, name: str, allow_missing: bool) -> bytes:
        self._check_synced()
        try:
            bundle = self._lister.get(name)
        except apierrors.StatusError as err:
            if allow_missing and apierrors.is_not_found(err):
                return b""
            # The status is kept because callers may need to know whether the bundle does not exist.
            status = metav1.deepcopy(err.status)
            status.message = f"while getting ClusterTrustBundle: {err}"
            raise apierrors.StatusError(status) from err
        return self._normalize_trust_anchors([bundle])

    def get_trust_anchors_by_signer(
        self, signer_name: str, label_selector: metav1.LabelSelector | None, allow_missing: bool
    ) -> bytes:
        self._check_synced()
        try:
            selector = metav1.label_selector_as_selector(label_selector)
        except ValueError as err:
            raise ValueError(f"while parsing label selector: {err}") from err
        if (length := len(str(selector))) > MAX_LABEL_SELECTOR_LENGTH:
            raise ValueError(f"label selector length ({length}) is larger than {MAX_LABEL_SELECTOR_LENGTH}")
        bundles = [bundle for bundle in self._lister.list(selector) if bundle.spec.signer_name == signer_name]
        if not bundles and not allow_missing:
            raise LookupError("combination of signerName and labelSelector matched zero ClusterTrustBundles")
        return self._normalize_trust_anchors(bundles)

    def _check_synced(self) -> None:
        if not self._informer.has_synced():
            raise UnknownBundlesError("ClusterTrustBundle informer has not yet synced")

    def _normalize_trust_anchors(self, bundles: Iterable[certificatesv1beta1.ClusterTrustBundle]) -> bytes:
        anchors = {anchor for bundle in bundles for anchor in _decode_pem(bundle.spec.trust_bundle)}
        ordered = sorted(anchors, key=lambda anchor: hashlib.sha256(self._salt + anchor).digest())
        return b"".join(map(_encode_certificate, ordered))


def _decode_pem(text: str) -> Iterator[bytes]:
    """Return the contents of the PEM blocks. Malformed blocks are skipped."""
    # This import is late because only a kubelet with an API server has bundles.
    from pkg.client_go.util.keyutil import pem

    return (block.data for block in pem.blocks(text.encode(errors="replace")))


def _encode_certificate(anchor: bytes) -> bytes:
    content = base64.b64encode(anchor)
    lines = [content[i : i + _LINE] for i in range(0, len(content), _LINE)]
    return b"\n".join([b"-----BEGIN CERTIFICATE-----", *lines, b"-----END CERTIFICATE-----", b""])


class NoopManager:
    """Provide no trust anchors, and raise an error with the reason."""

    def get_trust_anchors_by_name(self, name: str, allow_missing: bool) -> bytes:
        raise LookupError("ClusterTrustBundle projection is not supported in static kubelet mode")

    def get_trust_anchors_by_signer(
        self, signer_name: str, label_selector: metav1.LabelSelector | None, allow_missing: bool
    ) -> bytes:
        raise LookupError("ClusterTrustBundle projection is not supported in static kubelet mode")


class LazyInformerManager:
    """Look for the API when a pod first needs it, because the API server may be a pod of this kubelet.

    The informer runs until ctx ends. The alpha version of the API, which API servers before 1.33 have, is not
    supported.
    """

    def __init__(self, ctx: golang.Context, kube_client: kubernetes.Interface) -> None:
        self._ctx = ctx
        self._client = kube_client
        # The lock guards _manager, and is held while the manager looks for the API.
        self._lock = threading.Lock()
        self._manager: Manager | None = None

    def get_trust_anchors_by_name(self, name: str, allow_missing: bool) -> bytes:
        return self._ensure_manager_set().get_trust_anchors_by_name(name, allow_missing)

    def get_trust_anchors_by_signer(
        self, signer_name: str, label_selector: metav1.LabelSelector | None, allow_missing: bool
    ) -> bytes:
        return self._ensure_manager_set().get_trust_anchors_by_signer(signer_name, label_selector, allow_missing)

    def _ensure_manager_set(self) -> Manager:
        """Return the manager. Raise UnknownBundlesError if the API server does not report which APIs it has."""
        with self._lock:
            if self._manager is not None:
                return self._manager
            try:
                available = cluster_trust_bundles_available(self._client)
            except Exception as err:  # After any error the next pod that needs a bundle tries again.
                raise UnknownBundlesError(
                    "failed to ensure informer manager for ClusterTrustBundles: "
                    f"failed to determine which informer manager to choose: {err}"
                ) from err
            self._manager = self._start_informer() if available else NoopManager()
            return self._manager

    def _start_informer(self) -> Manager:
        # This import is late because only a kubelet with an API server needs informers.
        from pkg.client_go import informers

        factory = informers.SharedInformerFactory(self._client, 0)
        bundles = factory.certificates_v1beta1.cluster_trust_bundles()
        manager = InformerManager(bundles.informer(), bundles.lister())
        factory.start(self._ctx)
        klog.info_s("Started ClusterTrustBundle informer", apiGroup=_GROUP_VERSION)
        # The thread waits here because the caller asks for a bundle immediately afterwards.
        ctx, cancel = golang.with_timeout(self._ctx, _SYNC_TIMEOUT)
        try:
            synced = all(factory.wait_for_cache_sync(ctx).values())
        finally:
            cancel()
        if synced:
            klog.info_s("ClusterTrustBundle informer synced")
        else:
            klog.info_s("ClusterTrustBundle informer not synced, continuing to attempt in background")
        return manager


def cluster_trust_bundles_available(client: kubernetes.Interface) -> bool:
    """Report whether the API server has ClusterTrustBundles. Raise the errors of a request."""
    try:
        found = client.discovery.server_resources_for_group_version(_GROUP_VERSION)
    except apierrors.StatusError as err:
        if apierrors.is_not_found(err):
            klog.info_s(
                "No version of the ClusterTrustBundle API was found, the ClusterTrustBundle informer won't be started"
            )
            return False
        raise
    return any(resource.name == "clustertrustbundles" for resource in found.resources)


if TYPE_CHECKING:

    def _conform(informer: InformerManager, noop: NoopManager, lazy: LazyInformerManager) -> tuple[Manager, ...]:
        return informer, noop, lazy
