"""Translate disks of AWS.

Go: k8s.io/csi-translation-lib/plugins/aws_ebs.go
"""

from __future__ import annotations

import re
from typing import ClassVar

from pkg.api.core import v1
from pkg.csi_translation_lib.plugins.in_tree_volume import inline_volume, translate_topology_from_in_tree_to_csi
from pkg.golang import net

AWS_EBS_DRIVER_NAME = "ebs.csi.aws.com"
AWS_EBS_TOPOLOGY_KEY = f"topology.{AWS_EBS_DRIVER_NAME}/zone"

_AWS_VOLUME = re.compile(r"vol-[^/]*")


class AWSElasticBlockStoreCSITranslator:
    """Implement InTreePlugin."""

    IN_TREE_PLUGIN_NAME: ClassVar[str] = "kubernetes.io/aws-ebs"

    def can_support(self, pv: v1.PersistentVolume) -> bool:
        return pv.spec.aws_elastic_block_store is not None

    def can_support_inline(self, volume: v1.Volume) -> bool:
        return volume.aws_elastic_block_store is not None

    def translate_in_tree_pv_to_csi(self, pv: v1.PersistentVolume) -> v1.PersistentVolume:
        assert pv.spec.aws_elastic_block_store is not None
        pv.spec.csi = _translate(pv.spec.aws_elastic_block_store)
        translate_topology_from_in_tree_to_csi(pv, AWS_EBS_TOPOLOGY_KEY)
        pv.spec.aws_elastic_block_store = None
        return pv

    def translate_in_tree_inline_volume_to_csi(self, volume: v1.Volume, pod_namespace: str) -> v1.PersistentVolume:
        assert volume.aws_elastic_block_store is not None
        csi = _translate(volume.aws_elastic_block_store)
        return inline_volume(f"{AWS_EBS_DRIVER_NAME}-{csi.volume_handle}", csi, v1.READ_WRITE_ONCE)


def _translate(source: v1.AWSElasticBlockStoreVolumeSource) -> v1.CSIPersistentVolumeSource:
    try:
        handle = kubernetes_volume_id_to_ebs_volume_id(source.volume_id)
    except ValueError as err:
        raise ValueError(f"failed to translate Kubernetes ID to EBS Volume ID {err}") from err
    return v1.CSIPersistentVolumeSource(
        driver=AWS_EBS_DRIVER_NAME,
        volume_handle=handle,
        read_only=source.read_only,
        fs_type=source.fs_type,
        volume_attributes={"partition": str(source.partition)},
    )


def kubernetes_volume_id_to_ebs_volume_id(kubernetes_id: str) -> str:
    """Return the disk's id, which Kubernetes may write as aws://ZONE/ID or aws:///ID (Kubernetes issue 73730).

    Raise ValueError if the id has another form.
    """
    if not kubernetes_id.startswith("aws://"):
        return kubernetes_id
    aws_id = net.split(kubernetes_id).path.strip("/")
    if not _AWS_VOLUME.fullmatch(aws_id):
        raise ValueError(f"Invalid format for AWS volume ({kubernetes_id})")
    return aws_id
