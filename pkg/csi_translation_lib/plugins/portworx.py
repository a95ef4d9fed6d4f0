"""Translate volumes of Portworx.

Go: k8s.io/csi-translation-lib/plugins/portworx.go
"""

from __future__ import annotations

from typing import ClassVar

from pkg.api.core import v1
from pkg.csi_translation_lib.plugins.in_tree_volume import inline_volume

PORTWORX_DRIVER_NAME = "pxd.portworx.com"

_AUTH_SECRET_NAME_KEY = "openstorage.io/auth-secret-name"
_AUTH_SECRET_NAMESPACE_KEY = "openstorage.io/auth-secret-namespace"


class PortworxCSITranslator:
    """Implement InTreePlugin."""

    IN_TREE_PLUGIN_NAME: ClassVar[str] = "kubernetes.io/portworx-volume"

    def can_support(self, pv: v1.PersistentVolume) -> bool:
        return pv.spec.portworx_volume is not None

    def can_support_inline(self, volume: v1.Volume) -> bool:
        return volume.portworx_volume is not None

    def translate_in_tree_pv_to_csi(self, pv: v1.PersistentVolume) -> v1.PersistentVolume:
        assert pv.spec.portworx_volume is not None
        csi = pv.spec.csi = _translate(pv.spec.portworx_volume)
        pv.spec.portworx_volume = None
        annotations = pv.metadata.annotations
        if _AUTH_SECRET_NAME_KEY in annotations and _AUTH_SECRET_NAMESPACE_KEY in annotations:
            secret = v1.SecretReference(
                name=annotations[_AUTH_SECRET_NAME_KEY], namespace=annotations[_AUTH_SECRET_NAMESPACE_KEY]
            )
            csi.controller_publish_secret_ref = csi.controller_expand_secret_ref = secret
            csi.node_stage_secret_ref = csi.node_publish_secret_ref = csi.node_expand_secret_ref = secret
        return pv

    def translate_in_tree_inline_volume_to_csi(self, volume: v1.Volume, pod_namespace: str) -> v1.PersistentVolume:
        source = volume.portworx_volume
        assert source is not None
        mode = v1.READ_ONLY_MANY if source.read_only else v1.READ_WRITE_ONCE
        return inline_volume(f"{PORTWORX_DRIVER_NAME}-{source.volume_id}", _translate(source), mode)


def _translate(source: v1.PortworxVolumeSource) -> v1.CSIPersistentVolumeSource:
    return v1.CSIPersistentVolumeSource(
        driver=PORTWORX_DRIVER_NAME, volume_handle=source.volume_id, fs_type=source.fs_type
    )
