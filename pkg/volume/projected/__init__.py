"""Serve projected volumes, which combine several sources into one set of files.

Go: pkg/volume/projected
"""

from pkg.volume.projected.projected import probe_volume_plugins

__all__ = ["probe_volume_plugins"]
