"""Provide a fake handler of the paths of block volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.apimachinery import types
from pkg.volume.util.volumepathhandler.volume_path_handler import BlockVolumePathHandler


class FakeBlockVolumePathHandler:
    """Record mappings, and all calls as texts. Each device has one loop device.

    `linked` says whether the links and bind mounts that a test asks for exist.
    """

    def __init__(self, linked: bool = False) -> None:
        self.linked = linked
        self.refs: list[str] = []
        self.calls: list[str] = []
        # `mapped` holds the directory and the name of each link.
        self.mapped: set[tuple[str, str]] = set()

    def map_device(self, device_path: str, map_path: str, link_name: str, bind_mount: bool) -> None:
        self.calls.append(f"map {device_path} {map_path}/{link_name} {bind_mount}")
        self.mapped.add((map_path, link_name))

    def unmap_device(self, map_path: str, link_name: str, bind_mount: bool) -> None:
        self.calls.append(f"unmap {map_path}/{link_name} {bind_mount}")
        self.mapped.discard((map_path, link_name))

    def remove_map_path(self, map_path: str) -> None:
        self.calls.append(f"remove {map_path}")

    def is_symlink_exist(self, map_path: str) -> bool:
        return self.linked

    def is_device_bind_mount_exist(self, map_path: str) -> bool:
        return self.linked

    def get_device_bind_mount_refs(self, dev_path: str, map_path: str) -> list[str]:
        return self.refs

    def find_global_map_path_uuid_from_pod(self, plugin_dir: str, map_path: str, pod_uid: types.UID) -> str:
        return ""

    def attach_file_device(self, path: str) -> str:
        self.calls.append(f"attach {path}")
        return "/dev/loop0"

    def detach_file_device(self, path: str) -> None:
        self.calls.append(f"detach {path}")

    def get_loop_device(self, path: str) -> str:
        return "/dev/loop0"


if TYPE_CHECKING:
    _: BlockVolumePathHandler = FakeBlockVolumePathHandler()
