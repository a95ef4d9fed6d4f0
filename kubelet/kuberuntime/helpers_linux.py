"""Convert the resources of a pod's cgroup for the runtime.

Go: pkg/kubelet/kuberuntime/helpers_linux.go
"""

from __future__ import annotations

import dataclasses

from kubelet import cm
from pkg.api.core import v1


def subtract_overhead_from_resource_config(config: cm.ResourceConfig, pod: v1.Pod) -> cm.ResourceConfig:
    """Return the resources that are left for the containers after the runtime's own overhead."""
    result = dataclasses.replace(config)
    if (cpu := pod.spec.overhead.get(v1.RESOURCE_CPU)) is not None:
        milli = cpu.milli_value()
        if config.cpu_quota is not None and config.cpu_period is not None:
            result.cpu_quota = config.cpu_quota - cm.milli_cpu_to_quota(milli, config.cpu_period)
        if config.cpu_shares is not None:
            result.cpu_shares = cm.milli_cpu_to_shares(cm.shares_to_milli_cpu(config.cpu_shares) - milli)
    if (memory := pod.spec.overhead.get(v1.RESOURCE_MEMORY)) is not None and config.memory is not None:
        result.memory = config.memory - memory.value()
    return result
