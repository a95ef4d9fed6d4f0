"""Who is asked about a pod's coming and going: admission, sync and eviction handlers, and container hooks.

Go: pkg/kubelet/lifecycle
"""

from kubelet.lifecycle.handlers import (
    HandlerRunner,
    HookError,
    HTTPClient,
    HTTPDoer,
    HTTPResponseError,
)
from kubelet.lifecycle.interfaces import (
    ADD_OPERATION,
    RESIZE_OPERATION,
    Operation,
    PodAdmitAttributes,
    PodAdmitHandler,
    PodAdmitResult,
    PodSyncHandler,
    PodSyncLoopHandler,
    ShouldEvictResponse,
)
from kubelet.lifecycle.predicate import (
    INSUFFICIENT_RESOURCE_PREFIX,
    INVALID_NODE_INFO,
    POD_OS_NOT_SUPPORTED,
    POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH,
    SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED,
    UNEXPECTED_ADMISSION_ERROR,
    UNEXPECTED_PREDICATE_FAILURE_TYPE,
    AdmissionFailureHandler,
    AdmissionFailureHandlerStub,
    InsufficientResourceError,
    PredicateAdmitHandler,
    PredicateFailureError,
    PredicateFailureReason,
)

__all__ = [
    "ADD_OPERATION",
    "INSUFFICIENT_RESOURCE_PREFIX",
    "INVALID_NODE_INFO",
    "POD_OS_NOT_SUPPORTED",
    "POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH",
    "RESIZE_OPERATION",
    "SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED",
    "UNEXPECTED_ADMISSION_ERROR",
    "UNEXPECTED_PREDICATE_FAILURE_TYPE",
    "AdmissionFailureHandler",
    "AdmissionFailureHandlerStub",
    "HTTPClient",
    "HTTPDoer",
    "HTTPResponseError",
    "HandlerRunner",
    "HookError",
    "InsufficientResourceError",
    "Operation",
    "PodAdmitAttributes",
    "PodAdmitHandler",
    "PodAdmitResult",
    "PodSyncHandler",
    "PodSyncLoopHandler",
    "PredicateAdmitHandler",
    "PredicateFailureError",
    "PredicateFailureReason",
    "ShouldEvictResponse",
]
