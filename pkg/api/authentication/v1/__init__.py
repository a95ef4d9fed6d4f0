"""Define authentication.k8s.io/v1: token reviews, and tokens of service accounts.

Go: k8s.io/api/authentication/v1
"""

from pkg.api.authentication.v1 import types as _types
from pkg.api.authentication.v1.types import *  # noqa: F403

__all__ = [*_types.__all__]
