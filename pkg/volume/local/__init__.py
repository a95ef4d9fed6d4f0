"""Directories and devices of the node that are persistent volumes.

Go: pkg/volume/local
"""

from pkg.volume.local.local import probe_volume_plugins

__all__ = ["probe_volume_plugins"]
