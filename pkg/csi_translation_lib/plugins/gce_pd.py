"""Translate disks of Google Compute Engine.

Go: k8s.io/csi-translation-lib/plugins/gce_pd.go
"""

from __future__ import annotations

from typing import ClassVar

from pkg.api.core import v1
from pkg.csi_translation_lib.plugins.in_tree_volume import (
    get_zones_from_labels,
    inline_volume,
    translate_topology_from_in_tree_to_csi,
)

GCE_PD_DRIVER_NAME = "pd.csi.storage.gke.io"
GCE_PD_TOPOLOGY_KEY = "topology.gke.io/zone"
# This value replaces an unknown project or zone, which the driver's attacher knows.
UNSPECIFIED_VALUE = "UNSPECIFIED"


class GCEPersistentDiskCSITranslator:
    """Implement InTreePlugin."""

    IN_TREE_PLUGIN_NAME: ClassVar[str] = "kubernetes.io/gce-pd"

    def can_support(self, pv: v1.PersistentVolume) -> bool:
        return pv.spec.gce_persistent_disk is not None

    def can_support_inline(self, volume: v1.Volume) -> bool:
        return volume.gce_persistent_disk is not None

    def translate_in_tree_pv_to_csi(self, pv: v1.PersistentVolume) -> v1.PersistentVolume:
        source = pv.spec.gce_persistent_disk
        assert source is not None
        pv.spec.csi = _translate(source, _location(get_zones_from_labels(pv)))
        translate_topology_from_in_tree_to_csi(pv, GCE_PD_TOPOLOGY_KEY)
        pv.spec.gce_persistent_disk = None
        pv.spec.access_modes = backward_compatible_access_modes(pv.spec.access_modes)
        return pv

    def translate_in_tree_inline_volume_to_csi(self, volume: v1.Volume, pod_namespace: str) -> v1.PersistentVolume:
        source = volume.gce_persistent_disk
        assert source is not None
        mode = v1.READ_ONLY_MANY if source.read_only else v1.READ_WRITE_ONCE
        return inline_volume(f"{GCE_PD_DRIVER_NAME}-{source.pd_name}", _translate(source, _location([])), mode)


def _translate(source: v1.GCEPersistentDiskVolumeSource, location: str) -> v1.CSIPersistentVolumeSource:
    return v1.CSIPersistentVolumeSource(
        driver=GCE_PD_DRIVER_NAME,
        volume_handle=f"projects/{UNSPECIFIED_VALUE}/{location}/disks/{source.pd_name}",
        read_only=source.read_only,
        fs_type=source.fs_type,
        volume_attributes={"partition": str(source.partition) if source.partition else ""},
    )


def _location(zones: list[str]) -> str:
    """Return the part of a volume handle that names a disk's zone, or its region if the disk has several zones."""
    if len(zones) > 1:
        return f"regions/{gce_get_region_from_zones(zones)}"
    return f"zones/{zones[0] if zones else UNSPECIFIED_VALUE}"


def gce_get_region_from_zones(zones: list[str]) -> str:
    """Return the common region of the zones.

    Raise ValueError if the zones belong to several regions, or if a name has an unknown form.
    """
    regions: set[str] = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise ValueError(
                "failed to get region from zones: zone in unexpected format, "
                f"expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        raise ValueError(f"failed to get region from zones: multiple or no regions gotten from zones, got: {regions}")
    return regions.pop()


def backward_compatible_access_modes(modes: list[str]) -> list[str]:
    """Return the access modes that the driver accepts.

    The in-tree plugin did not check the modes of existing volumes and always attached a disk for one writer. The driver
    refuses many writers, and the external attacher refuses one writer together with many readers
    (kubernetes-csi/external-attacher issue 153). So both become one writer, and old volumes keep working.
    """
    if not modes:
        return []
    only_readers = set(modes) & {v1.READ_ONLY_MANY, v1.READ_WRITE_MANY, v1.READ_WRITE_ONCE} == {v1.READ_ONLY_MANY}
    return [v1.READ_ONLY_MANY if only_readers else v1.READ_WRITE_ONCE]
