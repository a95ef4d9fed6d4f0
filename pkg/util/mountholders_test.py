"""Test finding the processes that keep a mount busy, on real mounts and processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pkg.util import mountholders

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")

# The program executes the given statement, confirms it, and stays until its input ends.
_PROGRAM = """
import mmap, os, sys
{0}
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "mounted"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)
    (path / "file").write_text("content")
    yield path
    subprocess.run(["umount", path], check=True)


def start(statement: str, *prefix: str) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-c", _PROGRAM.format(statement)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)


def holders(path: Path) -> dict[int, str]:
    found = mountholders.find_holders(mountholders.mounts_at_or_below([str(path)]))
    return {holder.pid: holder.what for holder in found}


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("os.chdir('{0}')", "current directory {0}"),
        ("f = open('{0}/file')", "open file {0}/file"),
        ("d = os.open('{0}', os.O_DIRECTORY)", "open file {0}"),
        (
            "f = os.open('{0}/file', os.O_RDONLY); m = mmap.mmap(f, 7, prot=mmap.PROT_READ); os.close(f)",
            "{0}/file",
        ),
        ("f = open('{0}/gone', 'w'); os.unlink('{0}/gone')", "open file {0}/gone"),
    ],
)
def test_process_that_holds_the_mount(mounted: Path, statement: str, what: str) -> None:
    assert holders(mounted) == {}
    process = start(statement.format(mounted))
    found = holders(mounted)
    end(process)
    assert list(found) == [process.pid] and found[process.pid].endswith(what.format(mounted))
    assert holders(mounted) == {}


def test_file_whose_path_is_longer_than_the_kernel_tells(mounted: Path) -> None:
    deeper = "os.mkdir('a' * 200); os.chdir('a' * 200)"
    process = start(f"os.chdir('{mounted}')\nfor _ in range(25): {deeper}\nf = open('file', 'w'); os.chdir('/')")
    found = holders(mounted)
    end(process)
    assert list(found) == [process.pid]


def test_holder_is_told_with_its_name(mounted: Path) -> None:
    process = start(f"os.chdir('{mounted}')")
    (holder,) = mountholders.find_holders(mountholders.mounts_at_or_below([str(mounted)]))
    end(process)
    assert str(holder) == f"{holder.comm} (pid {process.pid}, current directory {mounted})"
    assert holder.comm.startswith("python")


@pytest.mark.parametrize("comm", [b"\xd0\xba\xd0\xb8\xd1", b"a\rb\x1cc", b"\n"])
def test_holder_with_a_name_that_is_no_text(mounted: Path, comm: bytes) -> None:
    """A process is found even if its name is not valid text.

    The kernel cuts names at 15 bytes, for example in the middle of a Cyrillic letter.
    """
    statement = f"os.chdir('{mounted}'); open('/proc/self/comm', 'wb').write({comm!r})"
    process = start(statement)
    (holder,) = mountholders.find_holders(mountholders.mounts_at_or_below([str(mounted)]))
    end(process)
    assert holder.pid == process.pid
    assert os.fsencode(holder.comm) == comm.strip(b"\n")


def test_process_with_a_mount_of_its_own_there_holds_nothing(mounted: Path) -> None:
    process = start(f"os.chdir('{mounted}')", "unshare", "--mount", "--propagation", "private")
    found = holders(mounted)
    end(process)
    assert found == {}


def test_process_beside_the_mount_holds_nothing(mounted: Path) -> None:
    process = start(f"os.chdir('{mounted.parent}')")
    found = holders(mounted)
    end(process)
    assert found == {}


def test_mounts_at_or_below(tmp_path: Path) -> None:
    lines = [
        f"{number} 1 0:{number} / {path} rw - tmpfs tmpfs rw"
        for number, path in enumerate(["/", "/a", "/a/b", r"/a\040c", "/ab"], start=10)
    ]
    (tmp_path / "mountinfo").write_text("\n".join(lines) + "\n")
    found = mountholders.mounts_at_or_below(["/a"], str(tmp_path / "mountinfo"))
    assert [info.mount_point for info in found] == ["/a", "/a/b"]


def test_list_of_mapped_files_is_read_as_far_as_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of mapped files is read up to its limit.

    A process may have tens of thousands of mappings, each with a path of four thousand characters.
    """
    lines = [f"7f0000000000-7f0000001000 r--p 00000000 fe:00 {n} /data/file-{n}\n" for n in (1, 2, 3)]
    (tmp_path / "maps").write_text("".join(lines))
    assert mountholders._mapped(tmp_path / "maps") == ["/data/file-1", "/data/file-2", "/data/file-3"]
    monkeypatch.setattr(mountholders, "MAX_MAPS", len(lines[0]) * 2 + 1)
    assert mountholders._mapped(tmp_path / "maps") == ["/data/file-1", "/data/file-2"]


def test_epoll_instance_is_not_looked_at(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fdinfo of an epoll instance is not read, because the kernel would list each watched descriptor."""
    looked_at: list[str] = []
    monkeypatch.setattr(mountholders, "_mount_id", lambda fdinfo: looked_at.append(str(fdinfo)))
    epoll = "import select; epoll = select.epoll(); os.dup2(epoll.fileno(), 100)"
    process = start(f"{epoll}; os.dup2(os.open('/', os.O_DIRECTORY), 101)")
    assert holders(mounted) == {}
    end(process)
    assert f"/proc/{process.pid}/fdinfo/101" in looked_at
    assert f"/proc/{process.pid}/fdinfo/100" not in looked_at


def test_of_an_open_file_the_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the beginning of an open file's fdinfo is read. A process may have a hundred thousand locks on one file."""
    (tmp_path / "3").write_text("pos:\t0\nflags:\t02\nmnt_id:\t7\n")
    assert mountholders._mount_id(tmp_path / "3") == 7
    monkeypatch.setattr(mountholders, "MAX_FDINFO", 16)
    assert mountholders._mount_id(tmp_path / "3") is None
