"""Read the kernel's cgroups, of version 1 or 2, and compute the values that requests and limits call for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V2 = (ROOT / "cgroup.controllers").exists()
# PERIOD is the time, in microseconds, in which a cgroup may use up its quota.
PERIOD = 100_000
# Version 1 has no word for "no limit". It reports a number of pages that no machine has.
_NO_MEMORY_LIMIT = 1 << 60
_V2_MAX_SHARES = 262_144


@dataclass(frozen=True)
class Figures:
    """Describe the limits of a cgroup in the terms of version 1. None means that there is no limit."""

    shares: int
    quota: int | None  # The quota is in microseconds per PERIOD.
    memory: int | None  # bytes
    pids: int | None = None


def expected(request: int, limit: int | None = None, memory: int | None = None, pids: int | None = None) -> Figures:
    """Return the documented values for a request and a limit in thousandths of a CPU, and for memory in bytes."""
    quota = None if limit is None else max(limit * PERIOD // 1000, 1000)
    return Figures(max(request * 1024 // 1000, 2), quota, memory, pids)


def weights(shares: int) -> set[int]:
    """Return the weights that version 2 may have for these shares: older and newer runtimes differ."""
    linear = 1 + (shares - 2) * 9999 // (_V2_MAX_SHARES - 2)
    return {linear, _quadratic(shares)}


def _quadratic(shares: int) -> int:
    """Return the weight on the curve through 2 shares = 1, 1024 shares = 100 and 262144 shares = 10000."""
    log = math.log2(shares)
    return math.ceil(10 ** ((log**2 + 125 * log) / 612 - 7 / 34))


class Cgroup:
    """Read and create one cgroup in all hierarchies of the machine."""

    def __init__(self, path: str) -> None:
        """Create the object for a path that is relative to the roots of the hierarchies."""
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
        """Return the content of a file. The file's name begins with the name of its controller and a dot."""
        return (self.directory(file.partition(".")[0]) / file).read_text().strip()

    def exists(self) -> bool:
        return self.directory("memory").is_dir()

    def identity(self) -> int:
        """Return a number that changes when the cgroup is removed and created again."""
        return self.directory("memory").stat().st_ino

    def children(self) -> set[str]:
        return {entry.name for entry in self.directory("memory").iterdir() if entry.is_dir()}

    def make(self) -> None:
        for hierarchy in [ROOT] if V2 else [path for path in ROOT.iterdir() if path.is_dir()]:
            if (hierarchy / self.parent.path).is_dir():
                (hierarchy / self.path).mkdir(exist_ok=True)

    def problems(self, wanted: Figures) -> list[str]:
        """List the values that differ from the wanted ones."""
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
        """Return a limit, or None for the word "max"."""
        text = self.read(file)
        return None if text == "max" else int(text)

    def memory_limit(self) -> int | None:
        """Return the memory limit in bytes, or None if there is none."""
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
    """Return the cgroup in which the kernel has the process."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    wanted = "" if V2 else "memory"
    return Cgroup(next(path for _, controllers, path in lines if wanted in controllers.split(",")))
