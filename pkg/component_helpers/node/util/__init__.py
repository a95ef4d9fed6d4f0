"""Provide helpers for node objects that several components use.

Go: k8s.io/component-helpers/node/util
"""

from pkg.component_helpers.node.util.conditions import get_node_condition
from pkg.component_helpers.node.util.hostname import get_hostname
from pkg.component_helpers.node.util.ips import parse_node_ip_argument
from pkg.component_helpers.node.util.status import patch_node_status

__all__ = ["get_hostname", "get_node_condition", "parse_node_ip_argument", "patch_node_status"]
