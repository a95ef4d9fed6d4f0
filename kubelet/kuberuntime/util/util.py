"""Decide whether a pod needs a new sandbox, and which namespaces it shares with the node.

Go: pkg/kubelet/kuberuntime/util/util.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from pkg import klog
from pkg.api.core import v1


@dataclass(frozen=True, slots=True)
class SandboxChange:
    """Describe what must happen to a pod's sandbox."""

    # `create` tells whether the pod needs a new sandbox.
    create: bool
    # `attempt` is the attempt number of the new sandbox, or else of the existing one.
    attempt: int = 0
    # `sandbox_id` is the ID of the existing sandbox, or "" if there is none.
    sandbox_id: str = ""


def pod_sandbox_changed(pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> SandboxChange:
    if not pod_status.sandbox_statuses:
        klog.v(2).info_s("No sandbox for pod can be found. Need to start a new one", pod=klog.kobj(pod))
        return SandboxChange(create=True)
    ready = sum(s.state == runtimeapi.SANDBOX_READY for s in pod_status.sandbox_statuses)
    latest = pod_status.sandbox_statuses[0]
    attempt = latest.metadata.attempt
    if ready > 1:
        klog.v(2).info_s("Multiple sandboxes are ready for Pod. Need to reconcile them", pod=klog.kobj(pod))
        return SandboxChange(True, attempt + 1, latest.id)
    if latest.state != runtimeapi.SANDBOX_READY:
        klog.v(2).info_s("No ready sandbox for pod can be found. Need to start a new one", pod=klog.kobj(pod))
        return SandboxChange(True, attempt + 1, latest.id)
    if latest.linux.namespaces.options.network != network_namespace_for_pod(pod):
        klog.v(2).info_s("Sandbox for pod has changed. Need to start a new one", pod=klog.kobj(pod))
        return SandboxChange(True, attempt + 1)
    if not kubecontainer.is_host_network_pod(pod) and latest.HasField("network") and not latest.network.ip:
        klog.v(2).info_s("Sandbox for pod has no IP address. Need to start a new one", pod=klog.kobj(pod))
        return SandboxChange(True, attempt + 1, latest.id)
    return SandboxChange(False, attempt, latest.id)


def ipc_namespace_for_pod(pod: v1.Pod) -> runtimeapi.NamespaceMode.ValueType:
    """Return NODE with hostIPC, otherwise POD."""
    return runtimeapi.NODE if pod.spec.host_ipc else runtimeapi.POD


def network_namespace_for_pod(pod: v1.Pod) -> runtimeapi.NamespaceMode.ValueType:
    """Return NODE with hostNetwork, otherwise POD."""
    return runtimeapi.NODE if pod.spec.host_network else runtimeapi.POD


def pid_namespace_for_pod(pod: v1.Pod) -> runtimeapi.NamespaceMode.ValueType:
    """Return NODE with hostPID, POD with shareProcessNamespace, and otherwise CONTAINER."""
    if pod.spec.host_pid:
        return runtimeapi.NODE
    return runtimeapi.POD if pod.spec.share_process_namespace else runtimeapi.CONTAINER


class RuntimeHandlerResolver(Protocol):
    """Define the look-up of runtime handlers; runtimeclass.Manager implements it."""

    def lookup_runtime_handler(self, runtime_class_name: str | None) -> str: ...


def namespaces_for_pod(
    pod: v1.Pod,
    runtime_helper: kubecontainer.RuntimeHelper,
    rc_manager: RuntimeHandlerResolver | None,
) -> runtimeapi.NamespaceOption:
    """Return the namespace options of the pod. Raise the errors of the resolver and the helper."""
    runtime_handler = ""
    if rc_manager is not None:
        runtime_handler = rc_manager.lookup_runtime_handler(pod.spec.runtime_class_name)
    return runtimeapi.NamespaceOption(
        ipc=ipc_namespace_for_pod(pod),
        network=network_namespace_for_pod(pod),
        pid=pid_namespace_for_pod(pod),
        userns_options=runtime_helper.get_or_create_user_namespace_mappings(pod, runtime_handler),
    )
