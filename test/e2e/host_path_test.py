"""Test hostPath volumes: each type, mount propagation, and read-only mounts.

volume_faults_test.py tests paths that do not exist or have another type.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.cluster_client import Namespace, container
from framework.local_cluster import LocalCluster
from framework.pod_ways import Pods, teller
from framework.pods import Manifest, pod
from framework.volumes import looker, mounted, once, told
from kubernetes.client import CoreV1Api

SHOW = "stat -c '%a %F' /v"
# Every node has these paths of each type.
ANYWHERE = {
    "directory": ("/etc", "Directory", "directory"),
    "untyped": ("/etc", "", "directory"),
    "file": ("/etc/passwd", "File", "regular file"),
    "character": ("/dev/null", "CharDevice", "character special file"),
}
# Each kind maps to the type that creates a missing path, and what the kubelet creates.
MADE = {"directory": ("DirectoryOrCreate", "755 directory"), "file": ("FileOrCreate", "644 regular empty file")}
# The script mounts a file system below the volume if it may, and logs when it sees a mount that the node makes there.
WATCH = """
mkdir -p /v/inner && mount -t tmpfs none /v/inner 2>/dev/null && touch /v/inner/file && say mounted
trap 'umount /v/inner 2>/dev/null; exit 0' TERM
until [ -e /v/outer/file ] || [ -e /v/stop ]; do sleep 0.1; done
[ -e /v/outer/file ] && say seen || say unseen
while true; do sleep 1000 & wait $!; done
"""


def with_path(manifest: Manifest, path: Path | str, type_: str = "") -> Manifest:
    manifest["spec"]["volumes"] = [{"name": "v", "hostPath": {"path": str(path), "type": type_}}]
    return manifest


def looks(name: str, path: Path | str, type_: str, script: str = SHOW, **fields: object) -> Manifest:
    return with_path(once(name, looker(script, volumeMounts=[mounted("v", "/v", **fields)])), path, type_)


@pytest.mark.parametrize("name", ANYWHERE)
def test_what_is_there(pods: Pods, name: str) -> None:
    path, type_, found = ANYWHERE[name]
    pods.create(looks(f"there-{name}", path, type_))
    assert told(pods, f"there-{name}").split(" ", 1)[1].strip() == found


@pytest.mark.local
def test_socket(pods: Pods, local: LocalCluster) -> None:
    pods.create(looks("socket", local.containerd.endpoint.removeprefix("unix://"), "Socket"))
    assert told(pods, "socket").endswith("socket\n")


@pytest.mark.local
def test_block_device(pods: Pods) -> None:
    if not (devices := sorted(Path("/dev").glob("loop[0-9]*"))):
        pytest.skip("the machine has no unused block device")
    pods.create(looks("block", devices[0], "BlockDevice"))
    assert told(pods, "block").endswith("block special file\n")


@pytest.mark.local
@pytest.mark.parametrize("kind", MADE)
def test_what_is_made(pods: Pods, tmp_path: Path, kind: str) -> None:
    type_, found = MADE[kind]
    pods.create(looks(f"made-{kind}", tmp_path / "new", type_))
    assert told(pods, f"made-{kind}") == f"{found}\n"
    assert (tmp_path / "new").exists()


@pytest.mark.local
def test_content_is_the_nodes_and_stays(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "before").write_text("of the node")
    pods.create(looks("content", tmp_path, "Directory", "cat /v/before; echo of the pod > /v/after"))
    assert told(pods, "content") == "of the node"

    pods.delete("content")
    pods.wait_deleted("content")

    assert {path.name: path.read_text().strip() for path in tmp_path.iterdir()} == {
        "before": "of the node",
        "after": "of the pod",
    }


@contextmanager
def mount_of_its_own(path: Path) -> Iterator[None]:
    """Make the directory a shared mount. At the end, unmount it and all mounts below it."""
    with ExitStack() as stack:
        subprocess.run(["mount", "--bind", path, path], check=True)
        stack.callback(lambda: subprocess.run(["umount", "--recursive", "--lazy", path], check=True))
        subprocess.run(["mount", "--make-rshared", path], check=True)
        yield


# Each mode maps to two booleans: whether the container sees the node's mounts, and whether the node sees the
# container's.
PROPAGATION = {"None": (False, False), "HostToContainer": (True, False), "Bidirectional": (True, True)}


@pytest.mark.local
@pytest.mark.parametrize("mode", PROPAGATION)
def test_mount_propagation(pods: Pods, tmp_path: Path, mode: str) -> None:
    seen, told_of = PROPAGATION[mode]
    name = f"propagation-{mode.lower()}"
    with mount_of_its_own(tmp_path):
        (tmp_path / "outer").mkdir()
        mount = mounted("v", "/v", mountPropagation=mode)
        main = teller(WATCH, volumeMounts=[mount], securityContext={"privileged": True})
        pods.create(with_path(pod(name, main), tmp_path, "Directory"))
        pods.wait_for_running(name)
        log = pods.log(name)
        pods.wait_for_said(log, "mounted")
        assert (tmp_path / "inner/file").exists() == told_of

        subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / "outer"], check=True)
        (tmp_path / "outer/file").touch()
        if not seen:
            (tmp_path / "stop").touch()
        pods.wait_for_said(log, "seen" if seen else "unseen")

        pods.delete(name)
        pods.wait_deleted(name)


@pytest.mark.local
@pytest.mark.parametrize("mode", ["Disabled", "IfPossible", "Enabled"])
def test_read_only_mounts_below(
    core: CoreV1Api, namespace: Namespace, local: LocalCluster, tmp_path: Path, mode: str
) -> None:
    """Mounts below a read-only volume stay writable, unless the volume is mounted recursively read-only."""
    possible = has_recursive_read_only(local)
    if mode == "Enabled" and not possible:
        pytest.skip("the runtime has no recursive read-only mounts")
    name = f"read-only-{mode.lower()}"
    with mount_of_its_own(tmp_path):
        (tmp_path / "below").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / "below"], check=True)
        script = "touch /v/file 2>/dev/null || echo refused; touch /v/below/file 2>/dev/null || echo refused below"
        namespace.create(looks(name, tmp_path, "Directory", script, readOnly=True, recursiveReadOnly=mode))
        recursive = mode != "Disabled" and possible
        assert told(namespace, name).splitlines() == ["refused", *(["refused below"] if recursive else [])]

        main = container(namespace.history(name)[-1].object)
        assert main is not None
        [mount] = [each for each in main.volume_mounts if each.name == "v"]
        if mode != "Disabled":
            assert mount.recursive_read_only == ("Enabled" if recursive else "Disabled")
        core.delete_namespaced_pod(name, namespace.name)
        namespace.wait_deleted(name)


def has_recursive_read_only(local: LocalCluster) -> bool:
    answer: Any = local.cri.runtime.Status(runtimeapi.StatusRequest(), timeout=10)
    return any(each.features.recursive_read_only_mounts for each in answer.runtime_handlers if not each.name)
