"""What a pod uses right now.

Go: pkg/kubelet/stats/cri_stats_provider.go (PodCPUAndMemoryStats)
"""

from __future__ import annotations

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import cm
from kubelet import container as kubecontainer
from kubelet.cri import apis as internalapi
from kubelet.util import format
from pkg import golang
from pkg.api.core import v1


def pod_cpu_and_memory_stats(
    ctx: golang.Context,
    runtime_service: internalapi.RuntimeService,
    container_manager: cm.ContainerManager,
    pod: v1.Pod,
    pod_status: kubecontainer.PodStatus,
) -> kubecontainer.PodMemoryStats:
    """Memory of the pod by its cgroup, of its containers by the runtime.

    Raises LookupError for a pod without sandbox, crierror.RemoteError, OSError, ValueError.
    """
    if not pod_status.sandbox_statuses:
        raise LookupError(f"missing sandbox for pod {format.pod(pod)}")
    stats = kubecontainer.PodMemoryStats(container_manager.new_pod_container_manager().get_pod_memory_usage(pod))
    container_filter = runtimeapi.ContainerStatsFilter(pod_sandbox_id=pod_status.sandbox_statuses[0].id)
    for entry in runtime_service.list_container_stats(ctx, container_filter):
        usage = entry.memory.usage_bytes if entry.memory.HasField("usage_bytes") else None
        stats.containers[entry.attributes.metadata.name] = usage.value if usage is not None else None
    return stats
