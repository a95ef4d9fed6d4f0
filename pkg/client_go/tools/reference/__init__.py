"""Make references to API objects, as events contain them.

Go: k8s.io/client-go/tools/reference
"""

from pkg.client_go.tools.reference.ref import get_partial_reference, get_reference

__all__ = ["get_partial_reference", "get_reference"]
