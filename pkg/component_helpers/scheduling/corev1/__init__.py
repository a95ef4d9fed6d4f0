"""Match taints with tolerations and, in nodeaffinity, nodes with node selectors.

Go: k8s.io/component-helpers/scheduling/corev1
"""

from pkg.component_helpers.scheduling.corev1.helpers import (
    find_matching_untolerated_taint,
    tolerates_taint,
    tolerations_tolerate_taint,
)

__all__ = [
    "find_matching_untolerated_taint",
    "tolerates_taint",
    "tolerations_tolerate_taint",
]
