"""AppArmor profiles of containers.

Go: pkg/security/apparmor
"""

from pkg.security.apparmor.helpers import get_profile

__all__ = ["get_profile"]
