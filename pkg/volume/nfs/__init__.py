"""Serve nfs volumes, which the node's mount.nfs mounts for each pod.

Go: pkg/volume/nfs
"""

from pkg.volume.nfs.nfs import probe_volume_plugins

__all__ = ["probe_volume_plugins"]
