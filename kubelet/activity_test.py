"""Test the record of what a worker is doing."""

from __future__ import annotations

import contextlib

import pytest

from kubelet.activity import Activity, Position, doing, with_position
from pkg import golang


@pytest.fixture
def position() -> Position:
    return Position()


@pytest.fixture
def ctx(position: Position) -> golang.Context:
    return with_position(golang.background(), position)


def test_innermost_activity_counts(position: Position, ctx: golang.Context) -> None:
    seen = []
    with doing(ctx, Activity.SYNCS):
        with doing(ctx, Activity.WAITS_FOR_VOLUMES):
            seen.append(position.activity)
        seen.append(position.activity)
    seen.append(position.activity)
    assert seen == [Activity.WAITS_FOR_VOLUMES, Activity.SYNCS, None]
    assert position.failed_at is None


def test_innermost_activity_has_failed(position: Position, ctx: golang.Context) -> None:
    with pytest.raises(OSError), doing(ctx, Activity.SYNCS), doing(ctx, Activity.MAKES_CGROUP):
        raise OSError
    assert (position.activity, position.failed_at) == (None, Activity.MAKES_CGROUP)


def test_failure_that_the_step_survives(position: Position, ctx: golang.Context) -> None:
    with doing(ctx, Activity.SYNCS):
        with contextlib.suppress(OSError), doing(ctx, Activity.ENSURES_IMAGE):
            raise OSError
        with doing(ctx, Activity.RUNS_POST_START_HOOK):
            pass
    assert position.failed_at is None


def test_context_of_nobody() -> None:
    with doing(golang.background(), Activity.SYNCS):
        pass
