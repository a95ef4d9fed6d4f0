"""Test `kubelet orphans`: which directories are orphans, the output, and the removal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from framework import faulty_call
from framework.apiserver.cluster import Cluster
from framework.client_calls import Call
from framework.faulty_call import MINE, OTHER, FaultyCall, Kind
from framework.ports import free_port
from kubelet_cmd.kubelet.app import orphans, server

from kubelet import allocation
from pkg import klog

HERE = Path(__file__).parents[2]
POD = """apiVersion: v1
kind: Pod
metadata:
  name: wanted
  uid: wanted
spec:
  containers:
  - name: c
    image: i
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a root directory with the pods `wanted`, `running`, `data` and `leftover`."""
    monkeypatch.setattr(orphans, "_pods_of_runtime", lambda server: {"running"})
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "pod.yaml").write_text(POD)
    for uid in ("wanted", "running", "leftover"):
        (tmp_path / "root/pods" / uid / "containers").mkdir(parents=True)
    (tmp_path / "root/pods/data/volumes/kubernetes.io~empty-dir/v").mkdir(parents=True)
    (tmp_path / "root/pods/data/volumes/kubernetes.io~empty-dir/v/file").write_text("x")
    return tmp_path


@pytest.fixture
def orphans_of(root: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., tuple[int, str, str]]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        flags = [f"--root-dir={root}/root", f"--pod-manifest-path={root}/manifests", "--hostname-override=node"]
        code = server.new_kubelet_command().execute(["orphans", *arguments, *flags])
        out, err = capsys.readouterr()
        return code, out, err

    yield run
    klog.set_verbosity(0)


def pods(root: Path) -> list[str]:
    return sorted(os.listdir(root / "root/pods"))


Run = Callable[..., tuple[int, str, str]]


def test_directories_of_nobody_are_listed_and_explained(root: Path, orphans_of: Run) -> None:
    code, out, _ = orphans_of()
    data, leftover = f"{root}/root/pods/data", f"{root}/root/pods/leftover"
    assert code == 1
    assert f"{data} (data)\n  volume v (kubernetes.io/empty-dir) still holds 1 file: file\n" in out
    assert f"{leftover} (leftover)\n  it holds nothing except what the kubelet itself created\n" in out
    assert "wanted" not in out and "running" not in out
    assert pods(root) == ["data", "leftover", "running", "wanted"], "nothing is removed unless asked to"


def test_names_that_pods_have_chosen_control_no_terminal(root: Path, orphans_of: Run) -> None:
    volume = os.fsencode(root / "root/pods/data/volumes/kubernetes.io~empty-dir/v/")
    for name in (b"\xff", b"\x1b]0;title\x07", b"g\n(leftover)"):
        Path(os.fsdecode(volume + b"/" + name)).touch()
    code, out, _ = orphans_of()
    assert code == 1
    assert "4 files: \ufffd]0;title\ufffd, file, g\ufffd(leftover), ...\n" in out
    (root / "root/pods/data/volumes/kubernetes.io~empty-dir/v/file").unlink()
    assert "3 files: \ufffd]0;title\ufffd, g\ufffd(leftover), \ufffd\n" in orphans_of()[1]


def test_manifests_that_cannot_be_looked_at_are_not_taken_for_none(root: Path, orphans_of: Run) -> None:
    (root / "manifests/pod.yaml").unlink()
    (root / "manifests").rmdir()
    (root / "manifests").symlink_to("manifests")
    code, _, err = orphans_of("--remove")
    assert code == 1
    assert f"cannot determine the orphans: cannot determine the pods of {root}/manifests" in err
    assert pods(root) == ["data", "leftover", "running", "wanted"]


def test_asked_to_it_removes_them(root: Path, orphans_of: Run) -> None:
    code, out, _ = orphans_of("--remove")
    assert code == 0
    assert f"{root}/root/pods/data (data): removed\n" in out
    assert pods(root) == ["running", "wanted"]
    assert orphans_of()[:2] == (0, "No orphaned pod directories.\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_what_something_is_mounted_below_is_refused(root: Path, orphans_of: Run) -> None:
    mounted = root / "root/pods/mounted/volumes/kubernetes.io~nfs/v"
    mounted.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "source", mounted], check=True)
    try:
        (mounted / "file").write_text("precious")
        code, out, _ = orphans_of("--remove", "-o", "json")
        results = {result["pod_uid"]: result for result in json.loads(out)}
        assert code == 1
        assert (mounted / "file").read_text() == "precious"
    finally:
        subprocess.run(["umount", mounted], check=True)
    assert {uid: result["removed"] for uid, result in results.items()} == {
        "data": True,
        "leftover": True,
        "mounted": False,
    }
    assert results["mounted"]["kind"] == "mounted"
    assert results["mounted"]["reasons"] == [f"{mounted} is mounted (tmpfs from source)"]
    assert results["mounted"]["refused"].endswith(f": {mounted} is a mount point: unmount it first")


def test_manifest_that_cannot_be_read_may_be_that_of_a_pod(root: Path, orphans_of: Run) -> None:
    (root / "manifests" / "bad.yaml").write_text("kind: Pod\n  bad: [")
    code, out, err = orphans_of("--remove")
    assert (code, out) == (1, "")
    assert "Error: cannot determine the orphans: cannot determine the pods of" in err and "bad.yaml" in err
    assert len(pods(root)) == 4


def test_pod_that_the_kubelet_has_noted_is_no_orphan(root: Path, orphans_of: Run) -> None:
    # The command may lack the kubelet's --kubeconfig.
    noted = allocation.state.StateCheckpoint(str(root / "root"), allocation.ALLOCATED_PODS_STATE_FILE)
    noted.set_pod_resource_info("data", allocation.state.PodResourceInfo())
    code, out, _ = orphans_of("--remove")
    assert code == 0 and "data" not in out
    assert pods(root) == ["data", "running", "wanted"]


def test_note_that_cannot_be_read_may_be_of_other_pods(root: Path, orphans_of: Run) -> None:
    (root / "root" / allocation.ALLOCATED_PODS_STATE_FILE).write_text("{")
    code, _, err = orphans_of("--remove")
    assert code == 1 and allocation.ALLOCATED_PODS_STATE_FILE in err
    assert len(pods(root)) == 4


def test_manifest_url_that_does_not_answer_may_have_pods(root: Path, orphans_of: Run) -> None:
    """If the manifest URL does not respond, the error names the URL without its password."""
    code, out, err = orphans_of("--remove", f"--manifest-url=http://user:secret@127.0.0.1:{free_port()}/pods")
    assert (code, out) == (1, "") and "cannot determine the pods of http://" in err
    assert "secret" not in err and len(pods(root)) == 4


def test_api_server_that_does_not_answer_may_have_pods(root: Path, orphans_of: Run) -> None:
    code, _, err = orphans_of("--remove", f"--kubeconfig={root}/none")
    assert code == 1 and "cannot determine the pods that the API server has for this node" in err
    assert len(pods(root)) == 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Provide a cluster with the pod `bound` on the node, and `elsewhere` on another node."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        for name, node in (("bound", "node"), ("elsewhere", "other")):
            spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
            cluster.store.create("pods", {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        yield cluster


@pytest.fixture
def in_cluster(root: Path, cluster: Cluster) -> Path:
    """Provide the root directory with directories of the pods in the API server."""
    for pod in cluster.store.list("pods"):
        (root / "root/pods" / pod["metadata"]["uid"] / "volumes").mkdir(parents=True)
    return root


def test_pods_of_the_node_in_the_api_server_are_no_orphans(in_cluster: Path, cluster: Cluster, orphans_of: Run) -> None:
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.store.list("pods")}
    code, _, err = orphans_of("--remove", f"--kubeconfig={cluster.node_kubeconfig('node')}")
    assert code == 0, err
    assert pods(in_cluster) == sorted(["running", "wanted", uids["bound"]])


def test_renewed_certificate_stands_in_for_one_that_has_expired(
    in_cluster: Path, cluster: Cluster, orphans_of: Run
) -> None:
    expired = cluster.node_kubeconfig("node", timedelta(seconds=-1))
    flags = (f"--kubeconfig={expired}", f"--cert-dir={in_cluster}/pki", "--rotate-certificates", "-o=json")
    code, _, err = orphans_of(*flags)
    assert code == 1 and "cannot determine the pods that the API server has for this node" in err
    (in_cluster / "pki").mkdir()
    renewed = cluster.authority.node_pair("node")
    (in_cluster / "pki/kubelet-client-current.pem").write_bytes(renewed.certificate + renewed.key)
    _, out, _ = orphans_of(*flags)
    found = {result["pod_uid"] for result in json.loads(out)}
    assert len(found) == 3 and {"data", "leftover"} < found, "the output lacks the pod of another node"


def test_server_that_does_not_know_the_node_may_have_its_pods(
    in_cluster: Path, cluster: Cluster, orphans_of: Run
) -> None:
    code, out, err = orphans_of("--remove", f"--kubeconfig={cluster.node_kubeconfig('other')}")
    assert (code, out) == (1, "") and "cannot determine the pods that the API server has for this node" in err
    assert len(pods(in_cluster)) == 6


@faulty_call.cases(Call("cmd/kubelet/app/orphans.py", "pods", "list"))
def test_call_that_lists_pods(call: Call, kind: Kind, root: Path, orphans_of: Run, tmp_path: Path) -> None:
    """The command removes nothing if it cannot list the pods."""
    with FaultyCall(tmp_path, call, kind) as api:
        api.create("pods", {"spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "node"}})
        of_node = [api.cluster.store.get("pods", name, "default")["metadata"]["uid"] for name in (MINE, OTHER)]
        for uid in of_node:
            (root / "root/pods" / uid / "volumes").mkdir(parents=True)
        with api.going_wrong(), api.no_waiting():
            code, out, err = orphans_of("--remove", f"--kubeconfig={api.kubeconfig}")
        assert (code, out) == (1, "") and "the pod" in err
        assert len(pods(root)) == 6
        code, _, err = orphans_of("--remove", f"--kubeconfig={api.kubeconfig}")
        assert code == 0, err
        assert pods(root) == sorted(["running", "wanted", *of_node])


def test_runtime_that_does_not_answer_may_have_pods(tmp_path: Path) -> None:
    (tmp_path / "pods/u").mkdir(parents=True)
    flags = [f"--root-dir={tmp_path}", f"--container-runtime-endpoint=unix://{tmp_path}/none.sock"]
    command = [sys.executable, "-m", "cmd.kubelet", "orphans", "--remove", *flags]
    result = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1 and "cannot ask the container runtime at" in result.stderr
    assert "Traceback" not in result.stderr and (tmp_path / "pods/u").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["-o", "xml"], 'unknown output format "xml"'), (["some"], "unknown argument some")],
)
def test_refusals(orphans_of: Run, arguments: list[str], message: str) -> None:
    code, _, err = orphans_of(*arguments)
    assert code == 1 and message in err
