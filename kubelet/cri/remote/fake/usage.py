"""Return statistics of the fake containers, which are all equal so that tests can check sums.

Times are nanoseconds, as in the CRI.
"""

from __future__ import annotations

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cri.remote.fake.sandboxes import RUNNING, Container, Sandbox


def of_sandbox(sandbox: Sandbox, now: int) -> runtimeapi.PodSandboxStats:
    """Return the statistics of a sandbox: the sum of its running containers, and each of them."""
    running = [container for container in sandbox.containers.values() if container.state == RUNNING]
    listed = sandbox.listed
    return runtimeapi.PodSandboxStats(
        attributes=runtimeapi.PodSandboxAttributes(
            id=listed.id, metadata=listed.metadata, labels=listed.labels, annotations=listed.annotations
        ),
        linux=runtimeapi.LinuxPodSandboxStats(
            cpu=_cpu(now, len(running)),
            memory=_memory(now, len(running)),
            containers=[of_container(container, now) for container in running],
        ),
    )


def of_container(container: Container, now: int) -> runtimeapi.ContainerStats:
    """Return the statistics of a container."""
    listed = container.listed
    return runtimeapi.ContainerStats(
        attributes=runtimeapi.ContainerAttributes(
            id=listed.id, metadata=listed.metadata, labels=listed.labels, annotations=listed.annotations
        ),
        cpu=_cpu(now, 1),
        memory=_memory(now, 1),
    )


def _cpu(now: int, containers: int) -> runtimeapi.CpuUsage:
    return runtimeapi.CpuUsage(
        timestamp=now,
        usage_core_nano_seconds=runtimeapi.UInt64Value(value=1_000_000_000 * containers),
        usage_nano_cores=runtimeapi.UInt64Value(value=1_000_000 * containers),
    )


def _memory(now: int, containers: int) -> runtimeapi.MemoryUsage:
    return runtimeapi.MemoryUsage(
        timestamp=now,
        working_set_bytes=runtimeapi.UInt64Value(value=1_000_000 * containers),
        usage_bytes=runtimeapi.UInt64Value(value=1_000_000 * containers),
    )
