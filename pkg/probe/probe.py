"""Define the results of a probe.

Go: pkg/probe/probe.go, pkg/probe/util.go
"""

from __future__ import annotations

import enum
import re

from pkg.api.core import v1

_NUMBER = re.compile("[+-]?[0-9]+")


class Result(enum.StrEnum):
    """Describe the result of a probe."""

    SUCCESS = "success"
    # A warning is a success that deserves attention.
    WARNING = "warning"
    FAILURE = "failure"
    UNKNOWN = "unknown"


class BrokenAnswerError(Exception):
    """Signal that a response began and broke off."""


def resolve_container_port(port: int | str, container: v1.Container) -> int:
    """Return the port's number; look a name up among the container's ports. Raise ValueError if there is none."""
    number = port if isinstance(port, int) else _port_by_name(port, container)
    if not 0 < number < 65536:
        raise ValueError(f"invalid port number: {number}")
    return number


def _port_by_name(name: str, container: v1.Container) -> int:
    for port in container.ports:
        if port.name == name:
            return port.container_port
    if not _NUMBER.fullmatch(name):
        raise ValueError(f'strconv.Atoi: parsing "{name}": invalid syntax')
    return int(name)
