"""Define the labels that identify the kubelet's sandboxes and containers in the runtime.

Go: k8s.io/kubelet/pkg/types/labels.go
"""

from collections.abc import Mapping

KUBERNETES_POD_NAME_LABEL = "io.kubernetes.pod.name"
KUBERNETES_POD_NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
KUBERNETES_POD_UID_LABEL = "io.kubernetes.pod.uid"
KUBERNETES_CONTAINER_NAME_LABEL = "io.kubernetes.container.name"


def get_container_name(labels: Mapping[str, str]) -> str:
    return labels.get(KUBERNETES_CONTAINER_NAME_LABEL, "")


def get_pod_name(labels: Mapping[str, str]) -> str:
    return labels.get(KUBERNETES_POD_NAME_LABEL, "")


def get_pod_uid(labels: Mapping[str, str]) -> str:
    return labels.get(KUBERNETES_POD_UID_LABEL, "")


def get_pod_namespace(labels: Mapping[str, str]) -> str:
    return labels.get(KUBERNETES_POD_NAMESPACE_LABEL, "")
