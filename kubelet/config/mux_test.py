"""Test the mux of pod sources."""

from __future__ import annotations

import pytest

from kubelet.config import mux as muxes
from kubelet.config.testing import FakeMerger
from pkg import golang

_DEADLINE = 30.0


def test_configuration_channels() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    mux: muxes.Mux[str] = muxes.Mux(FakeMerger())
    one = mux.channel_with_context(ctx, "one")
    assert mux.channel_with_context(ctx, "one") is one
    assert mux.channel_with_context(ctx, "two") is not one
    assert one.maxsize == 0
    cancel()


def test_merge_invoked() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    merger = FakeMerger()
    mux: muxes.Mux[str] = muxes.Mux(merger)
    mux.channel_with_context(ctx, "one").send("test", ctx)
    assert merger.merged.recv(timeout=_DEADLINE) == (("one", "test"), True)
    mux.channel_with_context(ctx, "two").send("test2", ctx)
    assert merger.merged.recv(timeout=_DEADLINE) == (("two", "test2"), True)
    assert merger.threads == {"config-mux-one", "config-mux-two"}
    cancel()


def test_sender_gives_up_with_the_context() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    channel = muxes.Mux(FakeMerger()).channel_with_context(ctx, "one")
    cancel()
    with pytest.raises(golang.Canceled):
        while True:
            channel.send("late", ctx)


def test_empty_name() -> None:
    with pytest.raises(ValueError, match="empty name"):
        muxes.Mux(FakeMerger()).channel_with_context(golang.background(), "")


def test_update_that_cannot_be_merged_leaves_the_source_alive() -> None:
    class Failing(FakeMerger):
        def merge(self, ctx: golang.Context, source: str, update: str) -> bool:
            if update == "bad":
                raise OverflowError("surprise")
            return super().merge(ctx, source, update)

    ctx, cancel = golang.with_cancel(golang.background())
    merger = Failing()
    channel = muxes.Mux(merger).channel_with_context(ctx, "one")
    channel.send("bad", ctx)
    channel.send("good", ctx)
    assert merger.merged.recv(timeout=_DEADLINE) == (("one", "good"), True)
    cancel()


@pytest.mark.parametrize("raises", [False, True])
def test_update_that_was_not_merged_comes_again(monkeypatch: pytest.MonkeyPatch, raises: bool) -> None:
    class Failing(FakeMerger):
        failed = False

        def merge(self, ctx: golang.Context, source: str, update: str) -> bool:
            if not self.failed:
                self.failed = True
                if raises:
                    raise MemoryError
                return False
            return super().merge(ctx, source, update)

    monkeypatch.setattr(muxes, "_RETRY_PERIOD", 0.01)
    ctx, cancel = golang.with_cancel(golang.background())
    merger = Failing()
    channel = muxes.Mux(merger).channel_with_context(ctx, "one")
    channel.send("once", ctx)
    assert merger.merged.recv(timeout=_DEADLINE) == (("one", "once"), True)
    channel.send("next", ctx)
    assert merger.merged.recv(timeout=_DEADLINE) == (("one", "next"), True)
    cancel()


def test_update_that_was_not_merged_gives_way_to_the_next() -> None:
    class Failing(FakeMerger):
        def merge(self, ctx: golang.Context, source: str, update: str) -> bool:
            return super().merge(ctx, source, update) and update != "bad"

    ctx, cancel = golang.with_cancel(golang.background())
    merger = Failing()
    channel = muxes.Mux(merger).channel_with_context(ctx, "one")
    for update in ("bad", "good"):
        channel.send(update, ctx)
        assert merger.merged.recv(timeout=_DEADLINE) == (("one", update), True)
    cancel()
