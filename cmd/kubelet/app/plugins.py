"""The volume plugins that this kubelet has.

Go: cmd/kubelet/app/plugins.go
"""

from __future__ import annotations

from pkg import volume
from pkg.volume import emptydir, hostpath


def probe_volume_plugins() -> list[volume.VolumePlugin]:
    """One instance of each plugin."""
    return [*emptydir.probe_volume_plugins(), *hostpath.probe_volume_plugins()]
