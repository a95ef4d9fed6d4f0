"""Forward requests for an upgraded connection to another server.

Go: k8s.io/apimachinery/pkg/util/proxy
"""

from pkg.apimachinery.util.proxy.dial import dial_url
from pkg.apimachinery.util.proxy.relay import Relay
from pkg.apimachinery.util.proxy.upgradeaware import Backend, BackendError, UpgradeAwareHandler, dial_for_upgrade

__all__ = [
    "Backend",
    "BackendError",
    "Relay",
    "UpgradeAwareHandler",
    "dial_for_upgrade",
    "dial_url",
]
