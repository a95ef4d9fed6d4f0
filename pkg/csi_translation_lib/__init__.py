"""Volumes of plugins that Kubernetes no longer has, as volumes of the CSI drivers that took over from them.

Of Go's library what the kubelet does not need is left out: storage classes, the way back, and volume handles that
lack a zone, which the driver's attacher completes.

Go: k8s.io/csi-translation-lib
"""

from pkg.csi_translation_lib.translate import (
    get_in_tree_plugin_name_from_spec,
    get_in_tree_plugin_names,
    translate_in_tree_inline_volume_to_csi,
    translate_in_tree_pv_to_csi,
)

__all__ = [
    "get_in_tree_plugin_name_from_spec",
    "get_in_tree_plugin_names",
    "translate_in_tree_inline_volume_to_csi",
    "translate_in_tree_pv_to_csi",
]
