"""Define the errors of volumes that cannot report their usage.

Go: pkg/volume/metrics_errors.go
"""

from __future__ import annotations

import enum


class ErrCode(enum.IntEnum):
    """Name the kinds of errors."""

    NOT_SUPPORTED = 1
    NO_PATH_DEFINED = 2
    FS_INFO_FAILED = 3


class MetricsError(Exception):
    """Signal that a volume has no metrics. The code says whether that is a fault."""

    def __init__(self, code: ErrCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def new_not_supported_error() -> MetricsError:
    return MetricsError(ErrCode.NOT_SUPPORTED, "metrics are not supported for MetricsNil Volumes")


def new_not_implemented_error(reason: str) -> MetricsError:
    return MetricsError(ErrCode.NOT_SUPPORTED, f"metrics support is not implemented: {reason}")


def new_not_supported_error_with_driver_name(name: str) -> MetricsError:
    return MetricsError(ErrCode.NOT_SUPPORTED, f"metrics are not supported for {name} volumes")


def new_no_path_defined_error() -> MetricsError:
    return MetricsError(ErrCode.NO_PATH_DEFINED, "no path defined for disk usage metrics.")


def new_fs_info_failed_error(err: Exception) -> MetricsError:
    return MetricsError(ErrCode.FS_INFO_FAILED, f"failed to get FsInfo due to error {err}")


def is_not_supported(err: Exception | None) -> bool:
    """Report whether the error means that this kind of volume has no metrics."""
    return isinstance(err, MetricsError) and err.code is ErrCode.NOT_SUPPORTED
