"""Translate disks of OpenStack.

Go: k8s.io/csi-translation-lib/plugins/openstack_cinder.go
"""

from __future__ import annotations

from typing import ClassVar

from pkg.api.core import v1
from pkg.csi_translation_lib.plugins.in_tree_volume import inline_volume, translate_topology_from_in_tree_to_csi

CINDER_DRIVER_NAME = "cinder.csi.openstack.org"
CINDER_TOPOLOGY_KEY = "topology.cinder.csi.openstack.org/zone"


class OSCinderCSITranslator:
    """Implement InTreePlugin."""

    IN_TREE_PLUGIN_NAME: ClassVar[str] = "kubernetes.io/cinder"

    def can_support(self, pv: v1.PersistentVolume) -> bool:
        return pv.spec.cinder is not None

    def can_support_inline(self, volume: v1.Volume) -> bool:
        return volume.cinder is not None

    def translate_in_tree_pv_to_csi(self, pv: v1.PersistentVolume) -> v1.PersistentVolume:
        assert pv.spec.cinder is not None
        pv.spec.csi = _translate(pv.spec.cinder)
        translate_topology_from_in_tree_to_csi(pv, CINDER_TOPOLOGY_KEY)
        pv.spec.cinder = None
        return pv

    def translate_in_tree_inline_volume_to_csi(self, volume: v1.Volume, pod_namespace: str) -> v1.PersistentVolume:
        assert volume.cinder is not None
        name = f"{CINDER_DRIVER_NAME}-{volume.cinder.volume_id}"
        return inline_volume(name, _translate(volume.cinder), v1.READ_WRITE_ONCE)


def _translate(source: v1.CinderVolumeSource | v1.CinderPersistentVolumeSource) -> v1.CSIPersistentVolumeSource:
    return v1.CSIPersistentVolumeSource(
        driver=CINDER_DRIVER_NAME,
        volume_handle=source.volume_id,
        read_only=source.read_only,
        fs_type=source.fs_type,
    )
