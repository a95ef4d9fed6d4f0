"""What volumes may not ask for.

Go: pkg/volume/validation/pv_validation.go
"""

from __future__ import annotations


def validate_path_no_backsteps(path: str) -> None:
    """Raises ValueError for a path with a '..' component."""
    if ".." in path.split("/"):
        raise ValueError("must not contain '..'")
