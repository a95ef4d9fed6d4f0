"""Translate disks of vSphere.

Go: k8s.io/csi-translation-lib/plugins/vsphere_volume.go
"""

from __future__ import annotations

from typing import ClassVar

from pkg.api.core import v1
from pkg.csi_translation_lib.plugins.in_tree_volume import (
    add_topology,
    get_topology_label,
    get_topology_values,
    inline_volume,
    replace_topology,
)

VSPHERE_DRIVER_NAME = "csi.vsphere.vmware.com"

_TOPOLOGY_ZONE_KEY = "topology.csi.vmware.com/zone"
_TOPOLOGY_REGION_KEY = "topology.csi.vmware.com/region"


class VSphereCSITranslator:
    """Implement InTreePlugin."""

    IN_TREE_PLUGIN_NAME: ClassVar[str] = "kubernetes.io/vsphere-volume"

    def can_support(self, pv: v1.PersistentVolume) -> bool:
        return pv.spec.vsphere_volume is not None

    def can_support_inline(self, volume: v1.Volume) -> bool:
        return volume.vsphere_volume is not None

    def translate_in_tree_pv_to_csi(self, pv: v1.PersistentVolume) -> v1.PersistentVolume:
        assert pv.spec.vsphere_volume is not None
        pv.spec.csi = _translate(pv.spec.vsphere_volume)
        translate_topology_from_in_tree_vsphere_to_csi(pv)
        pv.spec.vsphere_volume = None
        return pv

    def translate_in_tree_inline_volume_to_csi(self, volume: v1.Volume, pod_namespace: str) -> v1.PersistentVolume:
        """Return the persistent volume for an inline volume, with its storage policy.

        DIVERGES (fault of Go): this kubelet passes the storage policy of an inline volume on to the driver.
        Go: k8s.io/csi-translation-lib/plugins/vsphere_volume.go,
        (*vSphereCSITranslator).TranslateInTreeInlineVolumeToCSI: the Go kubelet looks for the policy in an in-tree
        source that the new object lacks, and crashes.
        Why: one pod must not end the kubelet.
        Test: pkg/csi_translation_lib/translate_test.py:test_translate_in_tree_inline_volume_to_csi
        """
        assert volume.vsphere_volume is not None
        name = f"{VSPHERE_DRIVER_NAME}-{volume.vsphere_volume.volume_path}"
        return inline_volume(name, _translate(volume.vsphere_volume), v1.READ_WRITE_ONCE)


def _translate(source: v1.VsphereVirtualDiskVolumeSource) -> v1.CSIPersistentVolumeSource:
    policy = source.storage_policy_name
    return v1.CSIPersistentVolumeSource(
        driver=VSPHERE_DRIVER_NAME,
        volume_handle=source.volume_path,
        fs_type=source.fs_type,
        volume_attributes={"storagepolicyname": policy} if policy else {},
    )


def translate_topology_from_in_tree_vsphere_to_csi(pv: v1.PersistentVolume) -> None:
    """Rename the zone and region keys of the node affinity to the driver's keys.

    If the node affinity has no values for a key, the labels provide them.
    """
    for label, key in zip(get_topology_label(pv), (_TOPOLOGY_ZONE_KEY, _TOPOLOGY_REGION_KEY), strict=True):
        if get_topology_values(pv, label):
            replace_topology(pv, label, key)
        elif pv.metadata.labels.get(label):
            add_topology(pv, key, [pv.metadata.labels[label]])
