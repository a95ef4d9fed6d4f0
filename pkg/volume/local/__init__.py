"""Serve local volumes, which are directories and devices of the node.

Go: pkg/volume/local
"""

from pkg.volume.local.local import probe_volume_plugins

__all__ = ["probe_volume_plugins"]
