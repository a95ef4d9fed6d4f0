"""Change the log verbosity while the program runs.

Go: k8s.io/component-base/logs/logs.go
"""

from __future__ import annotations

import re

from pkg import klog

_MAX_LEVEL = 2**31 - 1
_DECIMAL = re.compile(r"[0-9]+")


def glog_setter(value: str) -> str:
    """Set the verbosity to a number, and return a message that confirms it; raise ValueError on failure."""
    if not _DECIMAL.fullmatch(value):
        raise ValueError(f'strconv.ParseUint: parsing "{value}": invalid syntax')
    if len(value) > len(str(_MAX_LEVEL)) or int(value) > _MAX_LEVEL:
        raise ValueError(f'strconv.ParseUint: parsing "{value}": value out of range')
    klog.set_verbosity(int(value))
    return f"successfully set klog.logging.verbosity to {value}"
