"""Define coordination.k8s.io/v1: leases.

Go: k8s.io/api/coordination/v1
"""

from pkg.api.coordination.v1 import types as _types
from pkg.api.coordination.v1.types import *  # noqa: F403

__all__ = [*_types.__all__]
