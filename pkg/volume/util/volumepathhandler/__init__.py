"""Where block volumes are bound and linked, and the loop devices that keep them open.

Go: pkg/volume/util/volumepathhandler
"""

from pkg.volume.util.volumepathhandler.volume_path_handler import (
    BlockVolumePathHandler,
    DeviceNotFoundError,
    VolumePathHandler,
)

__all__ = ["BlockVolumePathHandler", "DeviceNotFoundError", "VolumePathHandler"]
