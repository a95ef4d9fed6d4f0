"""Provide a registry that hides metrics some releases after their deprecation, unless they are requested.

Go: k8s.io/component-base/metrics/registry.go
"""

from __future__ import annotations

import threading
from weakref import WeakSet

import prometheus_client
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from pkg.component_base import version
from pkg.component_base.metrics import metrics
from pkg.component_base.metrics.metrics import StabilityLevel

_REGISTERED_METRICS_TOTAL = metrics.new_counter(
    "registered_metrics_total",
    "Registered metrics, by stability level and by the release that deprecated them.",
    ["stability_level", "deprecated_version"],
    level=StabilityLevel.BETA,
)
_HIDDEN_METRICS_TOTAL = metrics.new_counter(
    "hidden_metrics_total", "Metrics that are not shown because they are deprecated.", level=StabilityLevel.BETA
)
# `_DEPRECATION_PERIODS` is the number of minor releases for which a deprecated metric is still shown.
_DEPRECATION_PERIODS = {StabilityLevel.STABLE: 3, StabilityLevel.BETA: 1}

_lock = threading.Lock()  # The lock guards _registries and _show_hidden.
_registries: WeakSet[KubeRegistry] = WeakSet()
_show_hidden = False


def should_hide(level: StabilityLevel, current_version: str, deprecated_version: str) -> bool:
    """Report whether a metric that was deprecated in this release is now hidden.

    Versions have the form MAJOR.MINOR.
    """
    current, deprecated = _parse(current_version), _parse(deprecated_version)
    return (deprecated[0], deprecated[1] + _DEPRECATION_PERIODS.get(level, 0)) <= current


class KubeRegistry:
    """Hold the metrics for one page.

    All methods are thread-safe.
    """

    def __init__(self, git_version: str = version.GIT_VERSION) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self._version = ".".join(git_version.removeprefix("v").split(".")[:2])
        self._hidden: list[Collector] = []  # The module's _lock guards this list.
        self._labelled: list[MetricWrapperBase] = []
        with _lock:
            _registries.add(self)

    def must_register(self, *collectors: Collector) -> None:
        """Add metrics; raise ValueError if the registry already has their names."""
        for collector in collectors:
            stability = metrics.stability_of(collector)
            if stability is not None:
                if self._is_hidden(collector, stability):
                    _HIDDEN_METRICS_TOTAL.inc()
                    continue
                _REGISTERED_METRICS_TOTAL.labels(stability.level, stability.deprecated_version).inc()
            self.registry.register(collector)
            if isinstance(collector, MetricWrapperBase) and collector._labelnames:
                self._labelled.append(collector)

    def reset(self) -> None:
        """Forget the values of all metrics that have labels."""
        for metric in self._labelled:
            metric.clear()

    def _is_hidden(self, collector: Collector, stability: metrics.Stability) -> bool:
        """Report whether the metric is hidden for now; if so, remember it."""
        deprecated = stability.deprecated_version
        with _lock:
            if _show_hidden or not deprecated or not should_hide(stability.level, self._version, deprecated):
                return False
            self._hidden.append(collector)
            return True

    def unregister(self, *collectors: Collector) -> None:
        """Remove metrics; raise KeyError if the registry does not have them."""
        for collector in collectors:
            self.registry.unregister(collector)

    def take_hidden_locked(self) -> list[Collector]:
        """Return the metrics hidden so far, so that they can be registered again."""
        hidden, self._hidden = self._hidden, []
        return hidden

    def expose(self) -> bytes:
        """Return all metrics in the Prometheus text format; the content type is `metrics.CONTENT_TYPE`."""
        return metrics.expose(self.registry)


def show_hidden_metrics() -> None:
    """Show deprecated metrics from now on, in all registries.

    Go: options.go, SetShowHidden
    """
    global _show_hidden
    with _lock:
        _show_hidden = True
        hidden = [(registry, registry.take_hidden_locked()) for registry in _registries]
    for registry, collectors in hidden:
        registry.must_register(*collectors)


def register_meta_metrics(registry: KubeRegistry) -> None:
    """Add the metrics about metrics."""
    registry.must_register(_REGISTERED_METRICS_TOTAL, _HIDDEN_METRICS_TOTAL)


def _parse(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
