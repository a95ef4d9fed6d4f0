"""Define the records of image pulls, and the interface of their manager.

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
    """Identify a secret with which an image was pulled. credential_hash shows whether its content changed."""

    uid: str
    namespace: str
    name: str
    credential_hash: str = ""


class ImagePullServiceAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Identify a service account for which an image was pulled."""

    uid: str
    namespace: str
    name: str


class ImagePullCredentials(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """Record who may use an image without a new pull. node_pods_accessible means every pod of the node."""

    kubernetes_secrets: list[ImagePullSecret] = []
    kubernetes_service_accounts: list[ImagePullServiceAccount] = []
    node_pods_accessible: bool = False


class ImagePulledRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Record an image that the kubelet pulled.

    The keys of credential_mapping are image names without tag and digest.
    """

    last_updated_time: metav1.Time
    image_ref: str
    credential_mapping: dict[str, ImagePullCredentials] = {}
    kind: str = "ImagePulledRecord"
    api_version: str = "kubelet.config.k8s.io/v1beta1"


GetPodCredentials = Callable[[], tuple[list[ImagePullSecret], ImagePullServiceAccount | None]]


class ImagePullManager(Protocol):
    """Define how the image manager uses the pull records.

    `image` is always the name in the pod's container. Implementations are thread-safe.
    """

    def record_pull_intent(self, image: str) -> None:
        """Record the intent to pull.

        Callers call this before each pull, and exactly one of the next two methods after it. Raise OSError.
        """
        ...

    def record_image_pulled(
        self, ctx: golang.Context, image: str, image_ref: str, credentials: ImagePullCredentials
    ) -> None: ...

    def record_image_pull_failed(self, ctx: golang.Context, image: str) -> None: ...

    def must_attempt_image_pull(
        self, ctx: golang.Context, image: str, image_ref: str, get_pod_credentials: GetPodCredentials
    ) -> bool:
        """Report whether a present image must be pulled again to verify that this pod may use it.

        Raise the errors of get_pod_credentials.
        """
        ...

    def prune_unknown_records(self, ctx: golang.Context, image_list: Iterable[str], until: datetime) -> None:
        """Remove the records of images that are not listed, unless they were pulled at or after `until`.

        The image garbage collection calls this method.
        """
        ...
