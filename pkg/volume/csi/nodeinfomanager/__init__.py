"""Publish the CSI drivers of this node in the cluster.

Go: pkg/volume/csi/nodeinfomanager
"""

from pkg.volume.csi.nodeinfomanager.nodeinfomanager import (
    ANNOTATION_KEY_NODE_ID,
    MIGRATED_PLUGINS_ANNOTATION_KEY,
    NodeInfoError,
    NodeInfoManager,
)

__all__ = ["ANNOTATION_KEY_NODE_ID", "MIGRATED_PLUGINS_ANNOTATION_KEY", "NodeInfoError", "NodeInfoManager"]
