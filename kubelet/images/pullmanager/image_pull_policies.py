"""Define when a pod must prove that it may use an image: imagePullCredentialsVerificationPolicy.

Go: pkg/kubelet/images/pullmanager/image_pull_policies.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pkg.util import parsers

# An ImagePullPolicyEnforcer (image, whether the kubelet pulled it) reports whether credentials must be verified.
ImagePullPolicyEnforcer = Callable[[str, bool], bool]


def image_pull_credential_verification_policy(policy: str, image_allow_list: Iterable[str]) -> ImagePullPolicyEnforcer:
    """Return the enforcer of a policy.

    Raise ValueError for an unknown policy or a malformed pattern.

    Go: NewImagePullCredentialVerificationPolicy
    """
    match policy:
        case "NeverVerify":
            return lambda image, pulled_by_kubelet: False
        case "NeverVerifyPreloadedImages":
            return lambda image, pulled_by_kubelet: pulled_by_kubelet
        case "NeverVerifyAllowlistedImages":
            return NeverVerifyAllowlistedImages(image_allow_list)
        case "AlwaysVerify":
            return lambda image, pulled_by_kubelet: True
    raise ValueError(f"unknown image pull credential verification policy: {policy}")


class NeverVerifyAllowlistedImages:
    """Require verification except for listed image names, and for prefixes written as registry/path/*."""

    def __init__(self, allow_list: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._prefixes: list[str] = []
        for pattern in allow_list:
            allowed = _get_allowlist_image_pattern(pattern)
            if allowed.is_prefix:
                self._prefixes.append(allowed.name)
            else:
                self._names.add(allowed.name)

    def __call__(self, image: str, pulled_by_kubelet: bool) -> bool:
        try:
            image = trim_image_tag_digest(image)
        except ValueError:
            pass  # The name is matched as the user wrote it.
        return image not in self._names and not any(image.startswith(prefix) for prefix in self._prefixes)


def validate_allowlist_images_patterns(patterns: Iterable[str]) -> None:
    """Raise ValueError for the first malformed pattern."""
    for pattern in patterns:
        _get_allowlist_image_pattern(pattern)


@dataclass(frozen=True, slots=True)
class _ImagePattern:
    """Represent the name of an image, or a prefix of image names."""

    name: str
    is_prefix: bool


def _get_allowlist_image_pattern(pattern: str) -> _ImagePattern:
    """Parse a pattern. Raise ValueError."""
    if pattern != pattern.strip():
        raise ValueError(f"leading/trailing spaces are not allowed: {pattern}")
    is_wildcard = pattern.endswith("/*")
    trimmed = pattern.removesuffix("*") if is_wildcard else pattern
    if not trimmed:
        raise ValueError(f"the supplied pattern is too short: {pattern}")
    if "*" in trimmed:
        raise ValueError(f"not a valid wildcard pattern, only patterns ending with '/*' are allowed: {pattern}")
    if is_wildcard:
        if len(trimmed) == 1:
            raise ValueError("at least registry hostname is required")
        return _ImagePattern(trimmed, is_prefix=True)
    try:
        image = trim_image_tag_digest(trimmed)
    except ValueError as err:
        raise ValueError(f"failed to parse as an image name: {err}") from err
    if trimmed != image:
        raise ValueError(f"neither tag nor digest is accepted in an image reference: {pattern}")
    return _ImagePattern(trimmed, is_prefix=False)


def trim_image_tag_digest(image: str) -> str:
    """Return the name as written, without tag and digest. Raise parsers.ImageNameError (a ValueError)."""
    _, tag, digest = parsers.parse_image_name(image)
    if digest:
        image = image.removesuffix(f"@{digest}")
    return image.removesuffix(f":{tag}") if tag else image
