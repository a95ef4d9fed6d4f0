"""The authorization.k8s.io API group, version 1: who may do what.

Go: k8s.io/api/authorization/v1
"""

from pkg.api.authorization.v1 import types as _types
from pkg.api.authorization.v1.types import *  # noqa: F403

__all__ = [*_types.__all__]
