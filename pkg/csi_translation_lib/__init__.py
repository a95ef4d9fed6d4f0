"""Translate volumes of removed in-tree plugins to volumes of the CSI drivers that replaced them.

This package leaves out the parts of Go's library that the kubelet does not need: storage classes, the reverse
translation, and volume handles without a zone, which the driver's attacher completes.

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
