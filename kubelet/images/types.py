"""Why an image could not be had.

Go: pkg/kubelet/images/types.go (and the image errors of k8s.io/cri-api/pkg/errors)
"""

from __future__ import annotations

from kubelet import container as kubecontainer


class ImageError(kubecontainer.ReasonError):
    """str() is the short reason that a container's waiting state shows, `message` the long one beside it."""

    def __init__(self, message: str = "") -> None:
        super().__init__()
        self.message = message

    def __str__(self) -> str:
        return self.reason


class ErrImagePullBackOff(ImageError):
    """The last pull failed, and the next is not yet due."""

    reason = "ImagePullBackOff"


class ErrImageInspect(ImageError):
    """The runtime could not say whether it has the image."""

    reason = "ImageInspectError"


class ErrImagePull(ImageError):
    """The pull failed."""

    reason = "ErrImagePull"


class ErrImageNeverPull(ImageError):
    """The image is absent and its policy is Never."""

    reason = "ErrImageNeverPull"


class ErrInvalidImageName(ImageError):
    """The image's name cannot be parsed."""

    reason = "InvalidImageName"


class ErrRegistryUnavailable(ImageError):
    """The runtime could not reach the registry."""

    reason = "RegistryUnavailable"


class ErrSignatureValidationFailed(ImageError):
    """The runtime refused the image's signature."""

    reason = "SignatureValidationFailed"
