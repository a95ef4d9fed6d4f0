"""How much room a file system has, and how much a directory takes.

Go: pkg/volume/util/fs
"""

from pkg.volume.util.fs.fs import FsInfo, UsageInfo, disk_usage, info, info_of_server, infos

__all__ = ["FsInfo", "UsageInfo", "disk_usage", "info", "info_of_server", "infos"]
