"""Record what each pod worker is doing.

Go: none

A worker's context carries its Position. Code that may take long records an activity for the time of a block:

    with activity.doing(ctx, Activity.WAITS_FOR_VOLUMES):
        self.volume_manager.wait_for_attach_and_mount(ctx, pod)

With any other context the block runs without a record. The services that call the runtime record their calls
themselves.
"""

from __future__ import annotations

import enum
from types import TracebackType

from pkg import golang

_KEY = object()


class Activity(enum.Enum):
    """Name the activities that may take a pod worker a long time."""

    BETWEEN_STEPS = enum.auto()
    WAITS_FOR_UPDATE = enum.auto()
    # The worker waits until the PLEG has seen the effect of the last step.
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
    # The worker waits for its turn to pull an image.
    WAITS_FOR_PULL = enum.auto()
    RUNS_POST_START_HOOK = enum.auto()
    STOPS_CONTAINERS = enum.auto()
    WAITS_FOR_UNMOUNT = enum.auto()
    # The worker waits until nothing is mounted below the pod's directory.
    WAITS_FOR_VOLUME_PATHS = enum.auto()


class Position:
    """Hold what one worker is doing. Only the worker's own thread writes the fields; any thread may read them."""

    __slots__ = ("activity", "failed_at")

    def __init__(self) -> None:
        # `activity` is None while the worker has no thread.
        self.activity: Activity | None = None
        # `failed_at` is the innermost activity that ended with an exception, or None once another activity has begun.
        self.failed_at: Activity | None = None


def with_position(ctx: golang.Context, position: Position) -> golang.Context:
    """Return a context that carries the worker's position."""
    return golang.with_value(ctx, _KEY, position)


class doing:  # The name is in lower case because callers use the class like a function.
    """Record in the context's worker that it does this activity; restore the previous activity at the end."""

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
