"""Validate paths of volumes.

Go: pkg/volume/validation
"""

from pkg.volume.validation.pv_validation import validate_path_no_backsteps

__all__ = ["validate_path_no_backsteps"]
