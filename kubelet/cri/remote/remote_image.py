"""Call the image service of a runtime over its socket.

Go: k8s.io/cri-client/pkg/remote_image.go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import grpc
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cri import apis as internalapi
from kubelet.cri import errors
from kubelet.cri.remote import client
from pkg import golang, klog
from pkg.component_base import tracing


class RemoteImageService:
    """Implement `apis.ImageManagerService` on a unix socket.

    The constructor does not connect. `connection_timeout` limits each call, in seconds, except image pulls.
    """

    def __init__(
        self,
        ctx: golang.Context,
        endpoint: str,
        connection_timeout: float,
        tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER,
    ) -> None:
        klog.v(3).info_s("Connecting to image service", endpoint=endpoint)
        self._endpoint = endpoint
        self._timeout = connection_timeout
        self._client: client.Client = client.GRPCClient(endpoint, "ImageService", tracer_provider)

    def close(self, ctx: golang.Context) -> None:
        klog.v(3).info_s("Closing image service connection")
        self._client.close()

    def validate_service_connection(self, ctx: golang.Context) -> None:
        """Raise ConnectionError unless a runtime with CRI v1 answers."""
        klog.v(4).info_s("Validating the CRI v1 API image version")
        try:
            self._client.invoke(ctx, "ImageFsInfo", runtimeapi.ImageFsInfoRequest(), self._timeout)
        except errors.RemoteError as err:
            raise ConnectionError(
                f'validate service connection: validate CRI v1 image API for endpoint "{self._endpoint}": {err}'
            ) from err
        klog.v(2).info_s("Validated CRI v1 image API")

    def list_images(self, ctx: golang.Context, filter: runtimeapi.ImageFilter | None) -> Sequence[runtimeapi.Image]:
        request = runtimeapi.ListImagesRequest(filter=filter)
        what = "ListImages with filter from image service failed"
        return self._call(ctx, "ListImages", request, what, filter=filter).images  # type: ignore[no-any-return]

    def image_status(
        self, ctx: golang.Context, image: runtimeapi.ImageSpec, verbose: bool
    ) -> runtimeapi.ImageStatusResponse:
        """Return the status of an image. Raise InvalidResponseError if the runtime omits the id or the size."""
        request = runtimeapi.ImageStatusRequest(image=image, verbose=verbose)
        what = "Get ImageStatus from image service failed"
        response: runtimeapi.ImageStatusResponse = self._call(ctx, "ImageStatus", request, what, image=image.image)
        if response.HasField("image") and (not response.image.id or not response.image.size):
            message = f'Id or size of image "{image.image}" is not set'
            klog.error_s(errors.InvalidResponseError(message), "ImageStatus failed", image=image.image)
            raise errors.InvalidResponseError(message)
        return response

    def pull_image(
        self,
        ctx: golang.Context,
        image: runtimeapi.ImageSpec,
        auth: runtimeapi.AuthConfig | None,
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
    ) -> str:
        request = runtimeapi.PullImageRequest(image=image, auth=auth, sandbox_config=pod_sandbox_config)
        try:
            response = self._client.invoke(ctx, "PullImage", request, None)
        except errors.RemoteError as err:
            klog.error_s(err, "PullImage from image service failed", image=image.image)
            if err.code is grpc.StatusCode.UNKNOWN:
                # The code has no meaning, and the image manager looks for words at the start of the message.
                raise errors.UncodedError(err.message) from err
            raise
        if not response.image_ref:
            klog.error_s(ValueError("PullImage failed"), "ImageRef of image is not set", image=image.image)
            raise errors.InvalidResponseError(f'imageRef of image "{image.image}" is not set')
        return response.image_ref  # type: ignore[no-any-return]

    def remove_image(self, ctx: golang.Context, image: runtimeapi.ImageSpec) -> None:
        request = runtimeapi.RemoveImageRequest(image=image)
        what = "RemoveImage from image service failed"
        self._call(ctx, "RemoveImage", request, what, image=image.image)

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        request = runtimeapi.ImageFsInfoRequest()
        what = "ImageFsInfo from image service failed"
        return self._call(ctx, "ImageFsInfo", request, what)  # type: ignore[no-any-return]

    def _call(self, ctx: golang.Context, method: str, request: Any, what: str, **kv: Any) -> Any:
        try:
            return self._client.invoke(ctx, method, request, self._timeout)
        except golang.Canceled:
            raise
        except errors.RemoteError as err:
            klog.error_s(err, what, **kv)
            raise


if TYPE_CHECKING:

    def _implements(service: RemoteImageService) -> internalapi.ImageManagerService:
        return service
