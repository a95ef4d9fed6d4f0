"""Translate file shares of Azure.

Go: k8s.io/csi-translation-lib/plugins/azure_file.go
"""

from __future__ import annotations

from typing import ClassVar

from pkg import klog
from pkg.api.core import v1
from pkg.csi_translation_lib.plugins.in_tree_volume import inline_volume

AZURE_FILE_DRIVER_NAME = "file.csi.azure.com"

_DEFAULT_SECRET_NAMESPACE = "default"
_RESOURCE_GROUP_ANNOTATION = "kubernetes.io/azure-file-resource-group"
_SECRET_NAME_PREFIX = "azure-storage-account-"
_SECRET_NAME_SUFFIX = "-secret"


class AzureFileCSITranslator:
    """Implement InTreePlugin."""

    IN_TREE_PLUGIN_NAME: ClassVar[str] = "kubernetes.io/azure-file"

    def can_support(self, pv: v1.PersistentVolume) -> bool:
        return pv.spec.azure_file is not None

    def can_support_inline(self, volume: v1.Volume) -> bool:
        return volume.azure_file is not None

    def translate_in_tree_pv_to_csi(self, pv: v1.PersistentVolume) -> v1.PersistentVolume:
        source = pv.spec.azure_file
        assert source is not None
        namespace = source.secret_namespace
        if namespace is None:
            namespace = pv.spec.claim_ref.namespace if pv.spec.claim_ref is not None else ""
        if not namespace:
            raise ValueError("could not find a secret namespace in PersistentVolumeSource or ClaimRef")
        group = pv.metadata.annotations.get(_RESOURCE_GROUP_ANNOTATION, "")
        pv.spec.csi = _translate(source, group, pv.metadata.name, namespace)
        pv.spec.azure_file = None
        return pv

    def translate_in_tree_inline_volume_to_csi(self, volume: v1.Volume, pod_namespace: str) -> v1.PersistentVolume:
        assert volume.azure_file is not None
        csi = _translate(volume.azure_file, "", volume.name, pod_namespace or _DEFAULT_SECRET_NAMESPACE)
        return inline_volume(csi.volume_handle, csi, v1.READ_WRITE_MANY)


def _translate(
    source: v1.AzureFileVolumeSource | v1.AzureFilePersistentVolumeSource, group: str, disk: str, namespace: str
) -> v1.CSIPersistentVolumeSource:
    account = get_storage_account_name(source.secret_name)
    return v1.CSIPersistentVolumeSource(
        driver=AZURE_FILE_DRIVER_NAME,
        volume_handle="#".join([group, account, source.share_name, disk, namespace]),
        read_only=source.read_only,
        volume_attributes={"sharename": source.share_name},
        node_stage_secret_ref=v1.SecretReference(name=source.secret_name, namespace=namespace),
    )


def get_storage_account_name(secret_name: str) -> str:
    """Return the storage account in the name of a secret, or the whole name if it has another form.

    The function avoids a regular expression, which would take time quadratic in the name's length while it holds the
    interpreter lock.
    """
    for line in secret_name.split("\n"):
        account = line.partition(_SECRET_NAME_PREFIX)[2].rpartition(_SECRET_NAME_SUFFIX)[0]
        if account:
            return account
    klog.v(5).info_s("Cannot find the storage account in the name of the secret", secretName=secret_name)
    return secret_name
