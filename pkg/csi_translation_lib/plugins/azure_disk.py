"""Translate disks of Azure.

Go: k8s.io/csi-translation-lib/plugins/azure_disk.go
"""

from __future__ import annotations

from typing import ClassVar

from pkg.api.core import v1
from pkg.csi_translation_lib.plugins.in_tree_volume import inline_volume

AZURE_DISK_DRIVER_NAME = "disk.csi.azure.com"

_MANAGED = "Managed"


class AzureDiskCSITranslator:
    """Implement InTreePlugin."""

    IN_TREE_PLUGIN_NAME: ClassVar[str] = "kubernetes.io/azure-disk"

    def can_support(self, pv: v1.PersistentVolume) -> bool:
        return pv.spec.azure_disk is not None

    def can_support_inline(self, volume: v1.Volume) -> bool:
        return volume.azure_disk is not None

    def translate_in_tree_pv_to_csi(self, pv: v1.PersistentVolume) -> v1.PersistentVolume:
        assert pv.spec.azure_disk is not None
        pv.spec.csi = _translate(pv.spec.azure_disk)
        pv.spec.azure_disk = None
        return pv

    def translate_in_tree_inline_volume_to_csi(self, volume: v1.Volume, pod_namespace: str) -> v1.PersistentVolume:
        assert volume.azure_disk is not None
        return inline_volume(volume.azure_disk.disk_uri, _translate(volume.azure_disk), v1.READ_WRITE_ONCE)


def _translate(source: v1.AzureDiskVolumeSource) -> v1.CSIPersistentVolumeSource:
    if source.kind is not None and source.kind.lower() != _MANAGED.lower():
        raise ValueError(f"kind({source.kind}) is not supported in csi migration")
    attributes = {"kind": _MANAGED}
    if source.caching_mode:
        attributes["cachingmode"] = source.caching_mode
    if source.fs_type is not None:
        attributes["fstype"] = source.fs_type
    return v1.CSIPersistentVolumeSource(
        driver=AZURE_DISK_DRIVER_NAME,
        volume_handle=source.disk_uri,
        volume_attributes=attributes,
        fs_type=source.fs_type or "",
        read_only=bool(source.read_only),
    )
