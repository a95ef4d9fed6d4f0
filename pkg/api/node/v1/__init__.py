"""Define node.k8s.io/v1: runtime classes.

Go: k8s.io/api/node/v1
"""

from pkg.api.node.v1 import types as _types
from pkg.api.node.v1.types import *  # noqa: F403

__all__ = [*_types.__all__]
