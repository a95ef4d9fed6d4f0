"""Test the statistics of pods from cgroups.

Go: pkg/kubelet/stats/cadvisor_stats_provider_test.go
"""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest

from kubelet import cm, stats
from kubelet import container as kubecontainer
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from kubelet.cadvisor.testing import FakeCadvisor
from kubelet.stats import testing
from kubelet.stats.cadvisor_stats_provider import (
    filter_terminated_container_info_and_assemble_by_pod_cgroup_key,
    is_container_terminated,
    is_pod_managed_container,
)
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1

CTX = golang.background()


def stopped(seed: int, *names: str) -> cadvisorapiv2.ContainerInfo:
    """Return a leftover cgroup."""
    info = testing.container_info(seed, *names)
    info.spec.has_memory = info.spec.has_cpu = info.spec.has_network = False
    return info


def test_filter_terminated_container_info() -> None:
    c1 = ("pod0", "ns", "c1")
    newest, older = testing.container_info(2, *c1), testing.container_info(3, *c1)
    newest.spec.creation_time += timedelta(seconds=1)
    empty = testing.container_info(4, *c1)
    empty.spec.creation_time += timedelta(seconds=2)
    latest = empty.stats[0]
    assert latest.memory is not None
    latest.memory.rss = 0
    infos = {
        "/": testing.container_info(0),
        "/kubepods/podUIDpod0": testing.container_info(10),
        "/kubepods/podUIDpod0/pause": testing.container_info(1, "pod0", "ns", "POD"),
        "/kubepods/podUIDpod0/older": older,
        "/kubepods/podUIDpod0/newest": newest,
        "/kubepods/podUIDpod0/empty": empty,
        "/kubepods/podUIDpod0/stopped": stopped(5, "pod0", "ns", "c2"),
        "/kubepods.slice/kubepods-podUID_2.slice": testing.container_info(20),
    }
    running, by_pod_cgroup = filter_terminated_container_info_and_assemble_by_pod_cgroup_key(infos)
    assert set(running) == {"/kubepods/podUIDpod0/pause", "/kubepods/podUIDpod0/newest"}
    assert by_pod_cgroup["podUIDpod0"] is infos["/kubepods/podUIDpod0"]
    assert by_pod_cgroup["podUID-2"] is infos["/kubepods.slice/kubepods-podUID_2.slice"]


def test_of_two_made_at_once_the_one_in_use() -> None:
    names = ("pod0", "ns", "c1")
    infos = {"/a/used": testing.container_info(1, *names), "/a/left": stopped(2, *names)}
    running, _ = filter_terminated_container_info_and_assemble_by_pod_cgroup_key(infos)
    assert set(running) == {"/a/used"}


def test_container_that_was_just_started_anew() -> None:
    names = ("pod0", "ns", "c1")
    before, now = testing.container_info(1, *names), testing.container_info(2, *names)
    now.spec.creation_time += timedelta(seconds=1)
    now.stats[0].cpu_inst = None
    running, _ = filter_terminated_container_info_and_assemble_by_pod_cgroup_key({"/a/before": before, "/a/now": now})
    assert set(running) == {"/a/now"}


def quiet(**usage: int) -> cadvisorapiv2.ContainerInfo:
    """Return a container that uses nothing except `usage`."""
    info = testing.container_info(1, "pod", "ns", "c")
    latest = info.stats[0]
    assert latest.memory is not None and latest.cpu_inst is not None and latest.network is not None
    latest.network.interfaces = []
    latest.memory.rss = usage.get("rss", 0)
    latest.cpu_inst.usage.total = usage.get("cpu", 0)
    return info


def test_is_container_terminated() -> None:
    assert is_container_terminated(quiet())
    assert not is_container_terminated(quiet(rss=1))
    assert not is_container_terminated(quiet(cpu=1))
    without_rate = quiet(rss=1)
    without_rate.stats[0].cpu_inst = None
    assert not is_container_terminated(without_rate), "of a first sample the rate is not known"
    with_network = testing.container_info(1)
    with_network.stats[0].memory = None
    assert not is_container_terminated(with_network)
    assert is_container_terminated(cadvisorapiv2.ContainerInfo(quiet().spec, []))


@pytest.mark.parametrize(("name", "namespace", "managed"), [("pod", "ns", True), ("", "", False), ("pod", "", False)])
def test_is_pod_managed_container(name: str, namespace: str, managed: bool) -> None:
    assert is_pod_managed_container(testing.container_info(1, name, namespace, "c")) is managed


class _Cgroups:
    """Place every pod in the cgroup /kubepods/pod0."""

    def new_pod_container_manager(self) -> _Cgroups:
        return self

    def get_pod_container_name(self, pod: v1.Pod) -> tuple[cm.CgroupName, str]:
        return cm.CgroupName(("kubepods", "pod0")), "/kubepods/pod0"


def test_pod_cpu_and_memory_stats() -> None:
    cadvisor = FakeCadvisor(
        containers_v2={
            "/kubepods": testing.container_info(9),
            "/kubepods/pod0": testing.container_info(1000),
            "/kubepods/pod0/pause": testing.container_info(2000, "pod0", "ns", "POD"),
            "/kubepods/pod0/a": testing.container_info(3000, "pod0", "ns", "a"),
            "/kubepods/pod0/init.scope": testing.container_info(4000),
            "/kubepods/pod00": testing.container_info(5000),
        }
    )
    pod = v1.Pod(metadata=metav1.ObjectMeta(name="pod0", namespace="ns", uid=types.UID("UIDpod0")))
    provider = stats.CadvisorStatsProvider(cadvisor, cast(cm.ContainerManager, _Cgroups()))
    found = provider.pod_cpu_and_memory_stats(CTX, pod, kubecontainer.PodStatus())
    assert (found.pod_ref.name, found.pod_ref.uid, found.start_time) == ("pod0", "UIDpod0", testing.CREATION_TIME)
    assert found.memory is not None and found.memory.usage_bytes == 1012
    assert [container.name for container in found.containers] == ["a"]
    assert found.containers[0].cpu is not None and found.containers[0].cpu.usage_core_nano_seconds == 3010
    cadvisor.err = LookupError("unknown container")
    with pytest.raises(LookupError):
        provider.pod_cpu_and_memory_stats(CTX, pod, kubecontainer.PodStatus())
