"""Record the credentials with which images were pulled, so that other pods cannot use a private image.

Go: pkg/kubelet/images/pullmanager
"""

from kubelet.images.pullmanager.fs_pullrecords import FSPullRecordsAccessor
from kubelet.images.pullmanager.image_pull_manager import PullManager
from kubelet.images.pullmanager.image_pull_policies import (
    ImagePullPolicyEnforcer,
    image_pull_credential_verification_policy,
    validate_allowlist_images_patterns,
)
from kubelet.images.pullmanager.interfaces import (
    GetPodCredentials,
    ImagePullCredentials,
    ImagePulledRecord,
    ImagePullManager,
    ImagePullSecret,
    ImagePullServiceAccount,
)
from kubelet.images.pullmanager.noop_pull_manager import NoopImagePullManager

__all__ = [
    "FSPullRecordsAccessor",
    "GetPodCredentials",
    "ImagePullCredentials",
    "ImagePullManager",
    "ImagePullPolicyEnforcer",
    "ImagePullSecret",
    "ImagePullServiceAccount",
    "ImagePulledRecord",
    "NoopImagePullManager",
    "PullManager",
    "image_pull_credential_verification_policy",
    "validate_allowlist_images_patterns",
]
