"""What the kernel says of cgroups, of either version, and what it says when requests and limits are heeded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V2 = (ROOT / "cgroup.controllers").exists()
# Microseconds in which a quota may be used up.
PERIOD = 100_000
# Version 1 has no word for no limit, but a number of pages that no machine has.
_NO_MEMORY_LIMIT = 1 << 60
_V2_MAX_SHARES = 262_144


@dataclass(frozen=True)
class Figures:
    """What a cgroup is limited to, in the terms of version 1; None for no limit."""

    shares: int
    quota: int | None  # µs in PERIOD
    memory: int | None  # bytes
    pids: int | None = None


def expected(request: int, limit: int | None = None, memory: int | None = None, pids: int | None = None) -> Figures:
    """By what is documented: request and limit in thousandths of a CPU, memory in bytes."""
    quota = None if limit is None else max(limit * PERIOD // 1000, 1000)
    return Figures(max(request * 1024 // 1000, 2), quota, memory, pids)


def weights(shares: int) -> set[int]:
    """What version 2 may have for these shares: the older formula, or that of newer runtimes."""
    linear = 1 + (shares - 2) * 9999 // (_V2_MAX_SHARES - 2)
    return {linear, _quadratic(shares)}


def _quadratic(shares: int) -> int:
    """2 is 1, 1024 is 100 and 262144 is 10000, and what lies between is on a curve through them."""
    log = math.log2(shares)
    return math.ceil(10 ** ((log**2 + 125 * log) / 612 - 7 / 34))


class Cgroup:
    """One cgroup, in all hierarchies there are."""

    def __init__(self, path: str) -> None:
        """path begins below the hierarchies' roots."""
        self.path = path.strip("/")

    def __repr__(self) -> str:
        return f"/{self.path}"

    def __truediv__(self, name: str) -> Cgroup:
        return Cgroup(f"{self.path}/{name}")

    @property
    def parent(self) -> Cgroup:
        return Cgroup(str(Path(self.path).parent))

    def directory(self, controller: str) -> Path:
        return ROOT / self.path if V2 else ROOT / controller / self.path

    def read(self, file: str) -> str:
        """A file named controller.rest."""
        return (self.directory(file.partition(".")[0]) / file).read_text().strip()

    def exists(self) -> bool:
        return self.directory("memory").is_dir()

    def identity(self) -> int:
        """Another when the cgroup was removed and made again."""
        return self.directory("memory").stat().st_ino

    def children(self) -> set[str]:
        return {entry.name for entry in self.directory("memory").iterdir() if entry.is_dir()}

    def make(self) -> None:
        for hierarchy in [ROOT] if V2 else [path for path in ROOT.iterdir() if path.is_dir()]:
            if (hierarchy / self.parent.path).is_dir():
                (hierarchy / self.path).mkdir(exist_ok=True)

    def problems(self, wanted: Figures) -> list[str]:
        """What is not as wanted; nothing if all is."""
        found: dict[str, tuple[object, object]] = {
            "quota": (self._quota(), wanted.quota),
            "memory": (self.memory_limit(), wanted.memory),
            "pids": (self.number("pids.max"), wanted.pids),
        }
        if V2:
            weight = int(self.read("cpu.weight"))
            found["weight"] = (weight, weight if weight in weights(wanted.shares) else weights(wanted.shares))
        else:
            found["shares"] = (int(self.read("cpu.shares")), wanted.shares)
        return [f"{self}: {what} {is_} not {should}" for what, (is_, should) in found.items() if is_ != should]

    def number(self, file: str) -> int | None:
        """A limit; None for the word max."""
        text = self.read(file)
        return None if text == "max" else int(text)

    def memory_limit(self) -> int | None:
        """Bytes."""
        if V2:
            return self.number("memory.max")
        limit = int(self.read("memory.limit_in_bytes"))
        return None if limit > _NO_MEMORY_LIMIT else limit

    def _quota(self) -> int | None:
        quota, period = (
            self.read("cpu.max").split() if V2 else (self.read("cpu.cfs_quota_us"), self.read("cpu.cfs_period_us"))
        )
        assert int(period) == PERIOD, f"{self}: period {period}"
        return None if quota in ("max", "-1") else int(quota)


def cgroup_of(pid: int) -> Cgroup:
    """Where a process is, by the kernel."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    wanted = "" if V2 else "memory"
    return Cgroup(next(path for _, controllers, path in lines if wanted in controllers.split(",")))
