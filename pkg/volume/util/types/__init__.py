"""Define the parts and results of operations on volumes, and errors that show the state of the volume.

Go: pkg/volume/util/types
"""

from pkg.volume.util.types.types import (
    NODE_EXPANSION_NOT_REQUIRED,
    VOLUME_RESIZER_KEY,
    CompleteFuncParam,
    FailedPreconditionError,
    GeneratedOperations,
    InfeasibleError,
    OperationContext,
    OperationNotSupportedError,
    TransientOperationFailure,
    UncertainProgressError,
    is_filesystem_mismatch_error,
    is_operation_finished_error,
)

__all__ = [
    "NODE_EXPANSION_NOT_REQUIRED",
    "VOLUME_RESIZER_KEY",
    "CompleteFuncParam",
    "FailedPreconditionError",
    "GeneratedOperations",
    "InfeasibleError",
    "OperationContext",
    "OperationNotSupportedError",
    "TransientOperationFailure",
    "UncertainProgressError",
    "is_filesystem_mismatch_error",
    "is_operation_finished_error",
]
