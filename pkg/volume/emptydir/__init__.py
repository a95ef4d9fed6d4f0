"""Serve emptyDir volumes, which live as long as their pod.

Go: pkg/volume/emptydir
"""

from pkg.volume.emptydir.empty_dir import probe_volume_plugins

__all__ = ["probe_volume_plugins"]
