"""Show the build's version as a metric.

Go: k8s.io/component-base/metrics/version.go
"""

from __future__ import annotations

from pkg.component_base import version
from pkg.component_base.metrics import metrics
from pkg.component_base.metrics.metrics import StabilityLevel
from pkg.component_base.metrics.registry import KubeRegistry

_BUILD_INFO = metrics.new_gauge(
    "kubernetes_build_info",
    "Always 1; the labels show the release, the build and the platform.",
    (
        "major",
        "minor",
        "git_version",
        "git_commit",
        "git_tree_state",
        "build_date",
        "go_version",
        "compiler",
        "platform",
    ),
    level=StabilityLevel.BETA,
)


def register_build_info(registry: KubeRegistry) -> None:
    """Add the metric."""
    info = version.get()
    registry.must_register(_BUILD_INFO)
    # DIVERGES (platform): the build metric shows the version of Python as that of Go, and neither commit nor date.
    # Go: k8s.io/component-base/metrics/version.go, RegisterBuildInfo: it shows the Go version that compiled the binary,
    # the commit and the date.
    # Why: nothing is compiled; the code runs from the working tree or the installed package.
    # Test: registry_test.py:test_build_info_is_of_python
    values = (info.major, info.minor, info.git_version, "", "", "", f"python{info.python_version}", "CPython")
    _BUILD_INFO.labels(*values, info.platform).set(1)
