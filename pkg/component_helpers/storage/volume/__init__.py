"""Check whether persistent volumes can be used on a node.

Go: k8s.io/component-helpers/storage/volume
"""

from pkg.component_helpers.storage.volume.helpers import check_node_affinity

__all__ = ["check_node_affinity"]
