"""Define what the managers of cgroup versions 1 and 2 share: names for either driver, and how settings are written.

Go: pkg/kubelet/cm/cgroup_manager_linux.go
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from kubelet import metrics
from kubelet.cm.systemd import (
    Manager,
    Property,
    common_properties,
    round_quota,
    slice_properties,
    unit_and_parent,
)
from kubelet.cm.types import CgroupName, InvalidCgroupError, ResourceConfig
from pkg import klog
from pkg.util import filetree, procfs

SYSTEMD = "systemd"
# The kernel refuses to remove a cgroup (EBUSY) until the last of its killed processes is gone. REMOVE_TRIES is the
# number of attempts to remove a cgroup; REMOVE_DELAY is the wait after the first attempt, in seconds, which doubles
# after each.
REMOVE_TRIES = 6
REMOVE_DELAY = 0.01
# NO_LIMIT is the number that stands for "max", the absence of a limit, in a file of cgroup version 2.
NO_LIMIT = -1


def to_systemd(name: CgroupName) -> str:
    """Return the path of a cgroup's slice.

    For kubepods/burstable/podX this is /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice.
    """
    parts = [part.replace("-", "_") for part in name]
    slices = ["-".join(parts[: i + 1]) + ".slice" for i in range(len(parts))]
    return "/" + "/".join(slices)


def is_systemd_style_name(name: str) -> bool:
    """Report whether a cgroup's path is the path of a slice."""
    return name.endswith(".slice")


def parse_systemd_to_cgroup_name(name: str) -> CgroupName:
    """Return the cgroup name of a slice's path: kubepods/podX for /kubepods.slice/kubepods-podX.slice."""
    unit = name.rpartition("/")[2].removesuffix(".slice")
    return CgroupName(tuple(part.replace("_", "-") for part in unit.split("-")))


def parse_cgroup_name(name: str) -> CgroupName:
    """Return the name of a cgroup, given its path in the form of either driver.

    Go: CgroupName, ParseCgroupfsToCgroupName
    """
    if is_systemd_style_name(name):
        return parse_systemd_to_cgroup_name(name)
    return CgroupName(tuple(part for part in name.split("/") if part))


def last_part_of_slice(unit: str) -> str:
    """Return the last part of a slice's name, without the suffix, as a component of a CgroupName."""
    return unit.rsplit("-", 1)[-1].replace("_", "-")


class CgroupCommon(ABC):
    """Implement what both cgroup versions share: names, one directory for each cgroup in each hierarchy, and systemd.

    With the systemd driver, systemd learns of each cgroup first. The manager then writes the settings to the cgroup
    itself too, because systemd has no property for some of them, or is too old to know it.
    """

    def __init__(self, driver: str, hierarchies: list[str], systemd: Manager | None) -> None:
        self._driver = driver
        self._hierarchies = hierarchies
        # `_systemd` is None with the cgroupfs driver, and where the caller needs only names.
        self._systemd = systemd if driver == SYSTEMD else None

    def name(self, name: CgroupName) -> str:
        return to_systemd(name) if self._driver == SYSTEMD else "/" + "/".join(name)

    def cgroup_name(self, name: str) -> CgroupName:
        if self._driver == SYSTEMD:
            return parse_systemd_to_cgroup_name(name)
        return CgroupName(tuple(part for part in name.split("/") if part))

    def paths(self, name: CgroupName) -> list[str]:
        return [hierarchy + self.name(name) for hierarchy in self._hierarchies]

    @abstractmethod
    def version(self) -> int: ...

    @abstractmethod
    def validate(self, name: CgroupName) -> None: ...

    def exists(self, name: CgroupName) -> bool:
        try:
            self.validate(name)
        except InvalidCgroupError:
            return False
        return True

    def create(self, name: CgroupName, config: ResourceConfig) -> None:
        with metrics.CGROUP_MANAGER_DURATION.labels("create").time():
            if self._systemd is not None:
                unit, parent = unit_and_parent(self.name(name))
                self._systemd.start_slice(unit, slice_properties(unit, parent, self.version()))
            try:
                self._create_directories(name)
                self._set_first_limits(name, self._rounded(config))
            except BaseException:
                # DIVERGES (safer): the kubelet removes a cgroup again if it could not create the whole cgroup.
                # Go: pkg/kubelet/cm/cgroup_manager_linux.go, (*cgroupCommon).Create: the Go kubelet leaves the partial
                # cgroup.
                # Why: the next attempt treats the partial cgroup as complete, and its pod runs without limits.
                # Test: cgroup_manager_test.py:test_cgroup_that_is_half_made_is_made_anew
                for path in self.paths(name):
                    with contextlib.suppress(OSError):
                        os.rmdir(path)
                raise

    def _set_first_limits(self, name: CgroupName, config: ResourceConfig) -> None:
        """Set the limits of a new cgroup. A limit that systemd or the kernel refuses is only logged.

        Raise OSError for a shortage of file descriptors or memory, because such a failure says nothing about the
        limits.

        DIVERGES (safer): the kubelet writes all limits to the cgroup, even when systemd has refused one of them.
        Go: pkg/kubelet/cm/cgroup_manager_linux.go, (*cgroupCommon).Create: the Go kubelet then writes none of them.
        Why: a pod without one of its limits is better than a pod without any limit.
        Test: cgroup_manager_test.py:test_limits_are_set_in_the_order_of_go_and_all_of_them
        """
        for set_limits in (self._tell_systemd, self._write):
            try:
                set_limits(name, config)
            except OSError as err:
                if procfs.is_accident(err):
                    raise
                # The Go kubelet does the same: it is better to run a pod without one of its limits than not at all.
                klog.error_s(err, "Failed to set the limits of a new cgroup", cgroupName=list(name))

    @abstractmethod
    def _create_directories(self, name: CgroupName) -> None: ...

    def update(self, name: CgroupName, config: ResourceConfig) -> None:
        with metrics.CGROUP_MANAGER_DURATION.labels("update").time():
            config = self._rounded(config)
            self._tell_systemd(name, config)
            self._write(name, config)

    def _rounded(self, config: ResourceConfig) -> ResourceConfig:
        """Return the configuration with the CPU quota rounded as systemd rounds it.

        systemd writes the rounded quota when it is reloaded next. Writing the same value now keeps the two from
        differing.
        """
        if self._systemd is None or config.cpu_quota is None:
            return config
        return replace(config, cpu_quota=round_quota(config.cpu_quota, config.cpu_period or 0))

    def _tell_systemd(self, name: CgroupName, config: ResourceConfig) -> None:
        if self._systemd is None:
            return
        properties = self._properties(config) + common_properties(
            config.cpu_quota, config.cpu_period, config.pids_limit, config.cpuset, self._systemd.version
        )
        unit, _ = unit_and_parent(self.name(name))
        self._systemd.set_unit_properties(unit, properties)

    @abstractmethod
    def _properties(self, config: ResourceConfig) -> list[Property]:
        """Return the unit properties that only this cgroup version has."""

    @abstractmethod
    def _write(self, name: CgroupName, config: ResourceConfig) -> None: ...

    def destroy(self, name: CgroupName) -> None:
        with metrics.CGROUP_MANAGER_DURATION.labels("destroy").time():
            error: OSError | None = None
            if self._systemd is not None:
                try:
                    self._systemd.stop_unit(unit_and_parent(self.name(name))[0])
                except OSError as err:
                    error = err
            for path in self.paths(name):
                for directory in reversed(_directories(path)):
                    try:
                        _remove(directory)
                    except OSError as err:
                        # A failure in one hierarchy must not keep the cgroup in the others.
                        error = error or err
            if error is not None:
                try:
                    raise error
                finally:
                    # The error's traceback refers to this frame, and this frame to the error. Without `del`, that cycle
                    # would keep the frames of all callers in memory until garbage is collected.
                    del error

    def pids(self, name: CgroupName) -> list[int]:
        found: set[int] = set()
        for path in self.paths(name):
            for directory in _directories(path):
                found.update(_processes(directory))
        return sorted(found)

    def children(self, name: CgroupName) -> list[CgroupName]:
        found: set[str] = set()
        for path in self.paths(name):
            if os.path.isdir(path):
                found.update(entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
        if self._driver == SYSTEMD:
            slices = (directory.removesuffix(".slice") for directory in found if directory.endswith(".slice"))
            found = {last_part_of_slice(unit) for unit in slices}
        return [CgroupName((*name, part)) for part in sorted(found)]

    def attach(self, name: CgroupName, pid: int) -> None:
        self._create_directories(name)
        for path in self.paths(name):
            Path(path, "cgroup.procs").write_text(str(pid))


def read_int(directory: str, file: str) -> int:
    """Return a setting that is one number, or NO_LIMIT for "max". Raise OSError or ValueError."""
    text = Path(directory, file).read_text().strip()
    return NO_LIMIT if text == "max" else int(text)


def _directories(path: str) -> list[str]:
    """List the cgroup's directory and all directories below it, each after its parent; nothing if it does not exist."""
    if not os.path.isdir(path):
        return []
    below = filetree.walk(path, on_error=_log_unreadable)
    return [path, *(os.path.join(d.path(), e.name) for d, e in below if e.is_dir(follow_symlinks=False))]


def _log_unreadable(err: OSError) -> None:
    klog.v(4).info_s("Cgroup manager could not read a cgroup's directory", err=err)


def _processes(directory: str) -> list[int]:
    try:
        return [int(pid) for pid in Path(directory, "cgroup.procs").read_text().split()]
    except OSError as err:
        # Either the cgroup was removed meanwhile, or it is a threaded cgroup. The kernel refuses to list the processes
        # of a threaded cgroup; it lists them in a cgroup further up.
        klog.v(4).info_s("Cgroup manager encountered error getting procs for cgroup path", path=directory, err=err)
        return []


def _remove(directory: str) -> None:
    """Remove one cgroup, and wait a moment for killed processes that are still in it."""
    delay = REMOVE_DELAY
    for attempt in range(1, REMOVE_TRIES + 1):
        try:
            os.rmdir(directory)
            return
        except FileNotFoundError:
            return
        except OSError as err:
            if err.errno != errno.EBUSY or attempt == REMOVE_TRIES:
                raise
        time.sleep(delay)
        delay *= 2


def pids_max(limit: int) -> str:
    """Return what to write into pids.max for a limit.

    systemd refuses a limit of 0, so both drivers write at least 1.
    """
    return "max" if limit < 0 else str(max(limit, 1))


def write_setting(directory: str, file: str, text: str) -> None:
    """Write a setting of a cgroup, or do nothing if this kernel lacks the file.

    Raise OSError, also when the cgroup no longer exists.
    """
    target = os.path.join(directory, file)
    if os.path.exists(target) or not os.path.isdir(directory):
        Path(target).write_text(text)


class Settings:
    """Write settings one by one and continue after a refusal; the `with` block raises the first error at its end.

    A shortage of file descriptors or memory takes precedence over a refusal by the kernel, because a caller that sees a
    shortage tries again.

    DIVERGES (safer): the kubelet writes the remaining settings after the kernel has refused one.
    Go: github.com/opencontainers/cgroups/fs2/fs2.go, (*Manager).Set: the Go kubelet stops at the first refusal.
    Why: a pod would run without limits that the kernel would have accepted.
    Test: cgroup_manager_test.py:test_limits_are_set_in_the_order_of_go_and_all_of_them
    """

    def __init__(self) -> None:
        self._error: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        if err is None and self._error is not None:
            try:
                raise self._error
            finally:
                # This statement breaks the same reference cycle as in CgroupCommon.destroy.
                self._error = None

    def attempt(self, write: Callable[..., None], *args: object) -> None:
        try:
            write(*args)
        except OSError as err:
            if self._error is None or (procfs.is_accident(err) and not procfs.is_accident(self._error)):
                self._error = err


def page_size_name(size: int) -> str:
    """Return a huge page size as the files of the hugetlb controller spell it: 2MB for 2097152."""
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def huge_page_sizes(root: str = "/sys/kernel/mm/hugepages") -> list[int]:
    """List the sizes of huge pages that the kernel offers, in bytes."""
    if not os.path.isdir(root):
        return []
    names = (re.fullmatch(r"hugepages-(\d+)kB", name) for name in os.listdir(root))
    return sorted(int(match[1]) * 1024 for match in names if match)
