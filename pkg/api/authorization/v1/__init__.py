"""Define authorization.k8s.io/v1: access reviews.

Go: k8s.io/api/authorization/v1
"""

from pkg.api.authorization.v1 import types as _types
from pkg.api.authorization.v1.types import *  # noqa: F403

__all__ = [*_types.__all__]
