"""Why a volume cannot say how full it is.

Go: pkg/volume/metrics_errors.go
"""

from __future__ import annotations

import enum


class ErrCode(enum.IntEnum):
    """Kinds of errors."""

    NOT_SUPPORTED = 1
    NO_PATH_DEFINED = 2
    FS_INFO_FAILED = 3


class MetricsError(Exception):
    """A volume has no metrics, for a reason that tells whether that is a fault."""

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
    """Whether the volume is of a kind that has no metrics."""
    return isinstance(err, MetricsError) and err.code is ErrCode.NOT_SUPPORTED
