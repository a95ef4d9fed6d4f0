"""Find out whether the kernel may swap memory out.

Go: pkg/kubelet/util/swap/swap_util.go
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

from pkg import klog, mount_utils
from pkg.util import procfs

TMPFS_NOSWAP_OPTION = "noswap"
# The option has existed since this kernel version.
_TMPFS_NOSWAP_SUPPORT_KERNEL_VERSION = (6, 4)
_UID_MAP = Path("/proc/self/uid_map")


_lock = threading.Lock()
# The value is None until the result is known; _lock guards it.
_tmpfs_noswap_option_supported: bool | None = None


def is_swap_on(swaps: str = "/proc/swaps") -> bool:
    """Report whether the machine has a swap device or file. Raise OSError."""
    path = Path(swaps)
    # A kernel without swap lacks this file.
    return path.exists() and _is_swap_on_according_to_proc_swaps(procfs.read(path))


def _is_swap_on_according_to_proc_swaps(proc_swaps_content: str) -> bool:
    content = proc_swaps_content.strip()
    # The first line holds the column names.
    swap_on = "\n" in content
    if swap_on:
        klog.info_s("Swap is on", **{"/proc/swaps contents": content})
    return swap_on


def is_tmpfs_noswap_option_supported(mounter: mount_utils.Interface, mount_path: str) -> bool:
    """Report whether tmpfs supports the option noswap.

    The result is cached. On older kernels the function tries a mount below mount_path. If the mount fails for another
    reason, the result is False and is not cached.
    """
    global _tmpfs_noswap_option_supported
    with _lock:
        if _tmpfs_noswap_option_supported is None:
            _tmpfs_noswap_option_supported = _try_tmpfs_noswap_option(mounter, mount_path)
        return _tmpfs_noswap_option_supported is True


def _try_tmpfs_noswap_option(mounter: mount_utils.Interface, mount_path: str) -> bool | None:
    """Report whether tmpfs supports the option; return None if that is unknown, as on a full disk."""
    if _running_in_user_ns():
        klog.info_s("Running under a user namespace - tmpfs noswap is not supported")
        return False
    if _kernel_version() >= _TMPFS_NOSWAP_SUPPORT_KERNEL_VERSION:
        return True
    try:
        directory = tempfile.mkdtemp(prefix="tmpfs-noswap-test-", dir=mount_path)
    except OSError as err:
        klog.info_s(
            "error creating dir to test if tmpfs noswap is enabled. Assuming not supported",
            mountPath=mount_path,
            error=err,
        )
        return None
    try:
        mounter.mount_sensitive_without_systemd("tmpfs", directory, "tmpfs", [TMPFS_NOSWAP_OPTION], [])
    except OSError as err:
        klog.info_s("error mounting tmpfs with the noswap option. Assuming not supported", error=err)
        # An error with an errno does not come from mount(8): mount(8) could not be run.
        return False if err.errno is None else None
    finally:
        # A failed clean-up leaves files behind, but must not make the volume fail.
        mount_utils.clean_after_failed_mount(directory, mounter)
    return True


def _running_in_user_ns() -> bool:
    """Report whether the user ids differ from those of the machine."""
    try:
        return procfs.read(_UID_MAP).split() != ["0", "0", str(2**32 - 1)]
    except FileNotFoundError:
        return False


def _kernel_version() -> tuple[int, int]:
    major, minor, *_ = os.uname().release.split(".")
    return int(major), int("".join(filter(str.isdigit, minor)) or 0)
