"""Find the processes that the kernel killed for lack of memory, from its log.

Go: github.com/google/cadvisor/utils/oomparser
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from kubelet.cadvisor.kmsg import KmsgParser, Message
from pkg import golang, klog
from pkg.apimachinery.util.runtime import contain

# The kernel writes, in this order: the process that asked for memory, the cgroup that was full (if any), and the
# process that it kills.
_FIRST_LINE = re.compile(r"invoked oom-killer:")
_LEGACY_CONTAINER = re.compile(r"Task in (.*) killed as a result of limit of (.*)")
# Kernels since 5.0 write this line. It does not match when the machine itself ran out of memory: the line then says
# global_oom.
_CONTAINER = "oom-kill:constraint="
# These texts separate the parts of that line, from the last to the first.
_SEPARATORS = (",uid=", ",pid=", ",task=", ",task_memcg=", ",oom_memcg=", ",mems_allowed=", ",cpuset=", ",nodemask=")
_LAST_LINE = re.compile(r"Killed process (?P<pid>\d+) \((?P<name>.+)\)")


@dataclass(slots=True)
class OomInstance:
    """Describe a killed process, its cgroup (`container_name`) and the cgroup that was full (`victim_container_name`).

    "/" stands for the machine. The field names, of which "victim" is misleading, are those of Go.
    """

    time_of_death: datetime
    pid: int = 0
    process_name: str = ""
    container_name: str = "/"
    victim_container_name: str = "/"
    # The value is CONSTRAINT_NONE, CONSTRAINT_CPUSET, CONSTRAINT_MEMORY_POLICY or CONSTRAINT_MEMCG; it is "" on old
    # kernels.
    constraint: str = ""


class OomParser:
    """Read the kernel log. Only one thread may use the object."""

    def __init__(self, parser: KmsgParser | None = None) -> None:
        """Open the log. Raise OSError if it cannot be read."""
        self._parser = parser or KmsgParser()

    def stream_ooms(self, ctx: golang.Context) -> Iterator[OomInstance]:
        """Yield the OOM kills that the log still contains, then each new one, until ctx is done."""
        instance: OomInstance | None = None
        for message in self._parser.parse(ctx):
            if instance is None:
                if _FIRST_LINE.search(message.text):
                    instance = OomInstance(message.timestamp)
                continue
            finished = False
            # Any program that may write to the kernel log can have written the line.
            with contain("Failed to read a line of the kernel's log", line=message.text):
                finished = _is_finished(instance, message)
            if finished:
                instance.time_of_death = message.timestamp
                yield instance
                instance = None
        if ctx.err() is None:
            klog.error_s(None, "Exiting analyzeLines. OOM events will not be reported.")


def _is_finished(instance: OomInstance, message: Message) -> bool:
    """Add the line's data to the instance; report whether the instance is complete."""
    if parts := _container_parts(message.text):
        instance.constraint, _, _, _, oom, task, name, pid, _ = parts
        instance.container_name, instance.victim_container_name = task, oom
        instance.pid, instance.process_name = int(pid), name
        return True
    if found := _LEGACY_CONTAINER.search(message.text):
        names = (posixpath.normpath(posixpath.join("/", name)) for name in found.groups())
        instance.container_name, instance.victim_container_name = names
        return False
    if not (found := _LAST_LINE.search(message.text)):
        return False
    instance.pid, instance.process_name = int(found["pid"]), found["name"]
    return True


def _container_parts(text: str) -> list[str]:
    """Return the parts of a line that kernels since 5.0 write, or [] for any other line.

    A regular expression would try all ways to split a line in which the cgroup names contain separators.
    """
    rest = text.partition(_CONTAINER)[2]
    parts: list[str] = []
    for separator in _SEPARATORS:
        rest, found, part = rest.rpartition(separator)
        if not found:
            return []
        parts.append(part)
    parts.append(rest)
    parts.reverse()
    return parts if parts[-2].isascii() and parts[-2].isdigit() else []
