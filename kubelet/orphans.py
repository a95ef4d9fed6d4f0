"""Directories of pods that nobody knows any more: what is in them, and why they are still there.

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

# How many files a message names, and how many are counted before it says "or more".
_NAMED = 3
_COUNTED = 1000


class Kind(enum.StrEnum):
    """What stands in the way of removing the directory."""

    # Something is mounted in it, which may be the only way to data, or be in use.
    MOUNTED = "mounted"
    # Volumes of the pod hold files, which may be all that is left of its data.
    DATA = "data"
    # Nothing: the kubelet removes it when it next looks.
    LEFTOVER = "leftover"


@dataclass(slots=True)
class Orphan:
    """A directory below pods/ whose pod is gone."""

    pod_uid: types.UID
    path: str
    kind: Kind
    # In words, each on a line of its own.
    reasons: list[str] = field(default_factory=list)


def inspect(pods_dir: str, pod_uid: types.UID, proc: str = mountholders.PROC) -> Orphan:
    """Look into the directory, but never into a mount. Raises OSError."""
    # The kernel's list of mounts knows no links.
    path = os.path.join(os.path.realpath(pods_dir), pod_uid)
    mounts = mountholders.mounts_at_or_below([path], os.path.join(proc, "self", "mountinfo"))
    if mounts:
        return Orphan(pod_uid, path, Kind.MOUNTED, [_describe_mount(mount, proc) for mount in mounts])
    reasons = [*_volumes_with_files(path), *_links_to_devices(path)]
    if reasons:
        return Orphan(pod_uid, path, Kind.DATA, reasons)
    return Orphan(pod_uid, path, Kind.LEFTOVER, ["nothing is left in it but what the kubelet itself made"])


def remove(mounter: mount_utils.Interface, orphan: Orphan) -> None:
    """Remove the directory with all that is in it.

    Raises removeall.MountedError before anything is removed, and OSError.
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
        # What sub-paths were bound to: empty files, where they were files.
        yield from _describe_files(f"sub-path of volume {name}", path, empty_too=False)


def _describe_files(what: str, path: str, empty_too: bool = True) -> Iterator[str]:
    files = list(islice(_files(path, empty_too), _COUNTED))
    if not files:
        return
    count = f"{_COUNTED} files or more" if len(files) == _COUNTED else f"{len(files)} file{'s'[: len(files) > 1]}"
    named = ", ".join(sorted(files)[:_NAMED])
    yield f"{what} still holds {count}: {named}{', ...' if len(files) > _NAMED else ''}"


def _files(path: str, empty_too: bool) -> Iterator[str]:
    """The files below path, each by its path from there; what cannot be read is left out."""
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
    """Names and paths of the directories in a directory, none if that is not there."""
    try:
        with os.scandir(path) as entries:
            return sorted((entry.name, entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
