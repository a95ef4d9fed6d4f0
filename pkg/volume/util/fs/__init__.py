"""Measure how much space file systems have, and how much space directories use.

Go: pkg/volume/util/fs
"""

from pkg.volume.util.fs.fs import FsInfo, UsageInfo, disk_usage, info, info_of_server, infos

__all__ = ["FsInfo", "UsageInfo", "disk_usage", "info", "info_of_server", "infos"]
