"""Bind sub-paths of volumes so that a container cannot divert them with a link.

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
