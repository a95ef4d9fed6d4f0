from __future__ import annotations

import errno
import os
import queue
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from watchdog.observers import inotify_c

from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.util import inotify
from pkg.util.testing import open_files, open_inotify_instances


@pytest.mark.parametrize("err", [RuntimeError("can't start new thread"), MemoryError()])
def test_instance_without_a_thread_is_given_back(monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    def refuse(self: threading.Thread) -> None:
        raise err

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = open_files()
    with pytest.raises(OSError, match="start thread 'watch'"):
        inotify.start("watch")
    assert open_files() <= before


def test_instance_without_a_pipe_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe", refuse)
    before = open_inotify_instances()
    with pytest.raises(OSError, match="Too many open files"):
        inotify.start("watch")
    assert open_inotify_instances() <= before


def test_instance_that_is_stopped_before_its_thread_has_begun_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    run = inotify.Inotify.run

    def begin_late(self: inotify.Inotify) -> None:
        self.stopped_event.wait(30)
        run(self)

    monkeypatch.setattr(inotify.Inotify, "run", begin_late)
    before = open_files()
    watching = inotify.start("watch")
    watching.stop()
    watching.join()
    assert open_files() <= before


@dataclass(eq=False)
class _Heard:
    """Record the names of created files, and "lost" when events were lost."""

    names: queue.Queue[str] = field(default_factory=queue.Queue)

    def on_event(self, event: inotify_c.InotifyEvent) -> None:
        self.names.put(os.fsdecode(event.name))

    def on_watch_deleted(self, wd: inotify_c.WatchDescriptor) -> None:
        """Do nothing, because no test needs this event."""

    def on_queue_overflow(self) -> None:
        self.names.put("lost")


@failures
@pytest.mark.parametrize("method", ["read_events", "_check_inotify_fd", "handle_event"])
def test_failure_is_told_as_a_loss_of_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, err: Exception
) -> None:
    monkeypatch.setattr(inotify, "_RETRY_PERIOD", 0)
    monkeypatch.setattr(inotify.Inotify, method, failing_once(getattr(inotify.Inotify, method), err))
    before, heard = open_files(), _Heard()
    watching = inotify.Inotify("watch")
    mask = inotify_c.Mask(inotify_c.InotifyConstants.IN_CREATE)
    watching.add_callback(os.fsencode(tmp_path), mask, heard, inotify_c.CallbackId(1))
    watching.start()
    (tmp_path / "first").touch()
    assert heard.names.get(timeout=30) == "lost"
    (tmp_path / "second").touch()
    while heard.names.get(timeout=30) != "second":
        pass
    watching.stop()
    watching.join()
    assert open_files() <= before


@failures
def test_instance_that_is_stopped_after_a_failure_is_given_back(
    monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    failed = threading.Event()

    def fail(self: inotify.Inotify) -> bool:
        failed.set()
        self.stopped_event.wait(30)
        raise err.with_traceback(None)

    monkeypatch.setattr(inotify.Inotify, "_check_inotify_fd", fail)
    before = open_files()
    watching = inotify.start("watch")
    assert failed.wait(30)
    watching.stop()
    watching.join()
    assert open_files() <= before
