"""Define the core API group, version 1: pods, nodes, volumes, events.

Go: k8s.io/api/core/v1
"""

from pkg.api.core.v1 import constants as _constants
from pkg.api.core.v1 import types as _types
from pkg.api.core.v1.constants import *  # noqa: F403
from pkg.api.core.v1.options import PodLogOptions
from pkg.api.core.v1.partial import PartialPod
from pkg.api.core.v1.types import *  # noqa: F403
from pkg.apimachinery.runtime.codec import deepcopy

__all__ = [
    "PartialPod",
    "PodLogOptions",
    *_types.__all__,
    *(name for name in vars(_constants) if name[:1].isupper()),
    "deepcopy",
]
