"""Test the parser of OOM kills in the kernel log.

Go: github.com/google/cadvisor/utils/oomparser/oomparser_test.go
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubelet.cadvisor.kmsg import Message
from kubelet.cadvisor.oomparser import OomInstance, OomParser
from pkg import golang

_START = datetime(2026, 11, 21, tzinfo=UTC)
_POD = "/kubepods/burstable/pod8af7a8cb/4f2a"
# A kernel 6.18 wrote these messages, here shortened, for a container over its limit and for a machine without memory.
_OF_CONTAINER = f"""\
tail invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=999
CPU: 1 UID: 0 PID: 21540 Comm: tail Not tainted 6.18.44 #1 PREEMPT(none)
memory: usage 65536kB, limit 65536kB, failcnt 110
Memory cgroup stats for {_POD}:
[  21540]     0 21540    17012    16312    16260       52         0   171520        0           999 tail
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=4f2a,mems_allowed=0,oom_memcg={_POD},\
task_memcg={_POD},task=tail,pid=21540,uid=0
Memory cgroup out of memory: Killed process 21540 (tail) total-vm:68048kB, anon-rss:65040kB, UID:0 oom_score_adj:999
"""
_OF_MACHINE = """\
kworker invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,\
task_memcg=/user.slice,task=python3,pid=77,uid=1000
Out of memory: Killed process 77 (python3) total-vm:68048kB, anon-rss:65040kB, UID:1000 oom_score_adj:0
"""
_LEGACY = """\
ruby invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0
Task in /mem2 killed as a result of limit of /mem3
memory: usage 980kB, limit 980kB, failcnt 4152239
Killed process 19667 (evil-program2) total-vm:1460016kB, anon-rss:1414008kB, file-rss:4kB
"""


class _Log:
    """Represent a kernel log that consists of these lines, a second apart."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)

    def parse(self, ctx: golang.Context) -> Iterator[Message]:
        for seconds, line in enumerate(self._lines):
            yield Message(_START, seconds * 1_000_000, line)


def _read(text: str) -> list[OomInstance]:
    log: Any = _Log(text)
    return list(OomParser(log).stream_ooms(golang.background()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            _OF_CONTAINER,
            OomInstance(_START + timedelta(seconds=5), 21540, "tail", _POD, _POD, "CONSTRAINT_MEMCG"),
            id="container",
        ),
        pytest.param(_OF_MACHINE, OomInstance(_START + timedelta(seconds=2), 77, "python3"), id="machine"),
        pytest.param(
            _LEGACY, OomInstance(_START + timedelta(seconds=3), 19667, "evil-program2", "/mem2", "/mem3"), id="legacy"
        ),
        pytest.param(
            _OF_MACHINE.replace("(python3)", "(a) b) (c)"),
            OomInstance(_START + timedelta(seconds=2), 77, "a) b) (c"),
            id="a name with brackets",
        ),
    ],
)
def test_stream_ooms(text: str, expected: OomInstance) -> None:
    assert _read(text) == [expected]


def test_other_lines_and_several_reports() -> None:
    noise = "eth0: link up\nKilled process 1 (not so)\noom-kill:nonsense\n"
    found = _read(f"{noise}{_OF_CONTAINER}{noise}{_OF_MACHINE}{_LEGACY}{noise}")
    assert [instance.process_name for instance in found] == ["tail", "python3", "evil-program2"]


def test_a_cgroup_whose_name_holds_the_separators() -> None:
    """A cgroup name full of separators is parsed quickly. Trying all ways to split such a name took minutes."""
    odd = ",cpuset=,mems_allowed=,oom_memcg=,task_memcg=,task=,pid=1" * 100
    line = f"oom-kill:constraint=C,nodemask=0,cpuset={odd},mems_allowed=0,oom_memcg=/a,task_memcg=/b,task=c,pid=7,uid=0"
    (found,) = _read(f"x invoked oom-killer: y\n{line}\n")
    assert (found.pid, found.process_name, found.container_name, found.victim_container_name) == (7, "c", "/b", "/a")
    assert _read(f"x invoked oom-killer: y\noom-kill:constraint={odd}\n") == []


def test_report_that_is_cut_short() -> None:
    """A report that the kernel overwrote is completed by the next report."""
    assert [instance.pid for instance in _read(_OF_CONTAINER.splitlines()[0] + "\n" + _OF_MACHINE)] == [77]


def test_line_that_cannot_be_read_is_skipped() -> None:
    """A line that cannot be parsed is skipped, because any program that may write to the kernel log can write one."""
    nonsense = f"Killed process {'9' * 5000} (tail) total-vm:68048kB\n"
    first, rest = _OF_CONTAINER.split("\n", 1)
    assert _read(f"{first}\n{nonsense}{rest}") == _read(_OF_CONTAINER.replace("\n", "\n \n", 1))
