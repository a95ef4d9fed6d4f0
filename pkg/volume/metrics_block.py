"""Measure volumes that pods use as block devices.

Go: pkg/volume/metrics_block.go
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from pkg.volume import metrics_errors
from pkg.volume.metrics_statfs import binary
from pkg.volume.volume import Metrics


class MetricsBlock:
    """Return the size of a device. Its usage is known only to the program that writes to it."""

    def __init__(self, device: str) -> None:
        self._device = device

    def get_metrics(self) -> Metrics:
        """Return the size. Raise OSError or MetricsError."""
        # The module is loaded when the first volume is measured.
        from kubelet.server import metrics as servermetrics

        if not self._device:
            raise metrics_errors.new_no_path_defined_error()
        with servermetrics.collect_volume_stat_cal_duration("block"):
            return Metrics(time=datetime.now(UTC).replace(microsecond=0), capacity=binary(self._get_block_info()))

    def _get_block_info(self) -> int:
        """Return the size in bytes."""
        try:
            fd = os.open(self._device, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as err:
            raise OSError(err.errno, f'unable to open device "{self._device}": {err.strerror}') from err
        try:
            return os.lseek(fd, 0, os.SEEK_END)
        except OSError as err:
            raise OSError(err.errno, f'failed to detect size of "{self._device}": {err.strerror}') from err
        finally:
            os.close(fd)
