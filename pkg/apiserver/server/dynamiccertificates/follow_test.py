"""Test that no failure ends the watch for changes of files."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from pkg import golang
from pkg.apiserver.server.dynamiccertificates import follow
from pkg.util.testing import open_inotify_instances

_WAIT = 30.0


def test_a_load_that_fails_is_tried_again_with_the_next_change(tmp_path: Path, log: io.StringIO) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    loads = golang.Channel[None](100)

    def load() -> None:
        loads.send(None)
        raise RecursionError("too deep")

    thread = golang.go(follow.follow, ctx, (str(tmp_path / "file"),), load, "CA", name="certificate-files")
    assert loads.recv(_WAIT)[1]
    (tmp_path / "file").write_text("changed")
    assert loads.recv(_WAIT)[1]
    cancel()
    thread.join(_WAIT)
    assert not thread.is_alive()
    assert "Failed to load changed files, keeping the previous ones" in log.getvalue()


def test_without_a_thread_for_inotify_the_files_are_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, cancel = golang.with_cancel(golang.background())

    def start(self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    before = open_inotify_instances()
    follow.follow(ctx, (str(tmp_path / "file"),), cancel, "CA")
    assert ctx.err() is not None
    assert open_inotify_instances() <= before
