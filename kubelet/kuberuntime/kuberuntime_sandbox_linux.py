"""Compute the resources of a whole sandbox, for runtimes that must size it in advance.

Go: pkg/kubelet/kuberuntime/kuberuntime_sandbox_linux.go
"""

from __future__ import annotations

from dataclasses import dataclass

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.kuberuntime.kuberuntime_container_linux import ZERO, ContainerLinuxMethods, unlimits_exclusive_cpus
from pkg import features
from pkg.api.core import v1
from pkg.component_helpers import resource as resourcehelper


@dataclass(kw_only=True, eq=False, repr=False)
class SandboxLinuxMethods(ContainerLinuxMethods):
    """Compute the resources and the overhead of sandboxes."""

    def calculate_sandbox_resources(self, pod: v1.Pod) -> runtimeapi.LinuxContainerResources:
        """Return the sum of all containers' resources, without the pod's overhead."""
        opts = resourcehelper.PodResourcesOptions(
            exclude_overhead=True,
            skip_pod_level_resources=not features.feature_gate.enabled(features.POD_LEVEL_RESOURCES),
        )
        requests = resourcehelper.pod_requests(pod, opts)
        limits = resourcehelper.pod_limits(pod, opts)
        return self.calculate_linux_resources(
            requests.get(v1.RESOURCE_CPU),
            limits.get(v1.RESOURCE_CPU, ZERO),
            limits.get(v1.RESOURCE_MEMORY, ZERO),
            disable_cpu_quota=unlimits_exclusive_cpus() and self.container_manager.pod_has_exclusive_cpus(pod),
        )

    def apply_sandbox_resources(self, pod: v1.Pod, config: runtimeapi.PodSandboxConfig) -> None:
        """Set the resources and the overhead in the sandbox configuration."""
        config.linux.resources.CopyFrom(self.calculate_sandbox_resources(pod))
        config.linux.overhead.CopyFrom(self.convert_overhead_to_linux_resources(pod))
