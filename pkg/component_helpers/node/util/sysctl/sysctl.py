"""Read and write /proc/sys, and normalize the two forms of a sysctl's name.

Go: k8s.io/component-helpers/node/util/sysctl/sysctl.go
"""

from __future__ import annotations

from pathlib import Path

SYSCTL_BASE = "/proc/sys"

# This parameter controls whether the kernel grants more memory than it may be able to provide.
VM_OVERCOMMIT_MEMORY = "vm/overcommit_memory"
VM_OVERCOMMIT_MEMORY_ALWAYS = 1
# This parameter controls what the kernel does when memory runs out.
VM_PANIC_ON_OOM = "vm/panic_on_oom"
VM_PANIC_ON_OOM_INVOKE_OOM_KILLER = 0
# This parameter is the number of seconds from a panic to the reboot.
KERNEL_PANIC = "kernel/panic"
KERNEL_PANIC_REBOOT_TIMEOUT = 10
# This parameter controls whether the kernel panics after an internal error.
KERNEL_PANIC_ON_OOPS = "kernel/panic_on_oops"
KERNEL_PANIC_ON_OOPS_ALWAYS = 1
# These parameters limit the number of root's keys, and the bytes in them.
ROOT_MAX_KEYS = "kernel/keys/root_maxkeys"
ROOT_MAX_KEYS_SETTING = 1_000_000
ROOT_MAX_BYTES = "kernel/keys/root_maxbytes"
ROOT_MAX_BYTES_SETTING = ROOT_MAX_KEYS_SETTING * 25

_SWAP = str.maketrans("./", "/.")


def normalize_name(name: str) -> str:
    """Return the dotted form: net/ipv6/conf/br0.7/mtu → net.ipv6.conf.br0/7.mtu."""
    for character in name:
        if character == ".":
            return name
        if character == "/":
            return name.translate(_SWAP)
    return name


def get_sysctl(name: str, root: str = SYSCTL_BASE) -> int:
    """Return a numeric parameter by its path; raise OSError or ValueError on failure."""
    return int(Path(root, name).read_text())


def set_sysctl(name: str, value: int, root: str = SYSCTL_BASE) -> None:
    """Set a numeric parameter by its path; raise OSError on failure."""
    Path(root, name).write_text(str(value))
