"""Define certificates.k8s.io/v1: certificate signing requests.

Go: k8s.io/api/certificates/v1
"""

from pkg.api.certificates.v1 import constants as _constants
from pkg.api.certificates.v1 import types as _types
from pkg.api.certificates.v1.constants import *  # noqa: F403
from pkg.api.certificates.v1.types import *  # noqa: F403

__all__ = [*_types.__all__, *(name for name in vars(_constants) if name[:1].isupper())]
