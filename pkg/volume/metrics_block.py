"""For volumes that pods use as devices.

Go: pkg/volume/metrics_block.go
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from pkg.volume import metrics_errors
from pkg.volume.metrics_statfs import binary
from pkg.volume.volume import Metrics


class MetricsBlock:
    """Knows the size of a device; how much of it is in use, only who wrote to it can tell."""

    def __init__(self, device: str) -> None:
        self._device = device

    def get_metrics(self) -> Metrics:
        """Raises OSError and MetricsError."""
        # Loaded when the first volume is measured.
        from kubelet.server import metrics as servermetrics

        if not self._device:
            raise metrics_errors.new_no_path_defined_error()
        with servermetrics.collect_volume_stat_cal_duration("block"):
            return Metrics(time=datetime.now(UTC).replace(microsecond=0), capacity=binary(self._get_block_info()))

    def _get_block_info(self) -> int:
        """The size in bytes."""
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
