"""Manage cgroups for the kubelet itself, and for the processes on the node that belong to no pod.

Go: pkg/kubelet/cm/container_manager_linux.go (systemContainer, ensureSystemCgroups,
ensureProcessInContainerWithOOMScore)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kubelet.cm.cgroup_manager import CgroupManager
from kubelet.cm.helpers import get_container
from kubelet.cm.types import CgroupName
from kubelet.util import CGROUP_ROOT
from pkg import klog
from pkg.util import oom

# The number of the initial PID namespace is part of the kernel's interface.
_INIT_PID_NAMESPACE = "pid:[4026531836]"
# More attempts are needed because processes can start while others are moved.
_ATTEMPTS = 11


@dataclass(frozen=True, slots=True)
class SystemContainer:
    """Describe a cgroup that contains no pods."""

    name: str
    # This function moves the right processes into the cgroup. It raises OSError or LookupError.
    ensure_state: Callable[[], None]


def new_system_cgroups(name: str, cgroups: CgroupManager, proc: str = "/proc") -> SystemContainer:
    """Return the cgroup for processes that are in no cgroup. Raise ValueError for the root cgroup.

    Go: setupNode
    """
    if name == "/":
        raise ValueError('system container cannot be root ("/")')
    return SystemContainer(name, lambda: ensure_system_cgroups(_cgroup(name), cgroups, proc))


def new_kubelet_cgroups(
    name: str, oom_score_adj: int, cgroups: CgroupManager, root: str = CGROUP_ROOT, proc: str = "/proc"
) -> SystemContainer:
    """Return the cgroup for the kubelet alone."""
    pid = os.getpid()
    return SystemContainer(
        name, lambda: ensure_process_in_container_with_oom_score(pid, oom_score_adj, name, cgroups, root, proc)
    )


def _cgroup(name: str) -> CgroupName:
    """Return the name of a cgroup that is given as a path, whatever the cgroup driver is."""
    return CgroupName(tuple(part for part in name.split("/") if part))


def is_process_running_in_host(pid: int, proc: str = "/proc") -> bool:
    """Report whether the process runs in the host's PID namespace. Raise OSError.

    DIVERGES (safer): if the kubelet may not inspect process 1, it assumes that process 1 is in the initial PID
    namespace.
    Go: pkg/kubelet/cm/container_manager_linux.go, isProcessRunningInHost: it fails, and the kubelet gets no cgroup.
    Why: that namespace has a fixed number, and a kubelet with few permissions needs its cgroup too.
    Test: system_containers_test.py:test_who_may_not_look_at_the_first_process_knows_the_hosts_namespace
    """
    try:
        init = os.readlink(f"{proc}/1/ns/pid")
    except PermissionError:
        init = _INIT_PID_NAMESPACE
    except OSError as err:
        raise OSError(f"failed to find pid namespace of init process: {err}") from err
    try:
        return os.readlink(f"{proc}/{pid}/ns/pid") == init
    except OSError as err:
        raise OSError(f"failed to find pid namespace of process {pid}: {err}") from err


def ensure_process_in_container_with_oom_score(
    pid: int,
    oom_score_adj: int,
    name: str | None,
    cgroups: CgroupManager,
    root: str = CGROUP_ROOT,
    proc: str = "/proc",
) -> None:
    """Move the process into the named cgroup, if any, and set its OOM score. Raise OSError.

    Do nothing for a process that is in a container.
    """
    if not is_process_running_in_host(pid, proc):
        klog.v(2).info_s("PID is not running in the host namespace", pid=pid)
        return
    faults: list[str] = []
    if name is not None:
        try:
            found = get_container(root, proc, pid)
        except (OSError, LookupError) as err:
            faults.append(f"failed to find container of PID {pid}: {err}")
            found = ""
        if _cgroup(found) != _cgroup(name) or not found:
            try:
                cgroups.attach(_cgroup(name), pid)
            except OSError as err:
                faults.append(f'failed to move PID {pid} (in "{found}") to "{name}": {err}')
    klog.v(5).info_s("Attempting to apply oom_score_adj to process", oomScoreAdj=oom_score_adj, pid=pid)
    try:
        oom.OOMAdjuster(proc).apply_oom_score_adj(pid, oom_score_adj)
    except (OSError, ValueError) as err:
        faults.append(f"failed to apply oom score {oom_score_adj} to PID {pid}: {err}")
    if faults:
        raise OSError("; ".join(faults))


def ensure_system_cgroups(name: CgroupName, cgroups: CgroupManager, proc: str = "/proc") -> None:
    """Move all processes out of the root cgroup, except process 1 and kernel threads. Raise OSError.

    Kernel threads stay without limits because other processes depend on them.
    """
    top = cgroups.paths(CgroupName(()))[0]
    error: OSError | None = None
    for _ in range(_ATTEMPTS):
        found = [int(pid) for pid in Path(top, "cgroup.procs").read_text().split()]
        pids = [pid for pid in found if pid != 1 and not _is_kernel_pid(pid, proc)]
        if not pids:
            return
        klog.v(3).info_s("Moving non-kernel processes", pids=pids)
        for pid in pids:
            try:
                cgroups.attach(name, pid)
            except ProcessLookupError:
                continue
            except OSError as err:
                error = OSError(f'failed to move PID {pid} into the system container "/{"/".join(name)}": {err}')
    if error is not None:
        try:
            raise error
        finally:
            # The error's traceback refers to this frame, and this frame to the error. Without `del`, both would stay in
            # memory until garbage is collected.
            del error


def _is_kernel_pid(pid: int, proc: str) -> bool:
    """Report whether a process is a kernel thread: kernel threads have no executable file."""
    try:
        os.readlink(f"{proc}/{pid}/exe")
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
