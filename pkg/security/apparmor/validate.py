"""Check whether this node can run a pod under the AppArmor profiles that the pod requests.

Go: pkg/security/apparmor/validate.go
"""

from __future__ import annotations

from pathlib import Path

from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.security.apparmor.helpers import get_profile, is_required

_SECURITY_FS = Path("/sys/kernel/security/apparmor")
_ENABLED = Path("/sys/module/apparmor/parameters/enabled")


class Validator:
    """Validate pods against the host's AppArmor support.

    The constructor inspects the host once, because enabling AppArmor requires a reboot, and so a restart of the
    kubelet.
    """

    def __init__(self, security_fs: Path = _SECURITY_FS, enabled: Path = _ENABLED) -> None:
        self._validate_host_err = "" if is_enabled(security_fs, enabled) else "AppArmor is not enabled on the host"

    def validate(self, pod: v1.Pod) -> None:
        """Raise ValueError if the pod requests a profile and the host has no AppArmor, or if a profile name is empty.

        The runtime finds out whether the host has loaded a profile.
        """
        if not is_required(pod):
            return
        self.validate_host()
        for container, _ in podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS):
            profile = get_profile(pod, container)
            if profile is None or profile.type != v1.APP_ARMOR_PROFILE_TYPE_LOCALHOST:
                continue
            if not (profile.localhost_profile or "").strip():
                # DIVERGES (fault of Go): in this kubelet, the message for an empty profile name contains that name and
                # the container's.
                # Go: pkg/security/apparmor/validate.go, (*validator).Validate: the Go kubelet's message contains the
                # fields of a struct with the address of a pointer, and no container.
                # Why: the address tells the user nothing, and differs each time.
                # Test: validate_test.py:test_validate
                raise ValueError(
                    f'invalid empty AppArmor profile name: "{profile.localhost_profile or ""}" of container'
                    f' "{container.name}"'
                )

    def validate_host(self) -> None:
        """Raise ValueError if the host has no AppArmor."""
        if self._validate_host_err:
            raise ValueError(self._validate_host_err)


def is_enabled(security_fs: Path = _SECURITY_FS, enabled: Path = _ENABLED) -> bool:
    """Report whether AppArmor is enabled in the kernel.

    Go: third_party/forked/libcontainer/apparmor
    """
    try:
        return security_fs.exists() and enabled.read_text().startswith("Y")
    except OSError:
        return False
