"""List the volume plugins of this kubelet.

Go: cmd/kubelet/app/plugins.go
"""

from __future__ import annotations

from pkg import volume
from pkg.volume import configmap, csi, downwardapi, emptydir, hostpath, image, iscsi, local, nfs, projected, secret


def probe_volume_plugins() -> list[volume.VolumePlugin]:
    """Return one instance of each volume plugin."""
    return [
        *emptydir.probe_volume_plugins(),
        *hostpath.probe_volume_plugins(),
        *nfs.probe_volume_plugins(),
        *iscsi.probe_volume_plugins(),
        *secret.probe_volume_plugins(),
        *downwardapi.probe_volume_plugins(),
        *configmap.probe_volume_plugins(),
        *projected.probe_volume_plugins(),
        *image.probe_volume_plugins(),
        *local.probe_volume_plugins(),
        *csi.probe_volume_plugins(),
    ]
