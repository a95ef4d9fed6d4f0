"""Define what the resource managers announce to the kubelet's sync loop.

Go: pkg/kubelet/cm/resourceupdates
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Update:
    """Announce that an allocated resource of these pods changed, such as a device's health."""

    pod_uids: tuple[str, ...]
