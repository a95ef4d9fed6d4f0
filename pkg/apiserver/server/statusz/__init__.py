"""The page /statusz: which program this is, how long it has been running, what else it serves.

Go: k8s.io/apiserver/pkg/server/statusz
"""

from pkg.apiserver.server.statusz.registry import Registry
from pkg.apiserver.server.statusz.statusz import DEFAULT_STATUSZ_PATH, install

__all__ = ["DEFAULT_STATUSZ_PATH", "Registry", "install"]
