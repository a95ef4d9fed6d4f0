"""Test pods with their own user namespaces: root in such a pod has an unprivileged ID on the node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, lines_of, pod, shell, with_evidence

# This number is twice the kubelet's default.
IDS = 131072
SCRATCH = {"name": "scratch", "mountPath": "/scratch"}
# The script makes a file in the volume, and records its IDs and the volume's owner.
LOOK = """
touch /scratch/{name}
cat /proc/self/uid_map > /evidence/{name}-uids
cat /proc/self/gid_map > /evidence/{name}-gids
stat -c '%u:%g' /scratch > /evidence/{name}-owner
"""
SLEEP = "trap 'echo bye > /dev/termination-log; exit 3' TERM; while true; do sleep 1000 & wait $!; done"


def _manifest(name: str, evidence: Path) -> Manifest:
    init = shell(LOOK.format(name="init"), "init", volumeMounts=[dict(SCRATCH)])
    main = shell(LOOK.format(name="main") + SLEEP, volumeMounts=[dict(SCRATCH)])
    manifest = pod(name, main, initContainers=[init], hostUsers=False, volumes=[{"name": "scratch", "emptyDir": {}}])
    return with_evidence(manifest, evidence)


def _supported(cri: CRIClient) -> bool:
    answer = cri.runtime.Status(runtimeapi.StatusRequest(), timeout=60)
    return any(each.features.user_namespaces for each in answer.runtime_handlers if not each.name)


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    process = new_kubelet("userns", {"userNamespaces": {"idsPerPod": IDS}})
    process.start()
    return process


def test_all_containers_have_the_ids_of_the_pod(kubelet: KubeletProcess, cri: CRIClient, tmp_path: Path) -> None:
    if not _supported(cri):
        pytest.skip("the runtime does not support user namespaces")
    evidence = tmp_path / "evidence"
    kubelet.write(_manifest("mapped", evidence))
    uid = kubelet.wait_for_running("mapped")[0].uid

    record = json.loads((kubelet.root_dir / "pods" / uid / "userns").read_text())
    first = record["uidMappings"][0]["hostId"]
    mapping = {"hostId": first, "containerId": 0, "length": IDS}
    assert record == {"uidMappings": [mapping], "gidMappings": [mapping]}
    assert first >= IDS
    assert first % IDS == 0
    kubelet.wait_for("both containers have written their IDs", lambda _: lines_of(evidence / "main-owner"))
    for name in ("init-uids", "init-gids", "main-uids", "main-gids"):
        assert lines_of(evidence / name)[0].split() == ["0", str(first), str(IDS)]
    # The mounts are ID-mapped, so files belong to root both in the pod and on the node.
    assert lines_of(evidence / "main-owner") == ["0:0"]
    scratch = kubelet.root_dir / "pods" / uid / "volumes" / "kubernetes.io~empty-dir" / "scratch"
    assert {path.name: path.stat().st_uid for path in scratch.iterdir()} == {"init": 0, "main": 0}
    assert (evidence / "main-uids").stat().st_uid == 0


def test_ids_are_the_same_after_a_restart_of_the_kubelet(
    kubelet: KubeletProcess, cri: CRIClient, tmp_path: Path
) -> None:
    if not _supported(cri):
        pytest.skip("the runtime does not support user namespaces")
    evidence = tmp_path / "evidence"
    kubelet.write(_manifest("stays", evidence))
    before = kubelet.wait_for_running("stays")[0]
    kubelet.wait_for("the container has written its IDs", lambda _: lines_of(evidence / "main-owner"))
    ids = lines_of(evidence / "main-uids")
    record = kubelet.root_dir / "pods" / before.uid / "userns"
    content = record.read_text()

    kubelet.kill()
    kubelet.start()
    after = kubelet.wait_for_running("stays")[0]
    assert after.container_id() == before.container_id()
    (evidence / "main-uids").unlink()
    cri.exec(before.container_id(), "kill", "1")
    again = kubelet.wait_for_pod("stays", lambda found: found.running and found.restarts() == 1)
    assert again.container()["lastState"]["terminated"]["message"] == "bye\n"
    kubelet.wait_for("the new container has written its IDs", lambda _: lines_of(evidence / "main-uids") == ids)
    assert record.read_text() == content

    kubelet.remove("stays")
    kubelet.wait_for("the pod is gone, and its directory", lambda _: before.uid not in kubelet.pod_directories())


def test_a_broken_record_is_the_trouble_of_its_pod_alone(
    kubelet: KubeletProcess, cri: CRIClient, tmp_path: Path
) -> None:
    if not _supported(cri):
        pytest.skip("the runtime does not support user namespaces")
    kubelet.write(_manifest("broken", tmp_path / "evidence"))
    before = kubelet.wait_for_running("broken")[0]
    record = kubelet.root_dir / "pods" / before.uid / "userns"
    content = record.read_text()
    kubelet.kill()
    record.write_text(content[:20])
    kubelet.start()
    kubelet.write(pod("plain", shell(SLEEP)))

    after, _ = kubelet.wait_for_running("broken", "plain")
    assert after.container_id() == before.container_id()
    cri.exec(before.container_id(), "kill", "1")
    refusal = "user namespace: invalid user namespace mappings file"
    kubelet.wait_for("the refusal in the log", lambda _: refusal in kubelet.log.read_text())
    record.write_text(content)
    again = kubelet.wait_for_pod("broken", lambda found: found.running and found.restarts() == 1)
    assert again.uid == before.uid
    assert record.read_text() == content


def test_a_runtime_without_them_is_told_of(kubelet: KubeletProcess, cri: CRIClient, tmp_path: Path) -> None:
    if _supported(cri):
        pytest.skip("the runtime supports user namespaces")
    kubelet.write(_manifest("refused", tmp_path / "evidence"))
    refusal = "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
    kubelet.wait_for("the refusal in the log", lambda _: refusal in kubelet.log.read_text())
    found = kubelet.wait_for_pod("refused", lambda found: found.container("init", "initContainerStatuses"))
    assert found.phase == "Pending"
    assert not cri.sandboxes(kubelet.full_name("refused"))
