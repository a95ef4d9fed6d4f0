"""Define small types that the whole kubelet shares.

Go: pkg/kubelet/types/types.go
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity

# A ResolvedPodUID is a pod's UID; that of a mirror pod has been translated to the UID of its static pod.
ResolvedPodUID = NewType("ResolvedPodUID", str)
# A MirrorPodUID is the UID that the API server assigned to a mirror pod.
MirrorPodUID = NewType("MirrorPodUID", str)

_ZERO_TIME = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


class Timestamp:
    """Represent a time that annotations contain with nine fractional digits.

    DIVERGES (platform): in the times that the kubelet writes into annotations of pods, the last three digits are zeros.
    Go: pkg/kubelet/types/types.go, (*Timestamp).GetString: the Go kubelet writes nanoseconds.
    Why: Python's datetime has a resolution of microseconds.
    Test: types_test.py:test_timestamp
    """

    __slots__ = ("_time",)

    def __init__(self, time: datetime.datetime | None = None) -> None:
        self._time = time if time is not None else datetime.datetime.now(datetime.UTC)

    def get(self) -> datetime.datetime:
        return self._time

    def get_string(self) -> str:
        text = self._time.strftime("%Y-%m-%dT%H:%M:%S.%f000")
        offset = self._time.strftime("%z")
        return text + ("Z" if offset in ("", "+0000") else f"{offset[:3]}:{offset[3:5]}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self._time == other._time

    def __hash__(self) -> int:
        return hash(self._time)

    def __repr__(self) -> str:
        return f"Timestamp({self.get_string()})"


def convert_to_timestamp(time_string: str) -> Timestamp:
    """Parse the output of Timestamp.get_string; other text gives the zero time in year 1, as in Go."""
    try:
        return Timestamp(golang.parse_rfc3339(time_string))
    except ValueError:
        return Timestamp(_ZERO_TIME)


def sorted_container_statuses(statuses: list[v1.ContainerStatus]) -> list[v1.ContainerStatus]:
    """Sort the statuses by container name, so that their order is the same in each report."""
    return sorted(statuses, key=lambda s: s.name)


def sort_init_container_statuses(pod: v1.Pod, statuses: list[v1.ContainerStatus]) -> None:
    """Sort the statuses in place by the order of the spec's init containers; unknown ones come last."""
    current = 0
    for container in pod.spec.init_containers:
        for j in range(current, len(statuses)):
            if container.name == statuses[j].name:
                statuses[current], statuses[j] = statuses[j], statuses[current]
                current += 1
                break


def sort_statuses_of_init_containers(
    pod: v1.Pod, status_map: Mapping[str, v1.ContainerStatus]
) -> list[v1.ContainerStatus]:
    """Return the statuses of the pod's init containers in the order of the spec."""
    return [status_map[c.name] for c in pod.spec.init_containers if c.name in status_map]


@dataclass(slots=True)
class Reservation:
    """Hold the resources that pods cannot use."""

    system: dict[str, Quantity] = field(default_factory=dict)
    kubernetes: dict[str, Quantity] = field(default_factory=dict)
