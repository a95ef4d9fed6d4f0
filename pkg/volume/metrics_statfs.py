"""Measure volumes that have a file system of their own.

Go: pkg/volume/metrics_statfs.go
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from pkg.apimachinery.api import resource
from pkg.volume import metrics_errors
from pkg.volume.util import fs
from pkg.volume.volume import Metrics


class MetricsStatFS:
    """Measure the file system at a path with fs.info, or with the given function."""

    def __init__(self, path: str, ask: Callable[[str], fs.FsInfo] | None = None) -> None:
        self._path = path
        self._ask = ask or fs.info

    def get_metrics(self) -> Metrics:
        """Return the usage. Raise MetricsError, also if a file server does not respond in time."""
        # The module is loaded when the first volume is measured.
        from kubelet.server import metrics as servermetrics

        if not self._path:
            raise metrics_errors.new_no_path_defined_error()
        try:
            with servermetrics.collect_volume_stat_cal_duration("statfs"):
                info = self._ask(self._path)
        except OSError as err:
            raise metrics_errors.new_fs_info_failed_error(err) from err
        return Metrics(
            time=datetime.now(UTC).replace(microsecond=0),
            available=binary(info.available),
            capacity=binary(info.capacity),
            used=binary(info.usage),
            inodes=binary(info.inodes),
            inodes_free=binary(info.inodes_free),
            inodes_used=binary(info.inodes_used),
        )


def binary(value: int) -> resource.Quantity:
    return resource.new_quantity(value, resource.Format.BINARY_SI)
