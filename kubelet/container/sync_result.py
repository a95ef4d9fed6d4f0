"""What became of each step of syncing or killing a pod.

Go: pkg/kubelet/container/sync_result.go
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass, field
from typing import Any

from pkg import golang


class BackoffError(Exception):
    """An error after which nothing should be tried before `backoff_time`. Its text is the wrapped error's."""

    def __init__(self, err: Exception, backoff_time: datetime.datetime) -> None:
        super().__init__(str(err))
        self.err = err
        self.backoff_time = backoff_time
        self.__cause__ = err


def min_backoff_expiration(err: BaseException | None) -> datetime.datetime | None:
    """The earliest back-off time of the BackoffErrors in err, its causes and its parts, if any."""
    if err is None:
        return None
    if isinstance(err, BackoffError):
        return err.backoff_time
    parts = err.exceptions if isinstance(err, BaseExceptionGroup) else (err.__cause__,)
    times = [time for time in map(min_backoff_expiration, parts) if time is not None]
    return min(times, default=None)


class ReasonError(Exception):
    """An error whose text is the one-word reason of a container's status; the message goes beside it."""

    reason = ""

    def __init__(self) -> None:
        super().__init__(self.reason)


class ErrCrashLoopBackOff(ReasonError):
    """The container ended, and its restart is not due yet."""

    reason = "CrashLoopBackOff"


class ErrContainerNotFound(ReasonError):
    """The pod has no container of that name that the kubelet manages."""

    reason = "no matching container"


class ErrRunContainer(ReasonError):
    """The runtime did not start a container."""

    reason = "RunContainerError"


class ErrKillContainer(ReasonError):
    """The runtime did not stop a container."""

    reason = "KillContainerError"


class ErrCreatePodSandbox(ReasonError):
    """The runtime did not make a sandbox."""

    reason = "CreatePodSandboxError"


class ErrConfigPodSandbox(ReasonError):
    """The pod's spec gave no sandbox configuration."""

    reason = "ConfigPodSandboxError"


class ErrKillPodSandbox(ReasonError):
    """The runtime did not stop the sandbox."""

    reason = "KillPodSandboxError"


class ErrResizePodInPlace(ReasonError):
    """The runtime did not change the resources of a running pod."""

    reason = "ResizePodInPlaceError"


class ErrRemoveContainer(ReasonError):
    """The runtime did not remove a container."""

    reason = "RemoveContainerError"


class SyncAction(enum.StrEnum):
    """The steps."""

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
    """One step on one target (a container's name, for sandboxes the pod's), and why it failed if it did."""

    action: SyncAction
    target: object
    # The brief reason.
    error: Exception | None = None
    # The long one.
    message: str = ""

    def fail(self, err: Exception, msg: str) -> None:
        """The step failed. Of the error no frames are kept: the result is in a variable of who has called."""
        self.error, self.message = golang.without_frames(err), msg


class SyncActionError(Exception):
    """A step that failed. Its cause is the brief reason."""

    def __init__(self, result: SyncResult) -> None:
        step = f'failed to "{result.action}" for "{result.target}"'
        super().__init__(f'{step} with {result.error}: "{_quoted(result.message)}"')
        self.action = result.action
        self.__cause__ = result.error


def failed_actions(err: BaseException | None) -> frozenset[SyncAction]:
    """The steps whose SyncActionErrors are in err, its causes and its parts. Go: none"""
    if err is None:
        return frozenset()
    if isinstance(err, SyncActionError):
        return frozenset({err.action})
    parts = err.exceptions if isinstance(err, BaseExceptionGroup) else (err.__cause__,)
    return frozenset().union(*map(failed_actions, parts))


class SyncPodError(Exception):
    """The sync failed as a whole. Its cause is why."""

    def __init__(self, err: Exception) -> None:
        super().__init__(f"failed to SyncPod: {err}")
        self.__cause__ = err


class SyncErrors(ExceptionGroup[Exception]):
    """The errors of a sync. Its text is what Go's aggregate of errors shows."""

    def __new__(cls, excs: list[Exception]) -> SyncErrors:
        return super().__new__(cls, "", excs)

    def derive(self, excs: Any) -> SyncErrors:  # type: ignore[override]
        return SyncErrors(list(excs))

    def __str__(self) -> str:
        texts = list(dict.fromkeys(str(err) for err in self.exceptions))
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


@dataclass(slots=True)
class PodSyncResult:
    """All steps of a sync_pod or kill_pod."""

    sync_results: list[SyncResult] = field(default_factory=list)
    # What went wrong outside the steps.
    sync_error: Exception | None = None

    def add_sync_result(self, *results: SyncResult) -> None:
        self.sync_results.extend(results)

    def add_pod_sync_result(self, result: PodSyncResult) -> None:
        """Take over another's steps and its error."""
        self.add_sync_result(*result.sync_results)
        self.sync_error = result.sync_error

    def fail(self, err: Exception) -> None:
        """The sync failed as a whole. The frames of the error, which have all that the sync had, are not kept."""
        self.sync_error = golang.without_frames(err)

    def raise_if_failed(self) -> None:
        """Raises all errors as one, SyncErrors, unless nothing failed."""
        if (errors := self.error()) is not None:
            try:
                raise errors
            finally:
                # The errors have this frame: together they would stay, with all who called, until garbage is collected.
                del errors

    def error(self) -> SyncErrors | None:
        """All errors as one, or None if nothing failed."""
        errors: list[Exception] = []
        if self.sync_error is not None:
            errors.append(SyncPodError(self.sync_error))
        errors.extend(SyncActionError(result) for result in self.sync_results if result.error is not None)
        return SyncErrors(errors) if errors else None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
