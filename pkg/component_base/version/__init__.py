"""Define which release of Kubernetes this kubelet implements, and this project's own version.

Go: k8s.io/component-base/version
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

# This is the project's own version, which setup.cfg reads.
VERSION = "0.1.0"

# The node reports this version as kubeletVersion, and the version skew rules apply to it.
GIT_VERSION = "v1.36.2"


@dataclass(frozen=True, slots=True)
class Info:
    """Hold the version information that `--version=raw` prints and the log shows at start."""

    major: str
    minor: str
    git_version: str
    version: str
    python_version: str
    platform: str

    def __str__(self) -> str:
        return self.git_version


def get() -> Info:
    """Return the version of the running program."""
    major, minor = GIT_VERSION.removeprefix("v").split(".")[:2]
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return Info(
        major=major,
        minor=minor,
        git_version=GIT_VERSION,
        version=VERSION,
        python_version=platform.python_version(),
        platform=f"{platform.system().lower()}/{machine}",
    )
