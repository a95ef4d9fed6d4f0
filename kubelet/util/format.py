"""Format pods for messages.

Go: pkg/kubelet/util/format/pod.go
"""

from pkg.api.core import v1
from pkg.apimachinery import types


def pod(pod: v1.Pod | None) -> str:
    """Return name_namespace(uid)."""
    if pod is None:
        return "<nil>"
    return pod_desc(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)


def pod_desc(pod_name: str, pod_namespace: str, pod_uid: types.UID) -> str:
    """Return name_namespace(uid); a pod's name cannot contain an underscore."""
    return f"{pod_name}_{pod_namespace}({pod_uid})"
