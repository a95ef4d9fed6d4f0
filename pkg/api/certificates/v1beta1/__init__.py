"""Define certificates.k8s.io/v1beta1: trust bundles.

Go: k8s.io/api/certificates/v1beta1
"""

from pkg.api.certificates.v1beta1 import types as _types
from pkg.api.certificates.v1beta1.types import *  # noqa: F403

__all__ = [*_types.__all__]
