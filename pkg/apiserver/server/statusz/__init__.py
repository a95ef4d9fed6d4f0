"""Serve the page /statusz, which shows the program's version, uptime and paths.

Go: k8s.io/apiserver/pkg/server/statusz
"""

from pkg.apiserver.server.statusz.registry import Registry
from pkg.apiserver.server.statusz.statusz import DEFAULT_STATUSZ_PATH, install

__all__ = ["DEFAULT_STATUSZ_PATH", "Registry", "install"]
