"""Find the AppArmor profile of a container.

Go: pkg/security/apparmor/helpers.go
"""

from __future__ import annotations

from collections.abc import Mapping

from pkg.api.core import v1
from pkg.api.v1 import pod as podutil


def is_required(pod: v1.Pod) -> bool:
    """Report whether the pod requests a profile, even the runtime's default profile."""
    contexts = [c.security_context for c, _ in podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS)]
    for context in [pod.spec.security_context, *contexts]:
        profile = None if context is None else context.app_armor_profile
        if profile is not None and profile.type != v1.APP_ARMOR_PROFILE_TYPE_UNCONFINED:
            return True
    # DIVERGES (fault of Go): in this kubelet, any annotation that requests a profile counts.
    # Go: pkg/security/apparmor/helpers.go, isRequired: in the Go kubelet, the first annotation decides, in the random
    # order of a map.
    # Why: chance would decide whether a node without AppArmor admits a pod with one unconfined container.
    # Test: validate_test.py:test_bad_host
    return any(
        key.startswith(v1.DEPRECATED_APP_ARMOR_BETA_CONTAINER_ANNOTATION_KEY_PREFIX)
        and value != v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_NAME_UNCONFINED
        for key, value in pod.metadata.annotations.items()
    )


def get_profile(pod: v1.Pod, container: v1.Container) -> v1.AppArmorProfile | None:
    """Return the container's profile, else that of the old annotation, which static pods may have, else the pod's."""
    own = container.security_context.app_armor_profile if container.security_context is not None else None
    if own is not None:
        return own
    annotated = _get_profile_from_pod_annotations(pod.metadata.annotations, container.name)
    if annotated is not None:
        return annotated
    return pod.spec.security_context.app_armor_profile if pod.spec.security_context is not None else None


def _get_profile_from_pod_annotations(annotations: Mapping[str, str], container_name: str) -> v1.AppArmorProfile | None:
    value = annotations.get(v1.DEPRECATED_APP_ARMOR_BETA_CONTAINER_ANNOTATION_KEY_PREFIX + container_name)
    if value is None:
        return None
    if value == v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_RUNTIME_DEFAULT:
        return v1.AppArmorProfile(type=v1.APP_ARMOR_PROFILE_TYPE_RUNTIME_DEFAULT)
    if value == v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_NAME_UNCONFINED:
        return v1.AppArmorProfile(type=v1.APP_ARMOR_PROFILE_TYPE_UNCONFINED)
    prefix = v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_NAME_PREFIX
    if value.startswith(prefix):
        name = value.removeprefix(prefix)
        return v1.AppArmorProfile(type=v1.APP_ARMOR_PROFILE_TYPE_LOCALHOST, localhost_profile=name)
    return None
