"""Sub-paths of volumes, bound so that a container cannot swap a link in under the kubelet.

Go: pkg/volume/util/subpath
"""

from pkg.volume.util.subpath.subpath import Interface, Subpath, Subpather

__all__ = ["Interface", "Subpath", "Subpather"]
