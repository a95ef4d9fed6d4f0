"""Serve downwardAPI volumes, which hold fields of the pod as files.

Go: pkg/volume/downwardapi
"""

from pkg.volume.downwardapi.downwardapi import collect_data, probe_volume_plugins

__all__ = ["collect_data", "probe_volume_plugins"]
