"""Provide statistics of pods from their cgroups.

Go: pkg/kubelet/stats/cadvisor_stats_provider.go
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from kubelet import cadvisor as kubecadvisor
from kubelet import cm
from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from kubelet.stats import helper
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types

ContainerInfos = dict[str, cadvisorapiv2.ContainerInfo]

# Older runtimes kept a pod's network with a container of this name.
_POD_INFRA_CONTAINER_NAME = "POD"


class CadvisorStatsProvider:
    """Get the statistics from cAdvisor at each call. Any thread may call this class.

    DIVERGES (platform): the kubelet asks every runtime, including CRI-O, over CRI for the sizes of its containers'
    layers.
    Go: pkg/kubelet/cadvisor/util.go, UsingLegacyCadvisorStats: in the Go kubelet CRI-O's statistics come from cAdvisor
    alone, which uses CRI-O's own interface.
    Why: this kubelet's cAdvisor reads only kernel statistics, and supports no runtime's own interface.
    Test: kubelet/kubelet_build_test.py:test_every_runtime_is_asked_by_cri
    """

    def __init__(self, cadvisor: kubecadvisor.Interface, container_manager: cm.ContainerManager) -> None:
        self._cadvisor = cadvisor
        self._container_manager = container_manager

    def pod_cpu_and_memory_stats(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> statsapi.PodStats:
        """Return statistics from the pod's cgroup and its descendants. Raise OSError, ValueError and LookupError."""
        _, pod_name = self._container_manager.new_pod_container_manager().get_pod_container_name(pod)
        infos = self._cadvisor.container_info_v2(pod_name, cadvisorapiv2.RequestOptions(count=2, recursive=True))
        ref = statsapi.PodReference(name=pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.metadata.uid)
        stats = statsapi.PodStats(pod_ref=ref)
        for name, info in infos.items():
            container_name = kubetypes.get_container_name(info.spec.labels)
            if name == pod_name:
                stats.start_time = info.spec.creation_time
                stats.cpu, stats.memory = helper.cadvisor_info_to_cpu_and_memory_stats(info)
            elif container_name not in ("", _POD_INFRA_CONTAINER_NAME):
                stats.containers.append(helper.cadvisor_info_to_container_cpu_and_memory_stats(container_name, info))
        return stats


def build_pod_ref(container_labels: dict[str, str]) -> statsapi.PodReference:
    return statsapi.PodReference(
        name=kubetypes.get_pod_name(container_labels),
        namespace=kubetypes.get_pod_namespace(container_labels),
        uid=kubetypes.get_pod_uid(container_labels),
    )


def is_pod_managed_container(info: cadvisorapiv2.ContainerInfo) -> bool:
    name = kubetypes.get_pod_name(info.spec.labels)
    namespace = kubetypes.get_pod_namespace(info.spec.labels)
    if bool(name) != bool(namespace):
        klog.info_s(
            "Expect container to have either both podName and podNamespace labels, or neither",
            podNameLabel=name,
            podNamespaceLabel=namespace,
        )
    return bool(name and namespace)


def get_cadvisor_pod_info_from_pod_uid(pod_uid: types.UID, infos: ContainerInfos) -> cadvisorapiv2.ContainerInfo | None:
    """Return the pod's own cgroup from cgroups by the last component of their names."""
    return infos.get(cm.get_pod_cgroup_name_suffix(pod_uid))


class _ContainerID(NamedTuple):
    pod_ref: statsapi.PodReference
    container_name: str


@dataclass(frozen=True, slots=True)
class _InfoWithCgroup:
    info: cadvisorapiv2.ContainerInfo
    cgroup: str

    def by_creation_time(self) -> tuple[datetime, bool]:
        """Return a sort key that puts last the newest cgroup, and of equally old ones the one with usage."""
        return self.info.spec.creation_time, has_memory_and_cpu_inst_usage(self.info)


def filter_terminated_container_info_and_assemble_by_pod_cgroup_key(
    infos: ContainerInfos,
) -> tuple[ContainerInfos, ContainerInfos]:
    """Return the running containers of pods by their cgroups, and all cgroups by the last component of their names."""
    by_container: dict[_ContainerID, list[_InfoWithCgroup]] = {}
    by_pod_cgroup: ContainerInfos = {}
    for cgroup, info in infos.items():
        by_pod_cgroup[_last_component(cgroup)] = info
        if is_pod_managed_container(info):
            id = _ContainerID(build_pod_ref(info.spec.labels), kubetypes.get_container_name(info.spec.labels))
            by_container.setdefault(id, []).append(_InfoWithCgroup(info, cgroup))
    result: ContainerInfos = {}
    for found in by_container.values():
        if len(found) == 1:
            # A leftover cgroup of a terminated container shows no usage.
            chosen = None if is_container_terminated(found[0].info) else found[0]
        else:
            found.sort(key=_InfoWithCgroup.by_creation_time)
            chosen = next((one for one in reversed(found) if has_memory_and_cpu_inst_usage(one.info)), None)
        if chosen is not None:
            result[chosen.cgroup] = chosen.info
    return result, by_pod_cgroup


def _last_component(cgroup: str) -> str:
    if cm.is_systemd_style_name(cgroup):
        return cm.parse_systemd_to_cgroup_name(cgroup)[-1]
    return posixpath.basename(cgroup)


def has_memory_and_cpu_inst_usage(info: cadvisorapiv2.ContainerInfo) -> bool:
    if not info.spec.has_cpu or not info.spec.has_memory:
        return False
    cstat = helper.latest_container_stats(info)
    return cstat is not None and _is_in_use(cstat)


def _is_in_use(cstat: cadvisorapiv2.ContainerStats) -> bool:
    """Report whether the container uses both CPU and memory.

    DIVERGES (fault of Go): a container with only one sample, and therefore no rate, counts as running.
    Go: pkg/kubelet/stats/cadvisor_stats_provider.go, hasMemoryAndCPUInstUsage: in the Go kubelet such a container
    counts as terminated.
    Why: a container that was just restarted would be missing, or its predecessor would be shown in its place.
    Test: cadvisor_stats_provider_test.py:test_container_that_was_just_started_anew
    """
    if cstat.memory is None or cstat.memory.rss == 0:
        return False
    return cstat.cpu_inst is None or cstat.cpu_inst.usage.total != 0


def is_container_terminated(info: cadvisorapiv2.ContainerInfo) -> bool:
    spec = info.spec
    cstat = helper.latest_container_stats(info)
    if cstat is None or not (spec.has_cpu or spec.has_memory or spec.has_network):
        return True
    if _has_network_usage(info):
        return False
    if cstat.memory is None:
        return True
    idle = cstat.cpu_inst is None or cstat.cpu_inst.usage.total == 0
    return idle and cstat.memory.rss == 0


def _has_network_usage(info: cadvisorapiv2.ContainerInfo) -> bool:
    network = helper.cadvisor_info_to_network_stats(info)
    if network is None:
        return False
    return any(one.rx_errors or one.tx_errors or one.rx_bytes or one.tx_bytes for one in network.interfaces)


def get_cadvisor_container_info(cadvisor: kubecadvisor.Interface) -> ContainerInfos:
    """Return every cgroup that cAdvisor watches. Raise OSError and LookupError."""
    # The current rate needs two samples.
    return cadvisor.container_info_v2("/", cadvisorapiv2.RequestOptions(count=2, recursive=True))
