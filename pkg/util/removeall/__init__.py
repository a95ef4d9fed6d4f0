"""Remove directory trees without entering another file system.

Go: pkg/util/removeall
"""

from pkg.util.removeall.removeall import (
    MountedError,
    remove,
    remove_all_one_filesystem,
    remove_dirs_one_filesystem,
)

__all__ = ["MountedError", "remove", "remove_all_one_filesystem", "remove_dirs_one_filesystem"]
