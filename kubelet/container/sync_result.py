"""Describe the result of each step of syncing or killing a pod.

Go: pkg/kubelet/container/sync_result.go
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass, field
from typing import Any

from pkg import golang


class BackoffError(Exception):
    """Signal an error after which the next attempt must wait until `backoff_time`.

    The text is that of the wrapped error.
    """

    def __init__(self, err: Exception, backoff_time: datetime.datetime) -> None:
        super().__init__(str(err))
        self.err = err
        self.backoff_time = backoff_time
        self.__cause__ = err


def min_backoff_expiration(err: BaseException | None) -> datetime.datetime | None:
    """Return the earliest backoff time of all BackoffErrors in `err`, its causes and its parts, or None."""
    if err is None:
        return None
    if isinstance(err, BackoffError):
        return err.backoff_time
    parts = err.exceptions if isinstance(err, BaseExceptionGroup) else (err.__cause__,)
    times = [time for time in map(min_backoff_expiration, parts) if time is not None]
    return min(times, default=None)


class ReasonError(Exception):
    """Signal an error whose text is the one-word reason in a container's status; the message is stored elsewhere."""

    reason = ""

    def __init__(self) -> None:
        super().__init__(self.reason)


class ErrCrashLoopBackOff(ReasonError):
    """Signal that the container has exited and is still in backoff."""

    reason = "CrashLoopBackOff"


class ErrContainerNotFound(ReasonError):
    """Signal that the kubelet manages no container with this name in the pod."""

    reason = "no matching container"


class ErrRunContainer(ReasonError):
    """Signal that the runtime failed to start a container."""

    reason = "RunContainerError"


class ErrKillContainer(ReasonError):
    """Signal that the runtime failed to stop a container."""

    reason = "KillContainerError"


class ErrCreatePodSandbox(ReasonError):
    """Signal that the runtime failed to create a sandbox."""

    reason = "CreatePodSandboxError"


class ErrConfigPodSandbox(ReasonError):
    """Signal that no sandbox configuration could be generated from the pod's spec."""

    reason = "ConfigPodSandboxError"


class ErrKillPodSandbox(ReasonError):
    """Signal that the runtime failed to stop the sandbox."""

    reason = "KillPodSandboxError"


class ErrResizePodInPlace(ReasonError):
    """Signal that the runtime failed to change the resources of a running pod."""

    reason = "ResizePodInPlaceError"


class ErrRemoveContainer(ReasonError):
    """Signal that the runtime failed to remove a container."""

    reason = "RemoveContainerError"


class SyncAction(enum.StrEnum):
    """Name the steps of a sync."""

    START_CONTAINER = "StartContainer"
    KILL_CONTAINER = "KillContainer"
    INIT_CONTAINER = "InitContainer"
    CREATE_POD_SANDBOX = "CreatePodSandbox"
    CONFIG_POD_SANDBOX = "ConfigPodSandbox"
    KILL_POD_SANDBOX = "KillPodSandbox"
    RESIZE_POD_IN_PLACE = "ResizePodInPlace"
    REMOVE_CONTAINER = "RemoveContainer"


START_CONTAINER = SyncAction.START_CONTAINER
KILL_CONTAINER = SyncAction.KILL_CONTAINER
INIT_CONTAINER = SyncAction.INIT_CONTAINER
CREATE_POD_SANDBOX = SyncAction.CREATE_POD_SANDBOX
CONFIG_POD_SANDBOX = SyncAction.CONFIG_POD_SANDBOX
KILL_POD_SANDBOX = SyncAction.KILL_POD_SANDBOX
RESIZE_POD_IN_PLACE = SyncAction.RESIZE_POD_IN_PLACE
REMOVE_CONTAINER = SyncAction.REMOVE_CONTAINER


@dataclass(slots=True)
class SyncResult:
    """Hold the result of one step on one target, which is the name of a container or, for sandboxes, of the pod."""

    action: SyncAction
    target: object
    # `error` gives the reason in one word.
    error: Exception | None = None
    # `message` gives the details.
    message: str = ""

    def fail(self, err: Exception, msg: str) -> None:
        """Record that the step failed.

        The error is stored without its frames, because a variable of a caller holds the result.
        """
        self.error, self.message = golang.without_frames(err), msg


class SyncActionError(Exception):
    """Signal that a step failed. The cause is the reason in one word."""

    def __init__(self, result: SyncResult) -> None:
        step = f'failed to "{result.action}" for "{result.target}"'
        super().__init__(f'{step} with {result.error}: "{_quoted(result.message)}"')
        self.action = result.action
        self.__cause__ = result.error


def failed_actions(err: BaseException | None) -> frozenset[SyncAction]:
    """Return the steps of all SyncActionErrors in `err`, its causes and its parts.

    Go: none
    """
    if err is None:
        return frozenset()
    if isinstance(err, SyncActionError):
        return frozenset({err.action})
    parts = err.exceptions if isinstance(err, BaseExceptionGroup) else (err.__cause__,)
    return frozenset().union(*map(failed_actions, parts))


class SyncPodError(Exception):
    """Signal that the sync failed as a whole. The cause tells why."""

    def __init__(self, err: Exception) -> None:
        super().__init__(f"failed to SyncPod: {err}")
        self.__cause__ = err


class SyncErrors(ExceptionGroup[Exception]):
    """Group the errors of a sync. The text equals that of Go's aggregate of errors."""

    def __new__(cls, excs: list[Exception]) -> SyncErrors:
        return super().__new__(cls, "", excs)

    def derive(self, excs: Any) -> SyncErrors:  # type: ignore[override]
        return SyncErrors(list(excs))

    def __str__(self) -> str:
        texts = list(dict.fromkeys(str(err) for err in self.exceptions))
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


@dataclass(slots=True)
class PodSyncResult:
    """Hold the results of all steps of a sync_pod or kill_pod."""

    sync_results: list[SyncResult] = field(default_factory=list)
    # `sync_error` is an error outside the steps.
    sync_error: Exception | None = None

    def add_sync_result(self, *results: SyncResult) -> None:
        self.sync_results.extend(results)

    def add_pod_sync_result(self, result: PodSyncResult) -> None:
        """Add the steps of another result, and take over its error."""
        self.add_sync_result(*result.sync_results)
        self.sync_error = result.sync_error

    def fail(self, err: Exception) -> None:
        """Record that the sync failed as a whole.

        The error is stored without its frames, which hold all data of the sync.
        """
        self.sync_error = golang.without_frames(err)

    def raise_if_failed(self) -> None:
        """Raise all errors as one SyncErrors, unless nothing failed."""
        if (errors := self.error()) is not None:
            try:
                raise errors
            finally:
                # The errors refer to this frame. Without the deletion, the cycle would keep them and the callers'
                # frames alive until garbage collection.
                del errors

    def error(self) -> SyncErrors | None:
        """Return all errors as one, or None if nothing failed."""
        errors: list[Exception] = []
        if self.sync_error is not None:
            errors.append(SyncPodError(self.sync_error))
        errors.extend(SyncActionError(result) for result in self.sync_results if result.error is not None)
        return SyncErrors(errors) if errors else None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
