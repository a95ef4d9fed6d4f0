"""Provide a machine whose facts and statistics the test sets.

Go: pkg/kubelet/cadvisor/testing
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kubelet.cadvisor.containers import Container
from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from pkg import golang

if TYPE_CHECKING:
    from kubelet.cadvisor.containers import Containers
    from kubelet.cadvisor.types import Interface


@dataclass
class FakeCadvisor:
    """Return the values that the test has set.

    Every method raises `err` if it is set; methods about file systems also raise `fs_err`.
    """

    machine: cadvisorapi.MachineInfo = field(
        default_factory=lambda: cadvisorapi.MachineInfo(num_cores=1, memory_capacity=2**30)
    )
    version: cadvisorapi.VersionInfo = field(default_factory=cadvisorapi.VersionInfo)
    # The keys are cgroup names.
    containers_v2: dict[str, cadvisorapiv2.ContainerInfo] = field(default_factory=dict)
    containers_v1: dict[str, cadvisorapi.ContainerInfo] = field(default_factory=dict)
    images_fs: cadvisorapiv2.FsInfo = field(default_factory=cadvisorapiv2.FsInfo)
    root_fs: cadvisorapiv2.FsInfo = field(default_factory=cadvisorapiv2.FsInfo)
    container_fs: cadvisorapiv2.FsInfo = field(default_factory=cadvisorapiv2.FsInfo)
    # The keys are paths; any other path raises FileNotFoundError.
    dir_fs: dict[str, cadvisorapiv2.FsInfo] = field(default_factory=dict)
    err: Exception | None = None
    fs_err: Exception | None = None
    # The list has the name and the options of each request for containers.
    calls: list[tuple[str, cadvisorapiv2.RequestOptions]] = field(default_factory=list)

    def start(self) -> None:
        self._fail()

    def container_info_v2(
        self, name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapiv2.ContainerInfo]:
        self.calls.append((name, options))
        self._fail()
        return {key: self.containers_v2[key] for key in _asked(self.containers_v2, name, options)}

    def get_requested_containers_info(
        self, container_name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapi.ContainerInfo]:
        self.calls.append((container_name, options))
        self._fail()
        return {key: self.containers_v1[key] for key in _asked(self.containers_v1, container_name, options)}

    def machine_info(self) -> cadvisorapi.MachineInfo:
        self._fail()
        return self.machine

    def version_info(self) -> cadvisorapi.VersionInfo:
        self._fail()
        return self.version

    def images_fs_info(self, ctx: golang.Context) -> cadvisorapiv2.FsInfo:
        self._fail(self.fs_err)
        return self.images_fs

    def root_fs_info(self) -> cadvisorapiv2.FsInfo:
        self._fail(self.fs_err)
        return self.root_fs

    def container_fs_info(self, ctx: golang.Context) -> cadvisorapiv2.FsInfo:
        self._fail(self.fs_err)
        return self.container_fs

    def get_dir_fs_info(self, path: str) -> cadvisorapiv2.FsInfo:
        self._fail(self.fs_err)
        if path not in self.dir_fs:
            raise FileNotFoundError(path)
        return self.dir_fs[path]

    def _fail(self, err: Exception | None = None) -> None:
        err = err or self.err
        if err is not None:
            raise err


def _asked(names: Iterable[str], name: str, options: cadvisorapiv2.RequestOptions) -> list[str]:
    """Return the requested names among the existing ones. Raise LookupError if none of the requested names exists."""
    below = name.rstrip("/") + "/"
    found = [key for key in names if key == name or (options.recursive and key.startswith(below))]
    if not found:
        raise LookupError(f"unknown container {name!r}")
    return found


@dataclass
class FakeContainers:
    """Represent a runtime that knows these containers by id."""

    known: dict[str, Container] = field(default_factory=dict)

    def learn(self, ids: Collection[str]) -> None:
        """Do nothing, because all containers are known."""

    def forget_others(self, ids: Collection[str]) -> None:
        """Do nothing, so that all containers stay."""

    def get(self, id: str) -> Container | None:
        return self.known.get(id)


def unpack_tree(name: str, directory: Path) -> str:
    """Create the files of a recorded machine (a file of testdata) in a directory, and return the directory's name.

    A line "== PATH" begins a file.
    """
    text = (Path(__file__).parent / "testdata" / name).read_text()
    for entry in text.removeprefix("== ").removesuffix("\n").split("\n== "):
        path, _, content = entry.partition("\n")
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n" if content else "")
    return str(directory)


def build_machine(name: str, directory: Path) -> Path:
    """Create the files about processors and NUMA nodes of a recorded machine (testdata/machines).

    A line describes the online processors, a node, or a processor. Only the first processor of a core lists the caches
    (level, kind, size, number, and the processors that share it). A value that the line lacks gets no file.
    """
    root = directory / "sys/devices/system"
    for line in (Path(__file__).parent / "testdata/machines" / f"{name}.txt").read_text().splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "online":
            _write(root / "cpu/online", rest)
        elif kind in ("node", "cpu"):
            number, *words = rest.split()
            build = _build_node if kind == "node" else _build_cpu
            build(root / kind / f"{kind}{number}", [word.split("=", 1) for word in words])
    return directory


def _build_node(node: Path, words: list[list[str]]) -> None:
    for key, value in words:
        match key:
            case "cpus":
                node.mkdir(parents=True)
                for cpu in _numbers(value):
                    (node / f"cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")
            case "memory":
                _write(node / "meminfo", f"Node {node.name[4:]} MemTotal:       {value} kB\n")
            case "distance":
                _write(node / "distance", value.replace(",", " "))
            case "hugepages":
                for size, _, count in (entry.partition(":") for entry in value.split(",")):
                    _write(node / f"hugepages/hugepages-{size}kB/nr_hugepages", count)


def _build_cpu(cpu: Path, words: list[list[str]]) -> None:
    names = {"core": "core_id", "socket": "physical_package_id"}
    (cpu / "topology").mkdir(parents=True)
    caches = [value.split(":") for key, value in words if key == "cache"]
    for key, value in words:
        if key in names:
            _write(cpu / "topology" / names[key], value)
    for index, (level, kind, size, id, cpus) in enumerate(caches):
        mask = sum(1 << number for number in _numbers(cpus))
        digits = f"{mask:x}"
        digits = digits.zfill(-(-len(digits) // 8) * 8)
        words_of_mask = ",".join(digits[at : at + 8] for at in range(0, len(digits), 8))
        found = {"level": level, "type": kind, "size": size, "id": id, "shared_cpu_map": words_of_mask}
        for file, text in found.items():
            if text:
                _write(cpu / f"cache/index{index}" / file, text)


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list such as 0-3,7."""
    ranges = (part.partition("-") for part in text.split(",") if part)
    return [number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(f"{text}\n")
    except FileNotFoundError:
        path.parent.mkdir(parents=True)
        path.write_text(f"{text}\n")


if TYPE_CHECKING:
    _: Interface = FakeCadvisor()
    _containers: Containers = FakeContainers()
