"""Find the translator for a volume and translate the volume.

Go: k8s.io/csi-translation-lib/translate.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.csi_translation_lib.plugins import (
    aws_ebs,
    azure_disk,
    azure_file,
    gce_pd,
    openstack_cinder,
    portworx,
    vsphere_volume,
)
from pkg.csi_translation_lib.plugins.in_tree_volume import InTreePlugin

_IN_TREE_PLUGINS: tuple[InTreePlugin, ...] = (
    aws_ebs.AWSElasticBlockStoreCSITranslator(),
    azure_disk.AzureDiskCSITranslator(),
    azure_file.AzureFileCSITranslator(),
    gce_pd.GCEPersistentDiskCSITranslator(),
    openstack_cinder.OSCinderCSITranslator(),
    portworx.PortworxCSITranslator(),
    vsphere_volume.VSphereCSITranslator(),
)


def get_in_tree_plugin_names() -> list[str]:
    """Return the plugins whose volumes can be translated, sorted."""
    return sorted(plugin.IN_TREE_PLUGIN_NAME for plugin in _IN_TREE_PLUGINS)


def get_in_tree_plugin_name_from_spec(pv: v1.PersistentVolume | None, volume: v1.Volume | None) -> str:
    """Return the plugin that the volume was made for, or "" if the volume is not translated."""
    plugin = _find(pv, volume)
    return "" if plugin is None else plugin.IN_TREE_PLUGIN_NAME


def translate_in_tree_pv_to_csi(pv: v1.PersistentVolume) -> v1.PersistentVolume:
    """Return a copy of the persistent volume with a source for its CSI driver. Raise ValueError."""
    plugin = _find(pv, None)
    if plugin is None:
        raise ValueError(f'could not find in-tree plugin translation logic for "{pv.metadata.name}"')
    return plugin.translate_in_tree_pv_to_csi(v1.deepcopy(pv))


def translate_in_tree_inline_volume_to_csi(volume: v1.Volume, pod_namespace: str) -> v1.PersistentVolume:
    """Return a persistent volume for an inline volume of a pod. Raise ValueError.

    DIVERGES (safer): this kubelet refuses a volume if the name that is generated for it is empty, "." or "..".
    Go: k8s.io/csi-translation-lib/translate.go, CSITranslator.TranslateInTreeInlineVolumeToCSI: the Go kubelet accepts
    any name.
    Why: a directory gets this name, and ".." would be the directory of all the pod's volumes.
    Test: translate_test.py:test_name_of_an_inline_volume_leads_nowhere_else
    """
    plugin = _find(None, volume)
    if plugin is None:
        raise ValueError(f'could not find in-tree plugin translation logic for "{volume.name}"')
    pv = plugin.translate_in_tree_inline_volume_to_csi(volume, pod_namespace)
    # Go's CSI plugin makes the same replacement for the names of directories.
    pv.metadata.name = pv.metadata.name.replace("/", "~")
    if pv.metadata.name in ("", ".", ".."):
        raise ValueError(f'volume "{volume.name}" has no usable name for its CSI driver: "{pv.metadata.name}"')
    # The API server sets the volume mode of a persistent volume, but not for an inline volume, which is never a block
    # device.
    pv.spec.volume_mode = v1.PERSISTENT_VOLUME_FILESYSTEM
    return pv


def _find(pv: v1.PersistentVolume | None, volume: v1.Volume | None) -> InTreePlugin | None:
    for plugin in _IN_TREE_PLUGINS:
        if pv is not None and plugin.can_support(pv):
            return plugin
        if pv is None and volume is not None and plugin.can_support_inline(volume):
            return plugin
    return None
