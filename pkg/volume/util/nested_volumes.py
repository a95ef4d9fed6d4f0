"""Find and create mount points inside a volume for other volumes of the pod.

Go: pkg/volume/util/nested_volumes.go
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator

from pkg import mount_utils
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.util import filesystem


def get_nested_mountpoints(name: str, base_dir: str, pod: v1.Pod) -> list[str]:
    """List the directories inside the volume on which containers of the pod mount other volumes.

    Raise ValueError for a mount path that leads out of the container.
    """
    found: list[str] = []
    for container, _ in podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS):
        # Sort the paths by component, so that whatever lies below a path follows that path.
        components = sorted(os.path.normpath(mount.mount_path).split("/") for mount in container.volume_mounts)
        paths = ["/".join(each) for each in components]
        mine = [os.path.normpath(mount.mount_path) for mount in container.volume_mounts if mount.name == name]
        for path in mine:
            # DIVERGES (safer): the kubelet rejects a mount path that is just "..", as it rejects those that begin with
            # "../".
            # Go: pkg/volume/util/nested_volumes.go, getNestedMountpoints: the Go kubelet rejects only the latter.
            # Why: a pod with a second mount path below ".." could make the kubelet create directories anywhere on the
            # node.
            # Test: util_test.py:test_mount_point_outside_of_the_container_is_refused
            if mount_utils.starts_with_backstep(path):
                raise ValueError(f"invalid container mount point {path}")
            found += _nested(path + "/", paths, bisect.bisect_right(components, path.split("/")))
    return found


def make_nested_mountpoints(name: str, base_dir: str, pod: v1.Pod) -> None:
    """Create the pod's nested mount points in base_dir. Raise ValueError or OSError."""
    for directory in get_nested_mountpoints(name, base_dir, pod):
        try:
            filesystem.mkdir_all(os.path.join(base_dir, directory), 0o755)
        except OSError as err:
            raise OSError(f"unable to create nested volume mountpoints: {err}") from err


def _nested(prefix: str, paths: list[str], first: int) -> Iterator[str]:
    """Yield the topmost paths below prefix, searching from index first.

    The search passes once over the sorted paths, because a pod may mount thousands of volumes on thousands of others.
    """
    last = None
    for index in range(first, len(paths)):
        path = paths[index]
        if not path.startswith(prefix):
            return
        if last is None or not path.startswith(last):
            last = f"{path}/"
            yield path.removeprefix(prefix)
