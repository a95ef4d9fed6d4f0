"""Measure volumes that are directories of the node's file system.

Go: pkg/volume/metrics_du.go
"""

from __future__ import annotations

import dataclasses

from pkg.volume import metrics_errors
from pkg.volume.metrics_statfs import MetricsStatFS, binary
from pkg.volume.util import fs
from pkg.volume.volume import Metrics


class MetricsDu:
    """Measure the content of the directory at a path."""

    def __init__(self, path: str) -> None:
        self._path = path

    def get_metrics(self) -> Metrics:
        """Return the usage. Raise OSError or MetricsError."""
        if not self._path:
            raise metrics_errors.new_no_path_defined_error()
        usage = fs.disk_usage(self._path)
        of_file_system = MetricsStatFS(self._path).get_metrics()
        return dataclasses.replace(of_file_system, used=binary(usage.bytes), inodes_used=binary(usage.inodes))
