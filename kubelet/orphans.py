"""Find out what the directories of orphaned pods hold, and why they still exist.

Go has no counterpart.
"""

from __future__ import annotations

import enum
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from kubelet import kubeletconfig
from pkg import klog, mount_utils
from pkg.apimachinery import types
from pkg.util import filetree, mountholders, removeall

# A message names this many files, and counts up to this many before it says "or more".
_NAMED = 3
_COUNTED = 1000


class Kind(enum.StrEnum):
    """List what prevents the removal of a directory."""

    # Something is mounted in the directory. The mount may be in use, or may be the only access to data.
    MOUNTED = "mounted"
    # Volumes of the pod hold files, which may be all that is left of its data.
    DATA = "data"
    # Nothing prevents the removal: the kubelet removes the directory at its next attempt.
    LEFTOVER = "leftover"


@dataclass(slots=True)
class Orphan:
    """Describe a directory below pods/ whose pod no longer exists."""

    pod_uid: types.UID
    path: str
    kind: Kind
    # The reasons are texts, each for its own line.
    reasons: list[str] = field(default_factory=list)


def inspect(pods_dir: str, pod_uid: types.UID, proc: str = mountholders.PROC) -> Orphan:
    """Inspect the directory, but never the inside of a mount. Raise OSError on failure."""
    # The kernel's list of mounts has no symbolic links in its paths.
    path = os.path.join(os.path.realpath(pods_dir), pod_uid)
    mounts = mountholders.mounts_at_or_below([path], os.path.join(proc, "self", "mountinfo"))
    if mounts:
        return Orphan(pod_uid, path, Kind.MOUNTED, [_describe_mount(mount, proc) for mount in mounts])
    reasons = [*_volumes_with_files(path), *_links_to_devices(path)]
    if reasons:
        return Orphan(pod_uid, path, Kind.DATA, reasons)
    return Orphan(pod_uid, path, Kind.LEFTOVER, ["it holds nothing except what the kubelet itself created"])


def remove(mounter: mount_utils.Interface, orphan: Orphan) -> None:
    """Remove the directory and everything in it.

    Raise removeall.MountedError before anything is removed, or OSError.
    """
    removeall.remove_all_one_filesystem(mounter, orphan.path)


def _describe_mount(mount: mount_utils.MountInfo, proc: str) -> str:
    text = f"{mount.mount_point} is mounted ({mount.fs_type} from {mount.source})"
    holders = mountholders.find_holders([mount], proc)
    return f"{text}, held by {', '.join(str(holder) for holder in holders)}" if holders else text


def _volumes_with_files(pod_dir: str) -> Iterator[str]:
    volumes = os.path.join(pod_dir, kubeletconfig.DEFAULT_KUBELET_VOLUMES_DIR_NAME)
    for plugin, plugin_path in _directories(volumes):
        for name, path in _directories(plugin_path):
            yield from _describe_files(f"volume {name} ({plugin.replace('~', '/')})", path)
    for name, path in _directories(os.path.join(pod_dir, kubeletconfig.DEFAULT_KUBELET_VOLUME_SUBPATHS_DIR_NAME)):
        # The files below are the targets of sub-paths' bind mounts; if the sub-path is a file, its target is an empty
        # file.
        yield from _describe_files(f"sub-path of volume {name}", path, empty_too=False)


def _describe_files(what: str, path: str, empty_too: bool = True) -> Iterator[str]:
    files = list(islice(_files(path, empty_too), _COUNTED))
    if not files:
        return
    count = f"{_COUNTED} files or more" if len(files) == _COUNTED else f"{len(files)} file{'s'[: len(files) > 1]}"
    named = ", ".join(sorted(files)[:_NAMED])
    yield f"{what} still holds {count}: {named}{', ...' if len(files) > _NAMED else ''}"


def _files(path: str, empty_too: bool) -> Iterator[str]:
    """Yield the files below path, with paths relative to it; skip what cannot be read."""
    for directory, entry in filetree.walk(path, on_error=_log_unreadable):
        if entry.is_dir(follow_symlinks=False):
            continue
        if empty_too or entry.stat(follow_symlinks=False).st_size > 0:
            yield os.path.relpath(directory.short_path(entry.name), path)


def _log_unreadable(err: OSError) -> None:
    klog.v(4).info_s("Directory of an orphaned pod cannot be read", err=err)


def _links_to_devices(pod_dir: str) -> Iterator[str]:
    devices = os.path.join(pod_dir, kubeletconfig.DEFAULT_KUBELET_VOLUME_DEVICES_DIR_NAME)
    for plugin, plugin_path in _directories(devices):
        for name in sorted(os.listdir(plugin_path)):
            path = os.path.join(plugin_path, name)
            if stat.S_ISLNK(os.lstat(path).st_mode):
                yield f"block volume {name} ({plugin.replace('~', '/')}) is still linked to {os.readlink(path)}"


def _directories(path: str) -> list[tuple[str, str]]:
    """Return the names and paths of the directories in a directory; empty if it does not exist."""
    try:
        with os.scandir(path) as entries:
            return sorted((entry.name, entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
