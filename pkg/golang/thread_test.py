"""Threads, and the crash of the process."""

from __future__ import annotations

import subprocess
import sys
import threading

from pkg import golang


def test_go_names_and_runs() -> None:
    got: golang.Channel[tuple[str, int]] = golang.Channel(1)
    thread = golang.go(lambda n: got.send((threading.current_thread().name, n)), 5, name="worker-5")
    assert got.recv(10) == (("worker-5", 5), True)
    thread.join(10)
    assert thread.daemon


def test_an_exception_in_a_thread_ends_the_process() -> None:
    program = (
        "from pkg import golang\n"
        "def boom(): raise ValueError('bad thing')\n"
        "golang.install_crash_handler()\n"
        "golang.go(boom, name='boomer')\n"
        "golang.background().wait(60)\n"
        "print('still here')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert run.stdout == ""
    assert "thread.py" in run.stderr and 'err="bad thing" thread="boomer"' in run.stderr
    assert "in boom" in run.stderr
