"""Represent sets of NUMA nodes that are small and fast to compare.

Go: pkg/kubelet/cm/topologymanager/bitmask
"""

from kubelet.cm.topologymanager.bitmask.bitmask import BitMask, iterate_bit_masks

__all__ = ["BitMask", "iterate_bit_masks"]
