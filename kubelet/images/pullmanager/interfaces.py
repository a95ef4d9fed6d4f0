"""Records of pulls, and who keeps them.

Go: pkg/kubelet/images/pullmanager/interfaces.go (and the records of pkg/kubelet/apis/config/types.go)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

import msgspec

from pkg import golang
from pkg.apimachinery.apis.meta import v1 as metav1


class ImagePullSecret(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename={"credential_hash": "credentialHash"},
):
    """A secret that an image was pulled with; credential_hash tells whether its contents changed."""

    uid: str
    namespace: str
    name: str
    credential_hash: str = ""


class ImagePullServiceAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service account that an image was pulled for."""

    uid: str
    namespace: str
    name: str


class ImagePullCredentials(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """Who may use an image without asking the registry; node_pods_accessible means everyone on the node."""

    kubernetes_secrets: list[ImagePullSecret] = []
    kubernetes_service_accounts: list[ImagePullServiceAccount] = []
    node_pods_accessible: bool = False


class ImagePulledRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One image that the kubelet pulled. credential_mapping goes by image name without tag and digest."""

    last_updated_time: metav1.Time
    image_ref: str
    credential_mapping: dict[str, ImagePullCredentials] = {}
    kind: str = "ImagePulledRecord"
    api_version: str = "kubelet.config.k8s.io/v1beta1"


GetPodCredentials = Callable[[], tuple[list[ImagePullSecret], ImagePullServiceAccount | None]]


class ImagePullManager(Protocol):
    """`image` is always what the pod's container says. Thread-safe."""

    def record_pull_intent(self, image: str) -> None:
        """Called before each pull, and followed by exactly one of the two below. Raises OSError."""
        ...

    def record_image_pulled(
        self, ctx: golang.Context, image: str, image_ref: str, credentials: ImagePullCredentials
    ) -> None: ...

    def record_image_pull_failed(self, ctx: golang.Context, image: str) -> None: ...

    def must_attempt_image_pull(
        self, ctx: golang.Context, image: str, image_ref: str, get_pod_credentials: GetPodCredentials
    ) -> bool:
        """Whether an image that is there must be pulled again, to see whether this pod may have it.

        Raises what get_pod_credentials raises.
        """
        ...

    def prune_unknown_records(self, ctx: golang.Context, image_list: Iterable[str], until: datetime) -> None:
        """Forgets the images not listed, unless pulled at or after `until`.

        Called after image garbage collection.
        """
        ...
