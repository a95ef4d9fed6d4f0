"""What a pod's worker is at, told by the code that it runs.

Go: none

A worker's context knows its Position. Code that may take long says so for the time of a block:

    with activity.doing(ctx, Activity.WAITS_FOR_VOLUMES):
        self.volume_manager.wait_for_attach_and_mount(ctx, pod)

With any other context that does nothing. Calls of the runtime are told by the services that make them.
"""

from __future__ import annotations

import enum
from types import TracebackType

from pkg import golang

_KEY = object()


class Activity(enum.Enum):
    """What may take a worker long."""

    BETWEEN_STEPS = enum.auto()
    WAITS_FOR_UPDATE = enum.auto()
    # For the PLEG to see what the last step did.
    WAITS_FOR_STATUS = enum.auto()
    SYNCS = enum.auto()
    TERMINATES = enum.auto()
    CLEANS_UP = enum.auto()
    MAKES_CGROUP = enum.auto()
    RECONCILES_MIRROR_POD = enum.auto()
    MAKES_DIRECTORIES = enum.auto()
    WAITS_FOR_VOLUMES = enum.auto()
    READS_PULL_SECRETS = enum.auto()
    ENSURES_IMAGE = enum.auto()
    # For its turn to pull an image.
    WAITS_FOR_PULL = enum.auto()
    RUNS_POST_START_HOOK = enum.auto()
    STOPS_CONTAINERS = enum.auto()
    WAITS_FOR_UNMOUNT = enum.auto()
    # Until nothing is mounted below its directory any more.
    WAITS_FOR_VOLUME_PATHS = enum.auto()


class Position:
    """What one worker is at. Written by its thread alone, read by any."""

    __slots__ = ("activity", "failed_at")

    def __init__(self) -> None:
        # None while there is no thread.
        self.activity: Activity | None = None
        # The innermost activity that an exception has left; None once another has begun.
        self.failed_at: Activity | None = None


def with_position(ctx: golang.Context, position: Position) -> golang.Context:
    """The context for what a worker does."""
    return golang.with_value(ctx, _KEY, position)


class doing:  # it reads as a function
    """A context manager: for the time of the block, the worker whose context this is does that."""

    __slots__ = ("_activity", "_before", "_position")

    def __init__(self, ctx: golang.Context, activity: Activity) -> None:
        self._position: Position | None = ctx.value(_KEY)
        self._activity = activity
        self._before: Activity | None = None

    def __enter__(self) -> None:
        if (position := self._position) is not None:
            self._before, position.activity = position.activity, self._activity
            position.failed_at = None

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (position := self._position) is not None:
            position.activity = self._before
            if kind is not None and position.failed_at is None:
                position.failed_at = self._activity
