"""Provide helpers for node objects.

Go: pkg/util/node
"""

from pkg.util.node.node import get_node_host_ips

__all__ = ["get_node_host_ips"]
