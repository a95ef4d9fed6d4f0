"""AppArmor profiles of containers.

Go: pkg/security/apparmor
"""

from pkg.security.apparmor.helpers import get_profile, is_required

__all__ = ["get_profile", "is_required"]
