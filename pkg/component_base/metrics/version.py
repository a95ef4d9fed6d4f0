"""Which build this is, as a metric.

Go: staging/src/k8s.io/component-base/metrics/version.go
"""

from __future__ import annotations

from pkg.component_base import version
from pkg.component_base.metrics import metrics
from pkg.component_base.metrics.metrics import StabilityLevel
from pkg.component_base.metrics.registry import KubeRegistry

_BUILD_INFO = metrics.new_gauge(
    "kubernetes_build_info",
    "Always 1, labelled with the release, what built it and what it runs on.",
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
    # DIVERGES: Python stands where upstream has its Go; a checkout knows neither commit nor date of a build.
    values = (info.major, info.minor, info.git_version, "", "", "", f"python{info.python_version}", "CPython")
    _BUILD_INFO.labels(*values, info.platform).set(1)
