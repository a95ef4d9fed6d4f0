"""Find the addresses of the machine, and classify connection errors.

Go: k8s.io/apimachinery/pkg/util/net
"""

from pkg.apimachinery.util.net.interface import IPAddress, resolve_bind_address

__all__ = ["IPAddress", "resolve_bind_address"]
