"""Serve image volumes.

Go: pkg/volume/image
"""

from pkg.volume.image.image import probe_volume_plugins

__all__ = ["probe_volume_plugins"]
