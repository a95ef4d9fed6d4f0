"""Define the parts and results of operations on volumes, and errors that show the state of the volume.

Go: pkg/volume/util/types/types.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pkg import golang, klog, mount_utils
from pkg.apimachinery.util.runtime import contain

# This annotation of a claim names the component that expands its volume.
VOLUME_RESIZER_KEY = "volume.kubernetes.io/storage-resizer"
# This annotation of a claim says that the expansion on the storage server was enough, and that the nodes have nothing
# to do.
NODE_EXPANSION_NOT_REQUIRED = "volume.kubernetes.io/node-expansion-not-required"


@dataclass(frozen=True, slots=True)
class OperationContext:
    """Hold an operation's result: the error for the pod's event, and the error for the log.

    migrated says whether a CSI driver replaced the in-tree plugin.
    """

    event_err: Exception | None = None
    detailed_err: Exception | None = None
    migrated: bool = False


@dataclass(frozen=True, slots=True)
class CompleteFuncParam:
    """Hold what the metrics record about a finished operation."""

    err: Exception | None
    migrated: bool


@dataclass(frozen=True, slots=True)
class GeneratedOperations:
    """Hold an operation that is ready to run, and the functions to call at its end."""

    operation_name: str
    operation_func: Callable[[], OperationContext]
    event_recorder_func: Callable[[Exception | None], None] | None = None
    complete_func: Callable[[CompleteFuncParam], None] | None = None

    def run(self) -> OperationContext:
        """Run the operation, then record its event and its metrics.

        This method never raises: an unexpected error is logged and becomes the detailed error. The errors have no
        tracebacks, because the caller keeps them in a variable, and their frames would stay in memory.
        """
        try:
            context = self.operation_func()
        except Exception as err:  # As in Go, a crash counts as a failure of the operation.
            klog.error_s(err, "Volume operation crashed", operation=self.operation_name)
            context = OperationContext(detailed_err=err)
        for each in (context.event_err, context.detailed_err):
            if each is not None:
                golang.without_frames(each)
        if self.event_recorder_func is not None:
            with contain(
                "Failed to record the event of a volume operation", golang.background(), operation=self.operation_name
            ):
                self.event_recorder_func(context.event_err)
        if self.complete_func is not None:
            with contain(
                "Failed to record the metrics of a volume operation", golang.background(), operation=self.operation_name
            ):
                self.complete_func(CompleteFuncParam(context.detailed_err, context.migrated))
        return context


class FailedPreconditionError(Exception):
    """Signal that a CSI driver has reported an unmet precondition."""


class InfeasibleError(Exception):
    """Signal that a CSI driver can never bring the volume to the requested state."""


class OperationNotSupportedError(Exception):
    """Signal that the driver does not support the operation."""


class TransientOperationFailure(Exception):
    """Signal that the operation failed without any effect, and may succeed if it is retried."""


class UncertainProgressError(Exception):
    """Signal that the operation failed or timed out, and may still be in progress."""


def is_operation_finished_error(err: Exception | None) -> bool:
    """Report whether the error means that nothing is in progress any more."""
    return not isinstance(err, UncertainProgressError | TransientOperationFailure)


def is_filesystem_mismatch_error(err: Exception | None) -> bool:
    """Report whether a mount failed because the device holds another file system than the volume requires."""
    while err is not None:
        if isinstance(err, mount_utils.MountError):
            return err.type is mount_utils.MountErrorType.FILESYSTEM_MISMATCH
        err = err.__cause__ if isinstance(err.__cause__, Exception) else None
    return False
