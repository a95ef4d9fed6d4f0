"""Serve the volumes of removed in-tree plugins with CSI drivers.

Go: pkg/volume/csimigration
"""

from pkg.volume.csimigration.plugin_manager import is_migratable, translate_in_tree_spec_to_csi

__all__ = ["is_migratable", "translate_in_tree_spec_to_csi"]
