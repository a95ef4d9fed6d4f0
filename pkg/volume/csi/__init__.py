"""Volumes of drivers outside of Kubernetes. So far the node's CSINode object alone.

Go: pkg/volume/csi
"""

from pkg.volume.csi.csi_plugin import MIGRATED_PLUGINS, initialize_csi_node

__all__ = ["MIGRATED_PLUGINS", "initialize_csi_node"]
