"""Test an API pod with its own user namespace, or its refusal if the runtime does not support user namespaces."""

from __future__ import annotations

from contextlib import closing

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.cluster_client import Namespace, conditions, terminated
from framework.local_cluster import LocalCluster
from framework.pod_ways import Pods, teller
from framework.pods import Manifest, pod, shell

pytestmark = pytest.mark.local

SCRATCH = {"name": "scratch", "mountPath": "/scratch"}
# Both containers run as root in the pod, but the node sees other IDs. The second container must be able to read and
# change the first one's file.
WRITE = "echo from init > /scratch/file; chown 1000:2000 /scratch/file; chmod 600 /scratch/file"
READ = """
trap 'say told; exit 0' TERM
read inner outer length < /proc/self/uid_map
say ids $inner $outer $length
say file $(stat -c %u:%g /scratch/file) $(cat /scratch/file)
say process $(id -u)
echo more >> /scratch/file && say written
while true; do sleep 1000 & wait $!; done
"""


def mapped(name: str) -> Manifest:
    return pod(
        name,
        teller(READ, volumeMounts=[SCRATCH]),
        initContainers=[shell(WRITE, "init", volumeMounts=[SCRATCH])],
        grace=30,
        hostUsers=False,
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )


@pytest.fixture(scope="module")
def supported(local: LocalCluster) -> bool:
    answer = local.cri.runtime.Status(runtimeapi.StatusRequest(), timeout=10)
    return any(each.features.user_namespaces for each in answer.runtime_handlers if not each.name)


@pytest.fixture(scope="module", autouse=True)
def made(namespace: Namespace, supported: bool) -> None:
    for name in ("one", "two") if supported else ("refused",):
        namespace.create(mapped(name))


def test_root_in_a_pod_is_nobody_on_the_node(namespace: Namespace, local: LocalCluster, supported: bool) -> None:
    """The root user of a pod has an unprivileged ID on the node, and each pod has its own range of IDs."""
    if not supported:
        pytest.skip("the runtime does not support user namespaces")
    with closing(Pods(namespace, local)) as seen:
        firsts = set()
        for name in ("one", "two"):
            seen.wait_for_running(name)
            log = seen.log(name)
            seen.wait_for_said(log, "written")
            ids, file, process, _ = (said.text for said in log.lines())
            inner, outer, length = (int(number) for number in ids.removeprefix("ids ").split())
            assert (inner, length) == (0, 65536)
            assert outer >= 65536 and outer % 65536 == 0
            assert (file, process) == ("file 1000:2000 from init", "process 0")
            firsts.add(outer)
        assert len(firsts) == 2

        seen.delete("one")
        state = terminated(seen.wait_deleted("one").object)
        assert state is not None and state.exit_code == 0


def test_a_runtime_without_them_refuses_the_pod(namespace: Namespace, supported: bool) -> None:
    if supported:
        pytest.skip("the runtime supports user namespaces")
    refusal = ".*can't set `spec.hostUsers: false`, runtime does not support user namespaces"
    namespace.wait_for_event("refused", "FailedCreatePodSandBox", refusal)
    found = namespace.wait_for_seen("refused", "a status", lambda found: found.status.conditions)
    assert found.status.phase == "Pending"
    assert conditions(found)["PodReadyToStartContainers"].status == "False"
