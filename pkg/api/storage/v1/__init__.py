"""Define storage.k8s.io/v1: CSI drivers, volume attachments, storage classes.

Go: k8s.io/api/storage/v1
"""

from pkg.api.storage.v1 import constants as _constants
from pkg.api.storage.v1 import types as _types
from pkg.api.storage.v1.constants import *  # noqa: F403
from pkg.api.storage.v1.types import *  # noqa: F403

__all__ = [*_types.__all__, *(name for name in vars(_constants) if name[:1].isupper())]
