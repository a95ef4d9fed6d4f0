"""Sub-paths of volumes, bound so that a container cannot swap a link in under the kubelet.

Go: pkg/volume/util/subpath
"""

from pkg.volume.util.subpath.subpath import (
    CONTAINER_SUB_PATH_DIRECTORY_NAME,
    Interface,
    NotWithinVolumeError,
    Subpath,
    Subpather,
)

__all__ = ["CONTAINER_SUB_PATH_DIRECTORY_NAME", "Interface", "NotWithinVolumeError", "Subpath", "Subpather"]
