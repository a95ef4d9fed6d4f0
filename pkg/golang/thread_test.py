"""Test threads, and the crash of the process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from pkg import golang
from pkg.golang import testing


def test_go_names_and_runs() -> None:
    got: golang.Channel[tuple[str, int]] = golang.Channel(1)
    thread = golang.go(lambda n: got.send((threading.current_thread().name, n)), 5, name="worker-5")
    assert got.recv(30) == (("worker-5", 5), True)
    thread.join(30)
    assert thread.daemon


def test_the_message_of_a_thread_that_cannot_be_started_names_the_limits() -> None:
    with testing.out_of_threads("worker-") as refused, pytest.raises(golang.ThreadError) as raised:
        golang.go(lambda: None, name="worker-5")
    assert refused == ["worker-5"]
    message = str(raised.value)
    assert message.startswith("start thread 'worker-5' in addition to ")
    assert "can't start new thread" in message
    for limit in ("TasksMax", "pids.max", "ulimit -u"):
        assert limit in message


@pytest.mark.parametrize("err", [MemoryError(), RuntimeError("can't allocate lock")], ids=str)
def test_no_memory_for_what_a_thread_consists_of(monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    def allocate(*args: object) -> None:
        raise err

    monkeypatch.setattr(golang.Thread, "__init__", allocate)
    with pytest.raises(golang.ThreadError, match="start thread 'worker-5' in addition to"):
        golang.go(lambda: None, name="worker-5")


def test_a_process_without_threads_gets_an_error_that_it_can_handle() -> None:
    program = (
        "import resource\n"
        "from pkg import golang\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))\n"
        "ctx, cancel = golang.with_cancel(golang.background())\n"
        "try:\n"
        "    while True: golang.go(ctx.wait, 60)\n"
        "except golang.ThreadError as err:\n"
        "    cancel()\n"
        "    print('told', err)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.stdout.startswith("told start thread"), run.stderr


def test_a_group_has_the_threads_of_its_threads() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    started: golang.Channel[golang.Thread] = golang.Channel(1)
    with golang.ThreadGroup() as group:
        parent = golang.go(lambda: started.send(golang.go(ctx.wait, 60, name="child")), name="parent")
        with golang.ThreadGroup() as other:
            others = golang.go(ctx.wait, 60, name="other")
    stranger = golang.go(ctx.wait, 60, name="stranger")
    child, _ = started.recv(30)
    assert child is not None
    parent.join(30)
    assert (group.alive(), other.alive()) == ([child], [others])
    assert group.join(0) == [child]
    cancel()
    assert group.join(30) == other.join(30) == []
    stranger.join(30)


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


def test_data_that_is_nested_too_deeply_is_an_error_that_can_be_handled() -> None:
    """Decoding deeply nested data raises an exception before the stack overflows, which would end the process."""
    program = (
        "import msgspec\n"
        "from pkg import golang\n"
        "def decode():\n"
        "    try: msgspec.json.decode(b'{\"a\": [' * 100_000)\n"
        "    except RecursionError as err: print('told', err)\n"
        "golang.go(decode).join()\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.stdout.startswith("told"), f"{run.returncode} {run.stderr}"
