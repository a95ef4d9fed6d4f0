"""Grow file systems to the size of their devices.

Go: k8s.io/mount-utils/resizefs_linux.go
"""

from __future__ import annotations

from pkg import klog
from pkg.mount_utils.mount import get_disk_format
from pkg.util import exec as utilexec


class ResizeFs:
    """Grow file systems. All methods raise OSError with the output of the tools."""

    def __init__(self, executor: utilexec.Interface) -> None:
        self._exec = executor

    def resize(self, device_path: str, device_mount_path: str) -> bool:
        """Grow the file system, and report whether that was done. A device without a file system needs nothing."""
        match file_system := self._disk_format(device_path):
            case "":
                return False
            case "ext3" | "ext4":
                return self.ext_resize(device_path)
            case "xfs":
                return self.xfs_resize(device_mount_path)
            case "btrfs":
                return self.btrfs_resize(device_mount_path)
        raise OSError(
            f"ResizeFS.Resize - resize of format {file_system} is not supported for device {device_path} mounted at "
            f"{device_mount_path}"
        )

    def ext_resize(self, device_path: str) -> bool:
        return self._resize(["resize2fs", device_path], device_path)

    def xfs_resize(self, device_mount_path: str) -> bool:
        return self._resize(["xfs_growfs", "-d", device_mount_path], device_mount_path)

    def btrfs_resize(self, device_mount_path: str) -> bool:
        return self._resize(["btrfs", "filesystem", "resize", "max", device_mount_path], device_mount_path)

    def _resize(self, command: list[str], path: str) -> bool:
        try:
            self._exec.run(command)
        except utilexec.CodeExitError as err:
            output = err.output.decode(errors="replace")
            raise OSError(f"resize of device {path} failed: {err}. {command[0]} output: {output}") from err
        klog.v(2).info_s("Device resized successfully", path=path)
        return True

    def need_resize(self, device_path: str, device_mount_path: str) -> bool:
        """Report whether `resize` may have to grow the file system."""
        if self.get_device_ro(device_path):
            klog.v(3).info_s("ResizeFs.needResize - no resize possible since filesystem is readonly", path=device_path)
            return False
        match file_system := self._disk_format(device_path):
            case "":
                return False
            case "ext3" | "ext4" | "xfs":
                # The tools of these file systems determine by themselves whether there is anything to do.
                return True
            case "btrfs":
                block_size, size = self.get_btrfs_size(device_path)
                return self.get_device_size(device_path) > size + block_size
        raise OSError(
            f"could not parse fs info of given filesystem format: {file_system}. "
            "Supported fs types are: xfs, ext3, ext4"
        )

    def _disk_format(self, device_path: str) -> str:
        try:
            return get_disk_format(self._exec, device_path)
        except (utilexec.CodeExitError, OSError) as err:
            raise OSError(f"ResizeFS.Resize - error checking format for device {device_path}: {err}") from err

    def get_device_size(self, device_path: str) -> int:
        """Return the size in bytes."""
        output = self._ask(["blockdev", "--getsize64", device_path], f"failed to read size of device {device_path}")
        if not output.isascii() or not output.isdigit():
            raise OSError(f"failed to parse size of device {device_path} {output}")
        return int(output)

    def get_device_ro(self, device_path: str) -> bool:
        output = self._ask(
            ["blockdev", "--getro", device_path], f"failed to get readonly bit from device {device_path}"
        )
        if output not in ("0", "1"):
            raise OSError(f"failed readonly device check. Expected 1 or 0, got '{output}'")
        return output == "1"

    def get_btrfs_size(self, device_path: str) -> tuple[int, int]:
        """Return the sizes in bytes of a block and of the file system."""
        command = ["btrfs", "inspect-internal", "dump-super", "-f", device_path]
        output = self._ask(command, f"failed to read size of filesystem on {device_path}")
        block_size, total = parse_btrfs_info_output(output, "sectorsize", "total_bytes")
        if block_size == 0:
            raise OSError(f"could not find block size of device {device_path}")
        if total == 0:
            raise OSError(f"could not find total size of device {device_path}")
        return block_size, total

    def _ask(self, command: list[str], failure: str) -> str:
        try:
            return self._exec.run(command).decode(errors="replace").strip()
        except utilexec.CodeExitError as err:
            output = err.output.decode(errors="replace").strip()
            raise OSError(f"{failure}: {err}: {output}") from err


def parse_btrfs_info_output(output: str, block_size_key: str, total_bytes_key: str) -> tuple[int, int]:
    """Return the two numbers in the tool's output; 0 for a missing one. Raise OSError."""
    found: dict[str, int] = {}
    for line in output.lower().split("\n"):
        match line.split():
            case [key, value] if key in (block_size_key, total_bytes_key):
                try:
                    found[key] = int(value)
                except ValueError as err:
                    raise OSError(f"failed to parse {key} {value}: {err}") from err
    return found.get(block_size_key, 0), found.get(total_bytes_key, 0)
