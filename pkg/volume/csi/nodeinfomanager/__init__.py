"""What the cluster is told of the CSI drivers of this node.

Go: pkg/volume/csi/nodeinfomanager
"""

from pkg.volume.csi.nodeinfomanager.nodeinfomanager import MIGRATED_PLUGINS_ANNOTATION_KEY, NodeInfoManager

__all__ = ["MIGRATED_PLUGINS_ANNOTATION_KEY", "NodeInfoManager"]
