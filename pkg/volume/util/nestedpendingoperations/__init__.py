"""Run operations in the background, never two conflicting ones at the same time.

Go: pkg/volume/util/nestedpendingoperations
"""

from pkg.volume.util.nestedpendingoperations.nestedpendingoperations import (
    EMPTY_NODE_NAME,
    EMPTY_UNIQUE_POD_NAME,
    EMPTY_UNIQUE_VOLUME_NAME,
    AlreadyExistsError,
    NestedPendingOperations,
)

__all__ = [
    "EMPTY_NODE_NAME",
    "EMPTY_UNIQUE_POD_NAME",
    "EMPTY_UNIQUE_VOLUME_NAME",
    "AlreadyExistsError",
    "NestedPendingOperations",
]
