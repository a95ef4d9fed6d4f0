"""Which release of Kubernetes this kubelet speaks, and which release of this project it is.

Go: k8s.io/component-base/version
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

# This project's own version: setup.cfg reads it.
VERSION = "0.1.0"

# What the node reports as kubeletVersion: version skew rules are about this one.
GIT_VERSION = "v1.36.2"


@dataclass(frozen=True, slots=True)
class Info:
    """What `--version=raw` prints and the log shows at start."""

    major: str
    minor: str
    git_version: str
    version: str
    python_version: str
    platform: str

    def __str__(self) -> str:
        return self.git_version


def get() -> Info:
    """The version of the running program."""
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
