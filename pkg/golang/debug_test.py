"""Test reading the frames of all threads while threads end and the garbage collector runs."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

from pkg import golang
from pkg.golang import debug
from pkg.golang.testing import Held

ROOT = Path(__file__).resolve().parents[2]
# A garbage collection lets other threads run, and the script always produces garbage.
SCRIPT = """
import gc, threading, time
from pkg.golang import debug

class Garbage:
    def __init__(self):
        self.itself = self
    def __del__(self):
        time.sleep(0.0001)

def end_threads():
    while True:
        threads = [threading.Thread(target=time.sleep, args=(0.001,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

threading.Thread(target=end_threads, daemon=True).start()
gc.set_threshold(12)
for _ in range(2000):
    Garbage(); Garbage(); Garbage()
    debug.frames_of_others()
print("well", flush=True)
import os; os._exit(0)
"""


def test_frames_of_threads_that_end() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.stdout == "well\n", ended.stderr


def test_garbage_is_collected_afterwards_if_it_was_before() -> None:
    debug.frames_of_others()
    assert gc.isenabled()
    gc.disable()
    try:
        debug.frames_of_others()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_threads_had_at_hand_is_freed() -> None:
    """The local variables of threads are freed without the garbage collector."""
    held = Held()
    ready, ending = threading.Event(), threading.Event()

    def work() -> None:
        _large = held.new()
        ready.set()
        ending.wait()

    def look() -> None:
        frames = debug.frames_of_others()
        assert frames

    thread = golang.go(work, name="works")
    ready.wait()
    gc.disable()
    try:
        look()
        ending.set()
        thread.join()
        assert held.freed() == [True]
    finally:
        gc.enable()


def test_turns_are_shorter_than_by_default() -> None:
    before = sys.getswitchinterval()
    try:
        debug.take_short_turns()
        assert sys.getswitchinterval() < before
    finally:
        sys.setswitchinterval(before)


def test_what_is_there_is_left_out_of_collections() -> None:
    garbage = _Garbage()
    garbage.itself = garbage
    seen = weakref.ref(garbage)
    del garbage
    try:
        debug.spare_what_stays()
        assert seen() is None, "what was garbage before is collected first"
        assert len(gc.get_objects()) < gc.get_freeze_count()
    finally:
        gc.unfreeze()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python puts no full collection off")
def test_what_is_left_out_of_collections_does_not_put_them_off() -> None:
    kept: list[list[object]] = []
    try:
        debug.spare_what_stays()
        before = gc.get_stats()[2]["collections"]
        for _ in range(2 * gc.get_threshold()[2]):
            kept += [[] for _ in range(100)]
            gc.collect(1)
        # These objects trigger a collection of the youngest generation, and of older generations that are due.
        kept += [[] for _ in range(2 * gc.get_threshold()[0])]
        assert gc.get_stats()[2]["collections"] > before
    finally:
        gc.unfreeze()


class _Garbage:
    itself: object = None
