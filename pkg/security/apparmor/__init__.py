"""Find and validate the AppArmor profiles of containers.

Go: pkg/security/apparmor
"""

from pkg.security.apparmor.helpers import get_profile
from pkg.security.apparmor.validate import Validator

__all__ = ["Validator", "get_profile"]
