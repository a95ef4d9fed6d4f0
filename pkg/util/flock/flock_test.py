from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pkg.util import flock

_HOLDER = """
import sys
from pkg.util import flock
flock.try_acquire(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_the_holder_is_named_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(flock.LockHeldError) as caught:
            flock.try_acquire(str(path))
        assert caught.value.pid == holder.pid
        assert str(caught.value) == f"lock file {path} is held by process {holder.pid}"
        holder.stdin.close()
    flock.try_acquire(str(path))
    assert path.read_text() == f"{os.getpid()}\n"


def test_unusable_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        flock.try_acquire(str(tmp_path / "missing" / "lock"))
