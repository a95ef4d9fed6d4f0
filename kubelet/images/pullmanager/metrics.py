"""Define metrics of the number of pull records and of the results of checks.

Go: pkg/kubelet/images/pullmanager/metrics.go
"""

from __future__ import annotations

import enum

from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry


class MustAttemptImagePullResult(enum.Enum):
    """Represent whether a pod may use an image, and why."""

    CREDENTIAL_POLICY_ALLOWED = "credentialPolicyAllowed"
    CREDENTIAL_RECORD_FOUND = "credentialRecordFound"
    MUST_AUTHENTICATE = "mustAuthenticate"
    ERROR = "error"


FS_PULL_INTENTS_SIZE = metrics.new_gauge("kubelet_imagemanager_ondisk_pullintents", "Pull intents on disk.")
FS_PULLED_RECORDS_SIZE = metrics.new_gauge("kubelet_imagemanager_ondisk_pulledrecords", "Pull records on disk.")
MUST_PULL_CHECKS_TOTAL = metrics.new_counter(
    "kubelet_imagemanager_image_mustpull_checks_total",
    "Checks whether a pod may use a present image without authenticating again.",
    ["result"],
)

_register = legacyregistry.Once(FS_PULL_INTENTS_SIZE, FS_PULLED_RECORDS_SIZE, MUST_PULL_CHECKS_TOTAL)


def register_metrics() -> None:
    """Register the metrics. Later calls do nothing."""
    _register()


def record_must_attempt_image_pull_result(result: MustAttemptImagePullResult) -> None:
    MUST_PULL_CHECKS_TOTAL.labels(result.value).inc()
