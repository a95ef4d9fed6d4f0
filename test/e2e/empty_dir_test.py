"""Test empty directories on disk, in memory and of huge pages: who may write, how much they hold, and when they vanish.

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.cluster_client import TIMEOUT, Namespace, restarts
from framework.local_cluster import Environment, LocalCluster
from framework.pod_ways import Pods
from framework.pods import Manifest, pod, shell, sleeper
from framework.volumes import looker, mounted, once, told
from framework.waiting import wait_for
from kubernetes.client import V1Node
from kubernetes.utils import parse_quantity

V = [mounted("v", "/v")]
# The memory limit also limits the size of directories in memory.
LIMITS = {"limits": {"memory": "32Mi"}}
SIZE = "df -k /v | tail -n 1 | awk '{ print $2 }'"
HUGE_PAGES = "hugepages-2Mi"
HUGE_PAGES_OF_MACHINE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
# Two pods need these pages.
PAGES = 4


def with_directory(manifest: Manifest, **source: object) -> Manifest:
    manifest["spec"].setdefault("volumes", []).append({"name": "v", "emptyDir": source})
    return manifest


def looks(name: str, script: str, source: dict[str, str] | None = None, **spec: Any) -> Manifest:
    return with_directory(once(name, looker(script, volumeMounts=V, resources=LIMITS), **spec), **(source or {}))


@pytest.fixture(scope="module", autouse=True)
def made(both_ways: dict[str, Pods]) -> None:
    memory, limited = {"medium": "Memory"}, {"medium": "Memory", "sizeLimit": "1Mi"}
    user = {"runAsUser": 1000, "runAsGroup": 3000}
    first = "[ -e /v/before ] || { echo first > /v/before; exit 1; }"
    init = shell("echo one > /v/one; mkdir /v/folder; chmod 700 /v/folder", "init", volumeMounts=V)
    again = looker(f"{first}; cat /v/before", volumeMounts=V)
    fills = "touch /v/new && stat -c %g /v/new; stat -c '%a %u:%g' /v"
    for pods in both_ways.values():
        pods.create(looks("plain", "stat -c '%a %u:%g' /v; cat /v/one; stat -c %a /v/folder", initContainers=[init]))
        pods.create(with_directory(pod("restarted", again, restartPolicy="OnFailure")))
        pods.create(looks("user", fills, securityContext=user))
        pods.create(looks("group", fills, securityContext={**user, "fsGroup": 2000}))
        pods.create(looks("memory", f"stat -f -c %T /v; {SIZE}; stat -c %a /v", memory))
        pods.create(looks("memory-group", fills, memory, securityContext={**user, "fsGroup": 2000}))
        full = f"{SIZE}; dd if=/dev/zero of=/v/file bs=1024 count=2048 2>&1 | grep -o 'No space.*'; wc -c < /v/file"
        pods.create(looks("memory-limited", full, limited))
        goes = with_directory(pod("goes", sleeper(volumeMounts=[*V, mounted("m", "/m")])))
        goes["spec"]["volumes"].append({"name": "m", "emptyDir": memory})
        pods.create(goes)


def test_directory_is_everybodys_and_the_containers_share_it(pods: Pods) -> None:
    assert told(pods, "plain").splitlines() == ["777 0:0", "one", "700"]


def test_content_outlives_a_container(pods: Pods) -> None:
    pods.wait_for("restarted", "started again", lambda found: restarts(found) == 1)
    assert told(pods, "restarted") == "first\n"


def test_user_may_write(pods: Pods) -> None:
    assert told(pods, "user").splitlines() == ["3000", "777 0:0"]


@pytest.mark.parametrize("name", ["group", "memory-group"])
def test_new_files_are_of_the_pods_group(pods: Pods, name: str) -> None:
    group, directory = told(pods, name).splitlines()
    assert group == "2000"
    assert directory in ("2777 0:2000", "3777 0:2000")


def test_memory_is_as_large_as_the_pods(pods: Pods) -> None:
    kind, size, mode = told(pods, "memory").splitlines()
    assert (kind, int(size), mode) == ("tmpfs", 32 * 1024, "1777")


def test_memory_that_is_full_is_the_containers_trouble_alone(pods: Pods) -> None:
    size, refusal, written = told(pods, "memory-limited").splitlines()
    assert (int(size), refusal) == (1024, "No space left on device")
    assert int(written) == 1024 * 1024


@pytest.mark.local
def test_all_goes_with_the_pod(pods: Pods, local: LocalCluster) -> None:
    pods.wait_for_running("goes")
    uid = pods.uid("goes")
    assert uid in Path("/proc/self/mountinfo").read_text()

    pods.delete("goes")
    pods.wait_deleted("goes")

    wait_for("the pod's directory is gone", lambda: uid not in local.kubelet.pod_directories(), TIMEOUT)
    assert uid not in Path("/proc/self/mountinfo").read_text()


@pytest.fixture
def huge_pages(namespace: Namespace, environment: Environment) -> Iterator[None]:
    """Give a node on this machine huge pages for a while. A kubelet discovers huge pages only when it starts."""

    def has_some() -> bool:
        return has_huge_pages(namespace.core.read_node(namespace.node))

    if environment.local is None:
        if not has_some():
            pytest.skip(f"the node has no {HUGE_PAGES}")
        yield
        return
    before = HUGE_PAGES_OF_MACHINE.read_text()
    HUGE_PAGES_OF_MACHINE.write_text(str(max(int(before), PAGES)))
    try:
        with environment.local.kubelet.configured({}):
            wait_for(f"{HUGE_PAGES} of the node", has_some, TIMEOUT)
            yield
    finally:
        HUGE_PAGES_OF_MACHINE.write_text(before)


@pytest.mark.usefixtures("huge_pages")
def test_huge_pages(namespace: Namespace) -> None:
    limits = {"limits": {HUGE_PAGES: "4Mi", "memory": "32Mi", "cpu": "100m"}}
    script = looker("stat -f -c %T /v; grep ' /v ' /proc/mounts", volumeMounts=V, resources=limits)
    namespace.create(with_directory(once("huge", script), medium="HugePages"))
    namespace.create(with_directory(once("huge-of-size", script), medium="HugePages-2Mi"))
    for name in ("huge", "huge-of-size"):
        kind, mount = told(namespace, name).splitlines()
        assert kind in ("hugetlbfs", "UNKNOWN")
        assert " hugetlbfs " in mount and "pagesize=2M" in mount


def has_huge_pages(node: V1Node) -> bool:
    found = node.status.allocatable.get(HUGE_PAGES)
    return found is not None and bool(parse_quantity(found) >= 4 << 20)
