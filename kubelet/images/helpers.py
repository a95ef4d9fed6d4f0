"""Limit the rate of image pulls.

Go: pkg/kubelet/images/helpers.go
"""

from __future__ import annotations

from collections.abc import Sequence

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from pkg import credentialprovider, golang
from pkg.client_go.util import flowcontrol


class PullQPSExceededError(Exception):
    """Signal that there are more pulls per second than registryPullQPS and registryBurst allow."""

    def __init__(self) -> None:
        super().__init__("pull QPS exceeded")


def throttle_image_pulling(
    image_service: kubecontainer.ImageService, qps: float, burst: int
) -> kubecontainer.ImageService:
    """Return the service itself or, with a QPS other than 0, a service that rejects pulls above the limit."""
    if qps == 0:
        return image_service
    return ThrottledImageService(image_service, flowcontrol.TokenBucketRateLimiter(qps, burst))


class ThrottledImageService:
    """Reject pulls above the rate limit.

    Go: throttledImageService
    """

    def __init__(self, image_service: kubecontainer.ImageService, limiter: flowcontrol.RateLimiter) -> None:
        self._image_service = image_service
        self._limiter = limiter
        self.get_image_ref = image_service.get_image_ref
        self.list_images = image_service.list_images
        self.remove_image = image_service.remove_image
        self.image_stats = image_service.image_stats
        self.image_fs_info = image_service.image_fs_info
        self.get_image_size = image_service.get_image_size

    def pull_image(
        self,
        ctx: golang.Context,
        image: kubecontainer.ImageSpec,
        credentials: Sequence[credentialprovider.TrackedAuthConfig],
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
    ) -> tuple[str, credentialprovider.TrackedAuthConfig | None]:
        if not self._limiter.try_accept():
            raise PullQPSExceededError
        return self._image_service.pull_image(ctx, image, credentials, pod_sandbox_config)
