"""Bind and link block devices for pods, and keep the devices open with loop devices.

Go: pkg/volume/util/volumepathhandler
"""

from pkg.volume.util.volumepathhandler.volume_path_handler import (
    BlockVolumePathHandler,
    DeviceNotFoundError,
    VolumePathHandler,
)

__all__ = ["BlockVolumePathHandler", "DeviceNotFoundError", "VolumePathHandler"]
