"""Define policy/v1: evictions.

Go: k8s.io/api/policy/v1
"""

from pkg.api.policy.v1 import types as _types
from pkg.api.policy.v1.types import *  # noqa: F403

__all__ = [*_types.__all__]
