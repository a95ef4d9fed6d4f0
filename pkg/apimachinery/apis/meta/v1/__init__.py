"""Metadata that every API object carries, and the times it is written with.

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
    """The present in UTC, cut to whole seconds as the API stores it."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def micro_time(time: datetime.datetime) -> datetime.datetime:
    """The time to the microsecond, as events and leases store it.

    The API server refuses such a time without a fraction, and a fraction of zero is not written: it becomes one.
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
