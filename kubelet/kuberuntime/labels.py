"""Write labels and annotations for sandboxes and containers, and read them again after a restart.

Go: pkg/kubelet/kuberuntime/labels.go
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec
from pkg.golang import strconv

_POD_DELETION_GRACE_PERIOD_LABEL = "io.kubernetes.pod.deletionGracePeriod"
_POD_TERMINATION_GRACE_PERIOD_LABEL = "io.kubernetes.pod.terminationGracePeriod"

_CONTAINER_HASH_LABEL = "io.kubernetes.container.hash"
_CONTAINER_RESTART_COUNT_LABEL = "io.kubernetes.container.restartCount"
_CONTAINER_TERMINATION_MESSAGE_PATH_LABEL = "io.kubernetes.container.terminationMessagePath"
_CONTAINER_TERMINATION_MESSAGE_POLICY_LABEL = "io.kubernetes.container.terminationMessagePolicy"
_CONTAINER_PRE_STOP_HANDLER_LABEL = "io.kubernetes.container.preStopHandler"
_CONTAINER_PORTS_LABEL = "io.kubernetes.container.ports"

_POD_LABELS = (
    kubetypes.KUBERNETES_POD_NAME_LABEL,
    kubetypes.KUBERNETES_POD_NAMESPACE_LABEL,
    kubetypes.KUBERNETES_POD_UID_LABEL,
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LabeledPodSandboxInfo:
    """Hold what a sandbox's labels say; `labels` holds the pod's own labels without those that the kubelet added."""

    labels: dict[str, str]
    pod_name: str
    pod_namespace: str
    pod_uid: types.UID


@dataclass(frozen=True, slots=True)
class LabeledContainerInfo:
    container_name: str
    pod_name: str
    pod_namespace: str
    pod_uid: types.UID


@dataclass(frozen=True, slots=True)
class AnnotatedContainerInfo:
    """Hold what a container's annotations say. Grace periods are in seconds."""

    hash: int = 0
    restart_count: int = 0
    pod_deletion_grace_period: int | None = None
    pod_termination_grace_period: int | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    pre_stop_handler: v1.LifecycleHandler | None = None
    container_ports: list[v1.ContainerPort] = field(default_factory=list)


def new_pod_labels(pod: v1.Pod) -> dict[str, str]:
    """Return the sandbox's labels: those of the pod, and the pod's name, namespace and UID."""
    return {
        **pod.metadata.labels,
        kubetypes.KUBERNETES_POD_NAME_LABEL: pod.metadata.name,
        kubetypes.KUBERNETES_POD_NAMESPACE_LABEL: pod.metadata.namespace,
        kubetypes.KUBERNETES_POD_UID_LABEL: pod.metadata.uid,
    }


def new_pod_annotations(pod: v1.Pod) -> dict[str, str]:
    """Return the sandbox's annotations."""
    return pod.metadata.annotations


def new_container_labels(container: v1.Container, pod: v1.Pod) -> dict[str, str]:
    """Return the container's labels, which identify the container and its pod."""
    return {
        kubetypes.KUBERNETES_POD_NAME_LABEL: pod.metadata.name,
        kubetypes.KUBERNETES_POD_NAMESPACE_LABEL: pod.metadata.namespace,
        kubetypes.KUBERNETES_POD_UID_LABEL: pod.metadata.uid,
        kubetypes.KUBERNETES_CONTAINER_NAME_LABEL: container.name,
    }


def new_container_annotations(
    container: v1.Container, pod: v1.Pod, restart_count: int, opts: kubecontainer.RunContainerOptions
) -> dict[str, str]:
    """Return the container's annotations, which hold what a stop needs when the spec is gone."""
    annotations = {a.name: a.value for a in opts.annotations}
    annotations[_CONTAINER_HASH_LABEL] = format(kubecontainer.hash_container(container), "x")
    annotations[_CONTAINER_RESTART_COUNT_LABEL] = str(restart_count)
    annotations[_CONTAINER_TERMINATION_MESSAGE_PATH_LABEL] = container.termination_message_path
    annotations[_CONTAINER_TERMINATION_MESSAGE_POLICY_LABEL] = container.termination_message_policy
    if pod.metadata.deletion_grace_period_seconds is not None:
        annotations[_POD_DELETION_GRACE_PERIOD_LABEL] = str(pod.metadata.deletion_grace_period_seconds)
    if pod.spec.termination_grace_period_seconds is not None:
        annotations[_POD_TERMINATION_GRACE_PERIOD_LABEL] = str(pod.spec.termination_grace_period_seconds)
    if container.lifecycle is not None and container.lifecycle.pre_stop is not None:
        annotations[_CONTAINER_PRE_STOP_HANDLER_LABEL] = _go_json(
            _lifecycle_handler_fields(container.lifecycle.pre_stop)
        )
    if container.ports:
        annotations[_CONTAINER_PORTS_LABEL] = _go_json([_container_port_fields(port) for port in container.ports])
    return annotations


def get_pod_sandbox_info_from_labels(labels: Mapping[str, str]) -> LabeledPodSandboxInfo:
    """Read the labels that new_pod_labels has written."""
    return LabeledPodSandboxInfo(
        labels={key: value for key, value in labels.items() if key not in _POD_LABELS},
        pod_name=_get_string_value_from_label(labels, kubetypes.KUBERNETES_POD_NAME_LABEL),
        pod_namespace=_get_string_value_from_label(labels, kubetypes.KUBERNETES_POD_NAMESPACE_LABEL),
        pod_uid=types.UID(_get_string_value_from_label(labels, kubetypes.KUBERNETES_POD_UID_LABEL)),
    )


def get_container_info_from_labels(labels: Mapping[str, str]) -> LabeledContainerInfo:
    """Read the labels that new_container_labels has written."""
    return LabeledContainerInfo(
        container_name=_get_string_value_from_label(labels, kubetypes.KUBERNETES_CONTAINER_NAME_LABEL),
        pod_name=_get_string_value_from_label(labels, kubetypes.KUBERNETES_POD_NAME_LABEL),
        pod_namespace=_get_string_value_from_label(labels, kubetypes.KUBERNETES_POD_NAMESPACE_LABEL),
        pod_uid=types.UID(_get_string_value_from_label(labels, kubetypes.KUBERNETES_POD_UID_LABEL)),
    )


def get_container_info_from_annotations(annotations: Mapping[str, str]) -> AnnotatedContainerInfo:
    """Read the annotations that new_container_annotations has written.

    An invalid value is logged and replaced by its default.
    """
    return AnnotatedContainerInfo(
        hash=_parse_label(annotations, _CONTAINER_HASH_LABEL, _parse_hash, 0),
        restart_count=_parse_label(annotations, _CONTAINER_RESTART_COUNT_LABEL, _parse_restart_count, 0),
        pod_deletion_grace_period=_parse_label(annotations, _POD_DELETION_GRACE_PERIOD_LABEL, strconv.parse_int, None),
        pod_termination_grace_period=_parse_label(
            annotations, _POD_TERMINATION_GRACE_PERIOD_LABEL, strconv.parse_int, None
        ),
        termination_message_path=_get_string_value_from_label(annotations, _CONTAINER_TERMINATION_MESSAGE_PATH_LABEL),
        termination_message_policy=_get_string_value_from_label(
            annotations, _CONTAINER_TERMINATION_MESSAGE_POLICY_LABEL
        ),
        pre_stop_handler=_parse_label(
            annotations,
            _CONTAINER_PRE_STOP_HANDLER_LABEL,
            lambda text: codec.decode_json(text, v1.LifecycleHandler),
            None,
        ),
        container_ports=_parse_label(
            annotations,
            _CONTAINER_PORTS_LABEL,
            lambda text: codec.decode_json(text, list[v1.ContainerPort]),
            [],
        ),
    )


def get_hash_from_annotations(annotations: Mapping[str, str]) -> int:
    """Return only the container's hash, which is faster for long lists of containers."""
    return _parse_label(annotations, _CONTAINER_HASH_LABEL, _parse_hash, 0)


def _parse_hash(text: str) -> int:
    return strconv.parse_uint(text, 16)


def _parse_restart_count(text: str) -> int:
    return strconv.parse_int(text, bits=32)


def _get_string_value_from_label(labels: Mapping[str, str], label: str) -> str:
    if label not in labels:
        klog.v(3).info_s("Container doesn't have requested label, it may be an old or invalid container", label=label)
    return labels.get(label, "")


def _parse_label(labels: Mapping[str, str], label: str, parse: Callable[[str], _T], default: _T) -> _T:
    text = labels.get(label)
    if text is None:
        return default
    try:
        return parse(text)
    except (ValueError, msgspec.MsgspecError) as err:
        klog.error_s(err, "Unable to get label value from annotations", label=label, annotations=dict(labels))
        return default


def _container_port_fields(port: v1.ContainerPort) -> dict[str, Any]:
    """Return the fields in the order of Go's struct, so that both kubelets write the same text."""
    return {
        **_present(name=port.name, hostPort=port.host_port),
        "containerPort": port.container_port,
        **_present(protocol=port.protocol, hostIP=port.host_ip),
    }


def _lifecycle_handler_fields(handler: v1.LifecycleHandler) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if handler.exec is not None:
        fields["exec"] = _present(command=handler.exec.command)
    if (http_get := handler.http_get) is not None:
        fields["httpGet"] = {
            **_present(path=http_get.path),
            "port": http_get.port,
            **_present(
                host=http_get.host,
                scheme=http_get.scheme,
                httpHeaders=[{"name": h.name, "value": h.value} for h in http_get.http_headers],
            ),
        }
    if handler.tcp_socket is not None:
        fields["tcpSocket"] = {"port": handler.tcp_socket.port, **_present(host=handler.tcp_socket.host)}
    if handler.sleep is not None:
        fields["sleep"] = {"seconds": handler.sleep.seconds}
    return fields


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _go_json(value: object) -> str:
    """Encode JSON as Go does: without spaces, and with those characters escaped that are special in HTML."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character in "&<>\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
