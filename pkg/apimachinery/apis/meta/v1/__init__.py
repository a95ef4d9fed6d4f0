"""Define the metadata that every API object carries, and helpers for its timestamps.

Go: k8s.io/apimachinery/pkg/apis/meta/v1
"""

import datetime

from pkg.apimachinery.apis.meta.v1 import options as _options
from pkg.apimachinery.apis.meta.v1 import types as _types
from pkg.apimachinery.apis.meta.v1.helpers import label_selector_as_selector
from pkg.apimachinery.apis.meta.v1.options import *  # noqa: F403
from pkg.apimachinery.apis.meta.v1.types import *  # noqa: F403
from pkg.apimachinery.runtime.codec import deepcopy

CONDITION_TRUE = "True"
CONDITION_FALSE = "False"
CONDITION_UNKNOWN = "Unknown"
NAMESPACE_DEFAULT = "default"
NAMESPACE_SYSTEM = "kube-system"


def now() -> datetime.datetime:
    """Return the current time in UTC, truncated to whole seconds as in the API."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def micro_time(time: datetime.datetime) -> datetime.datetime:
    """Return a time with microseconds, as events and leases contain it.

    The API server refuses such a time without a fraction, and the encoder omits a zero fraction. A zero fraction
    therefore becomes one microsecond.
    """
    return time.replace(microsecond=time.microsecond or 1)


__all__ = [
    *_options.__all__,
    *_types.__all__,
    "CONDITION_FALSE",
    "CONDITION_TRUE",
    "CONDITION_UNKNOWN",
    "NAMESPACE_DEFAULT",
    "NAMESPACE_SYSTEM",
    "deepcopy",
    "label_selector_as_selector",
    "micro_time",
    "now",
]
