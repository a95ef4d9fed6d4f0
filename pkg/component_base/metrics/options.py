"""Select which metrics are shown.

Go: k8s.io/component-base/metrics/options.go
"""

from __future__ import annotations

from pkg.component_base.metrics import registry


def set_show_hidden() -> None:
    """Show metrics that are hidden because of their deprecation too, for the rest of the process."""
    registry.show_hidden_metrics()
