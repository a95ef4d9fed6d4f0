"""What managers of resources tell the kubelet's main loop.

Go: pkg/kubelet/cm/resourceupdates
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Update:
    """Something that these pods hold has changed by itself, a device's health for example."""

    pod_uids: tuple[str, ...]
