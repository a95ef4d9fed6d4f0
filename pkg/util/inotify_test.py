from __future__ import annotations

import errno
import os
import threading

import pytest

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
