"""Define metrics of how often containers needed an image and whether it had to be pulled.

Go: pkg/kubelet/images/metrics.go
"""

from __future__ import annotations

from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

ENSURE_IMAGE_REQUESTS_COUNTER = metrics.new_counter(
    "kubelet_image_manager_ensure_image_requests_total",
    "Requests for images, by pull policy, by presence on the node, and by whether a pull was required.",
    ["pull_policy", "present_locally", "pull_required"],
)

_register = legacyregistry.Once(ENSURE_IMAGE_REQUESTS_COUNTER)


def register_metrics() -> None:
    """Register the metrics. Later calls do nothing."""
    _register()


def record_ensure_image_request(
    pull_policy: str, image_present_locally: bool | None, image_pull_required: bool | None
) -> None:
    """Count a request for an image. None means that the value is unknown."""
    ENSURE_IMAGE_REQUESTS_COUNTER.labels(
        pull_policy.lower(), _text(image_present_locally), _text(image_pull_required)
    ).inc()


def _text(value: bool | None) -> str:
    return "unknown" if value is None else str(value).lower()
