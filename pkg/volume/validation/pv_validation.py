"""Validate paths of volumes.

Go: pkg/volume/validation/pv_validation.go
"""

from __future__ import annotations


def validate_path_no_backsteps(path: str) -> None:
    """Raise ValueError for a path with a '..' component."""
    if ".." in path.split("/"):
        raise ValueError("must not contain '..'")
