"""Serve hostPath volumes, which are files and directories of the host.

Go: pkg/volume/hostpath
"""

from pkg.volume.hostpath.host_path import probe_volume_plugins

__all__ = ["probe_volume_plugins"]
