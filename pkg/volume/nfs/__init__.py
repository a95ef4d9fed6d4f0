"""Directories of NFS servers, mounted for each pod by the node's mount.nfs.

Go: pkg/volume/nfs
"""

from pkg.volume.nfs.nfs import probe_volume_plugins

__all__ = ["probe_volume_plugins"]
