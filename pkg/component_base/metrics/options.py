"""Which metrics are shown, by choice.

Go: k8s.io/component-base/metrics/options.go
"""

from __future__ import annotations

from pkg.component_base.metrics import registry


def set_show_hidden() -> None:
    """Show metrics too that are hidden because they were deprecated. Lasts as long as the process."""
    registry.show_hidden_metrics()
