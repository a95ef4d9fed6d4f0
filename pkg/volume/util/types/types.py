"""What operations on volumes come to: their parts, and faults that say more than that they failed.

Go: pkg/volume/util/types/types.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pkg import golang, klog, mount_utils
from pkg.apimachinery.util.runtime import contain

# The annotation of a claim that names who expands its volume.
VOLUME_RESIZER_KEY = "volume.kubernetes.io/storage-resizer"
# The annotation of a claim that says that only its server had to expand its volume.
NODE_EXPANSION_NOT_REQUIRED = "volume.kubernetes.io/node-expansion-not-required"


@dataclass(frozen=True, slots=True)
class OperationContext:
    """How an operation ended: what its pod is told, what the log is told, and whether a CSI driver stood in."""

    event_err: Exception | None = None
    detailed_err: Exception | None = None
    migrated: bool = False


@dataclass(frozen=True, slots=True)
class CompleteFuncParam:
    """What is counted of an operation that has ended."""

    err: Exception | None
    migrated: bool


@dataclass(frozen=True, slots=True)
class GeneratedOperations:
    """An operation that is ready to run, and whom to tell of its end."""

    operation_name: str
    operation_func: Callable[[], OperationContext]
    event_recorder_func: Callable[[Exception | None], None] | None = None
    complete_func: Callable[[CompleteFuncParam], None] | None = None

    def run(self) -> OperationContext:
        """Run it and tell everybody. Never raises: a crash is logged and becomes the detailed error.

        The errors have no frames: who runs the operation has them in a variable.
        """
        try:
            context = self.operation_func()
        except Exception as err:  # as in Go a crash counts as the operation's failure
            klog.error_s(err, "Volume operation crashed", operation=self.operation_name)
            context = OperationContext(detailed_err=err)
        for each in (context.event_err, context.detailed_err):
            if each is not None:
                golang.without_frames(each)
        if self.event_recorder_func is not None:
            with contain("Failed to tell of a volume operation", golang.background(), operation=self.operation_name):
                self.event_recorder_func(context.event_err)
        if self.complete_func is not None:
            with contain("Failed to count a volume operation", golang.background(), operation=self.operation_name):
                self.complete_func(CompleteFuncParam(context.detailed_err, context.migrated))
        return context


class FailedPreconditionError(Exception):
    """A CSI driver said that a precondition does not hold."""


class InfeasibleError(Exception):
    """A CSI driver said that a volume cannot ever be made as asked."""


class OperationNotSupportedError(Exception):
    """The driver does not know the operation."""


class TransientOperationFailure(Exception):
    """It failed and did nothing, and may well succeed when tried again."""


class UncertainProgressError(Exception):
    """It failed, or timed out, and may still be going on somewhere."""


def is_operation_finished_error(err: Exception | None) -> bool:
    """Whether the error says that nothing goes on any more."""
    return not isinstance(err, UncertainProgressError | TransientOperationFailure)


def is_filesystem_mismatch_error(err: Exception | None) -> bool:
    """Whether a mount failed because the device holds another file system than the volume asks for."""
    while err is not None:
        if isinstance(err, mount_utils.MountError):
            return err.type is mount_utils.MountErrorType.FILESYSTEM_MISMATCH
        err = err.__cause__ if isinstance(err.__cause__, Exception) else None
    return False
