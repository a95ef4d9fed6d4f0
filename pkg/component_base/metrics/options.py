"""Which metrics are shown, by choice.

Go: staging/src/k8s.io/component-base/metrics/options.go
"""

from __future__ import annotations

from pkg.component_base import version
from pkg.component_base.metrics import registry


def validate_show_hidden_metrics_version(wanted: str, git_version: str = version.GIT_VERSION) -> None:
    """Raises ValueError unless `wanted` is the minor release before this one, or empty."""
    if not wanted:
        return
    major, minor = git_version.removeprefix("v").split(".")[:2]
    previous = f"{major}.{int(minor) - 1}"
    if wanted != previous:
        raise ValueError(f"must be omitted or have the value '{previous}'; only the previous minor version is allowed")


def set_show_hidden() -> None:
    """Show metrics too that are hidden because they were deprecated. Lasts as long as the process."""
    registry.show_hidden_metrics()
