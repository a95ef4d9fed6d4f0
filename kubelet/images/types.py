"""Define the errors for images that are not available.

Go: pkg/kubelet/images/types.go (and the image errors of k8s.io/cri-api/pkg/errors)
"""

from __future__ import annotations

from kubelet import container as kubecontainer


class ImageError(kubecontainer.ReasonError):
    """Signal that an image is not available.

    str() is the short reason in the container's waiting state, and `message` is the long text next to it.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__()
        self.message = message

    def __str__(self) -> str:
        return self.reason


class ErrImagePullBackOff(ImageError):
    """Signal that the last pull failed and the next attempt is not due yet."""

    reason = "ImagePullBackOff"


class ErrImageInspect(ImageError):
    """Signal that the runtime could not report whether it has the image."""

    reason = "ImageInspectError"


class ErrImagePull(ImageError):
    """Signal that the pull failed."""

    reason = "ErrImagePull"


class ErrImageNeverPull(ImageError):
    """Signal that the image is absent and its pull policy is Never."""

    reason = "ErrImageNeverPull"


class ErrInvalidImageName(ImageError):
    """Signal that the image's name cannot be parsed."""

    reason = "InvalidImageName"


class ErrRegistryUnavailable(ImageError):
    """Signal that the runtime could not reach the registry."""

    reason = "RegistryUnavailable"


class ErrSignatureValidationFailed(ImageError):
    """Signal that the runtime rejected the image's signature."""

    reason = "SignatureValidationFailed"
