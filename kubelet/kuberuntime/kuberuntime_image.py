"""Pull, list and remove images in the runtime.

Go: pkg/kubelet/kuberuntime/kuberuntime_image.go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet.cri import errors as crierror
from kubelet.kuberuntime import convert
from pkg import credentialprovider, features, golang, klog
from pkg.apimachinery.util import errors as utilerrors

if TYPE_CHECKING:
    from kubelet.cri import apis as internalapi

_MAX_INT64 = 2**63 - 1


class PullErrors(ExceptionGroup[Exception]):
    """Signal that a pull failed with each of several credentials. The text equals that of Go's aggregate of errors."""

    def __new__(cls, errors: Sequence[Exception]) -> PullErrors:
        return super().__new__(cls, "", errors)

    def derive(self, excs: Sequence[Exception], /) -> PullErrors:  # type: ignore[override]
        return PullErrors(excs)

    def __str__(self) -> str:
        texts = list(dict.fromkeys(str(err) for err in self.exceptions))
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


@dataclass(kw_only=True, eq=False, repr=False)
class ImageMethods:
    """Implement the image service of the kubelet. All methods raise crierror.RemoteError.

    Go: pkg/kubelet/container/runtime.go, ImageService
    """

    image_service: internalapi.ImageManagerService

    def pull_image(
        self,
        ctx: golang.Context,
        image: kubecontainer.ImageSpec,
        credentials: Sequence[credentialprovider.TrackedAuthConfig],
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
    ) -> tuple[str, credentialprovider.TrackedAuthConfig | None]:
        """Pull an image; return its reference and the credentials that worked.

        Raise PullErrors if none of several credentials worked.
        """
        spec = convert.to_runtime_api_image_spec(image)
        if not credentials:
            klog.v(3).info_s("Pulling image without credentials", image=image.image)
            try:
                return self.image_service.pull_image(ctx, spec, None, pod_sandbox_config), None
            except crierror.RemoteError as err:
                klog.error_s(err, "Failed to pull image", image=image.image)
                raise
        with utilerrors.collecting() as errors:
            for creds in credentials:
                try:
                    auth = _auth_config(creds.auth_config)
                    return self.image_service.pull_image(ctx, spec, auth, pod_sandbox_config), creds
                except crierror.RemoteError as err:
                    errors.append(err)
            raise PullErrors(errors)

    def get_image_ref(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> str:
        """Return the ID of the image, or "" if the node does not have it."""
        return self._image_status(ctx, image).id

    def get_image_size(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> int:
        """Return the size of the image in bytes, or 0 if the node does not have it."""
        return self._image_status(ctx, image).size

    def _image_status(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> runtimeapi.Image:
        try:
            spec = convert.to_runtime_api_image_spec(image)
            return self.image_service.image_status(ctx, spec, False).image
        except crierror.RemoteError as err:
            klog.error_s(err, "Failed to get image status", image=image.image)
            raise

    def list_images(self, ctx: golang.Context) -> list[kubecontainer.Image]:
        """Return all images of the node."""
        return [self._to_kube_image(image) for image in self._list(ctx)]

    def _list(self, ctx: golang.Context) -> Sequence[runtimeapi.Image]:
        try:
            return self.image_service.list_images(ctx, None)
        except crierror.RemoteError as err:
            klog.error_s(err, "Failed to list images")
            raise

    def _to_kube_image(self, image: runtimeapi.Image) -> kubecontainer.Image:
        gate = features.feature_gate.enabled(features.RUNTIME_CLASS_IN_IMAGE_CRI_API)
        if gate and not image.spec.runtime_handler:
            klog.v(2).info_s("WARNING: RuntimeHandler is empty", ImageID=image.id)
        return kubecontainer.Image(
            id=image.id,
            # DIVERGES (safer): an image size that does not fit into the API's 64 bits is reported as the largest value
            # that does.
            # Go: pkg/kubelet/kuberuntime/kuberuntime_image.go, (*kubeGenericRuntimeManager).ListImages: the size
            # becomes negative.
            # Why: the node's status would show a negative size, and removing the image would count as a loss of space.
            # Test: helpers_test.py:test_size_of_an_image_is_one_that_the_api_server_takes
            size=min(image.size, _MAX_INT64),
            repo_tags=list(image.repo_tags),
            repo_digests=list(image.repo_digests),
            spec=convert.to_kube_container_image_spec(image),
            pinned=image.pinned,
        )

    def remove_image(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> None:
        """Remove the image with all its names."""
        try:
            self.image_service.remove_image(ctx, runtimeapi.ImageSpec(image=image.image))
        except crierror.RemoteError as err:
            klog.error_s(err, "Failed to remove image", image=image.image)
            raise

    def image_stats(self, ctx: golang.Context) -> kubecontainer.ImageStats:
        """Return the sum of the sizes of all images; shared layers are counted more than once."""
        return kubecontainer.ImageStats(total_storage_bytes=sum(image.size for image in self._list(ctx)))

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        """Return the usage of the file systems for images and containers."""
        try:
            return self.image_service.image_fs_info(ctx)
        except crierror.RemoteError as err:
            klog.error_s(err, "Failed to get image filesystem")
            raise


def _auth_config(auth: credentialprovider.AuthConfig) -> runtimeapi.AuthConfig:
    return runtimeapi.AuthConfig(
        username=auth.username,
        password=auth.password,
        auth=auth.auth,
        server_address=auth.server_address,
        identity_token=auth.identity_token,
        registry_token=auth.registry_token,
    )
