"""Questions about files of the host.

Go: pkg/volume/util/hostutil
"""

from pkg.volume.util.hostutil.hostutil import FileType, HostUtil, HostUtils

__all__ = ["FileType", "HostUtil", "HostUtils"]
