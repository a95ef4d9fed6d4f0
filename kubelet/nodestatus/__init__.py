"""What a node says of itself, part by part.

Go: pkg/kubelet/nodestatus
"""

from kubelet.nodestatus.setters import node_address

__all__ = ["node_address"]
