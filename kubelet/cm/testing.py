"""Define fakes of the kernel's cgroup file systems and of systemd, and container managers without cgroups."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubelet import cadvisor, cm, eviction
from kubelet.cm.helpers import hard_eviction_reservation
from kubelet.cm.systemd import Property
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource

V1_FILES = {
    "cpu": {"cpu.shares": "1024", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"},
    "cpuacct": {},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
    "memory": {"memory.limit_in_bytes": "9223372036854771712"},
    "pids": {"pids.max": "max"},
    "hugetlb": {
        **{f"hugetlb.2MB{kind}.limit_in_bytes": "9223372036854771712" for kind in ("", ".rsvd")},
        "hugetlb.1GB.limit_in_bytes": "0",
    },
    "devices": {},
    "freezer": {},
}
V2_FILES = {
    "cpu": {"cpu.weight": "100", "cpu.max": "max 100000"},
    "memory": {"memory.max": "max", "memory.min": "0", "memory.low": "0"},
    "pids": {"pids.max": "max"},
}


class FakeCgroupfs:
    """Imitate a cgroup file system below `root`.

    A new directory gets the files of its hierarchy. The removal of a directory also removes the files, unless the
    directory is busy.
    """

    def __init__(self, root: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.version = version
        # `busy` maps a path to the number of times that its removal still fails, as it does while processes exit.
        self.busy: dict[str, int] = {}
        self._mkdir, self._rmdir = os.mkdir, os.rmdir
        monkeypatch.setattr(os, "mkdir", self._make)
        monkeypatch.setattr(os, "rmdir", self._remove)
        if version == 1:
            for controller in V1_FILES:
                self._make(root / controller)
            self.write("cpuset/cpuset.cpus", "0-1")
            self.write("cpuset/cpuset.mems", "0")
        else:
            self.write("cgroup.controllers", "cpu memory pids rdma")
            self.write("cgroup.subtree_control", "")

    def mount_info(self, options: str = "rw") -> str:
        """Return the hierarchies as the kernel lists mounts."""
        if self.version == 2:
            return f"31 23 0:28 / {self.root} {options},nosuid - cgroup2 cgroup2 rw\n"
        return "".join(
            f"{n} 31 0:{n} / {self.root}/{controller} {options},relatime - cgroup cgroup rw,{controller}\n"
            for n, controller in enumerate(V1_FILES, 32)
        )

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def write(self, path: str, text: str) -> None:
        (self.root / path).write_text(text)

    def directories(self) -> list[str]:
        """List all cgroups relative to the root."""
        found = (Path(directory).relative_to(self.root) for directory, _, _ in os.walk(self.root))
        return sorted(str(directory) for directory in found)

    def _make(self, path: str | Path, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        if self.root not in Path(path).parents:
            return
        directory = Path(path)
        if self.version == 1:
            files = V1_FILES.get(directory.relative_to(self.root).parts[0], {})
        else:
            # A controller is available where the parent has enabled it.
            enabled = [word[1:] for word in (directory.parent / "cgroup.subtree_control").read_text().split()]
            files = {"cgroup.controllers": " ".join(enabled), "cgroup.subtree_control": ""}
            files |= {name: text for c in enabled for name, text in V2_FILES.get(c, {}).items()}
        for name, text in {"cgroup.procs": "", **files}.items():
            (directory / name).write_text(text)

    def _remove(self, path: str | Path, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            self._rmdir(path, dir_fd=dir_fd)
            return
        if left := self.busy.get(str(path), 0):
            self.busy[str(path)] = left - 1
            raise OSError(errno.EBUSY, "device or resource busy", str(path))
        if self.root in Path(path).parents:
            for file in Path(path).iterdir():
                if file.is_file():
                    file.unlink()
        self._rmdir(path)


class FakeSystemd:
    """Record the requested slices and their properties."""

    def __init__(self, version: int = 252) -> None:
        self.slices: dict[str, dict[str, Any]] = {}
        # `calls` holds the method and the unit of each call.
        self.calls: list[tuple[str, str]] = []
        self._version = version

    def version(self) -> int:
        return self._version

    def start_slice(self, unit: str, properties: Sequence[Property]) -> None:
        self.calls.append(("start", unit))
        self._set(self.slices.setdefault(unit, {}), properties)

    def set_unit_properties(self, unit: str, properties: Sequence[Property]) -> None:
        self.calls.append(("set", unit))
        self._set(self.slices[unit], properties)

    def stop_unit(self, unit: str) -> None:
        self.calls.append(("stop", unit))
        self.slices.pop(unit, None)

    def _set(self, known: dict[str, Any], properties: Sequence[Property]) -> None:
        known |= {name: value for name, (_signature, value) in properties}


class FakePodContainerManager(cm.PodContainerManagerNoop):
    """Hold the pod cgroups that the test defines, and record changes to them.

    `config` holds the settings of each pod's cgroup; None means that pods have no cgroups. `found` are the existing
    cgroups by the pods' UIDs. `read_err` and `err` are raised when a configuration is read and set.
    """

    def __init__(
        self, config: cm.ResourceConfig | None = None, found: Mapping[str, cm.CgroupName] | None = None
    ) -> None:
        super().__init__(cm.CgroupName(()))
        self.config = config
        self.found = {types.UID(uid): name for uid, name in (found or {}).items()}
        self.read_err: OSError | None = None
        self.err: OSError | None = None
        # `made` holds the UIDs of the pods whose cgroups were created.
        self.made: list[str] = []
        self.updates: list[cm.ResourceConfig] = []
        self.reduced: list[cm.CgroupName] = []
        self.destroyed: golang.Channel[cm.CgroupName] = golang.Channel(10)

    def exists(self, pod: v1.Pod) -> bool:
        return pod.metadata.uid in self.made

    def ensure_exists(self, pod: v1.Pod) -> None:
        self.made.append(pod.metadata.uid)

    def get_all_pods_from_cgroups(self) -> dict[types.UID, cm.CgroupName]:
        return self.found

    def destroy(self, name: cm.CgroupName) -> None:
        self.destroyed.send(name)

    def reduce_cpu_limits(self, name: cm.CgroupName) -> None:
        self.reduced.append(name)

    def get_pod_cgroup_config(self, pod: v1.Pod, resource: str) -> cm.ResourceConfig | None:
        if self.read_err is not None:
            raise self.read_err
        if self.config is None:
            return None
        if resource == v1.RESOURCE_MEMORY:
            return cm.ResourceConfig(memory=self.config.memory)
        return dataclasses.replace(self.config, memory=None)

    def set_pod_cgroup_config(self, pod: v1.Pod, config: cm.ResourceConfig) -> None:
        self.updates.append(config)
        if self.err is not None:
            raise self.err


class FakeContainerManager(cm.ContainerManagerStub):
    """Return the pod container manager of the test."""

    def __init__(self, pods: FakePodContainerManager | None = None) -> None:
        super().__init__()
        self.pods = pods or FakePodContainerManager()

    def new_pod_container_manager(self) -> cm.PodContainerManager:
        return self.pods


class FakeReservingContainerManager(cm.ContainerManagerStub):
    """Reserve the resources that the test defines."""

    def __init__(self, machine: cadvisor.Interface) -> None:
        super().__init__()
        self.machine = machine
        self.thresholds = {"memory.available": "100Mi", "nodefs.available": "1%"}
        self.reserved: dict[str, str] = {}
        self.reset_extended_resources = False

    def get_capacity(self, local_storage_capacity_isolation: bool) -> dict[str, resource.Quantity]:
        return cadvisor.ephemeral_storage_capacity_from_fs_info(self.machine.root_fs_info())

    def get_node_allocatable_reservation(self) -> dict[str, resource.Quantity]:
        capacity = self.get_capacity(True) | cadvisor.capacity_from_machine_info(self.machine.machine_info())
        kept = hard_eviction_reservation(eviction.parse_threshold_config([], self.thresholds, {}, {}, {}), capacity)
        return kept | {name: resource.parse_quantity(text) for name, text in self.reserved.items()}

    def should_reset_extended_resource_capacity(self) -> bool:
        return self.reset_extended_resources
