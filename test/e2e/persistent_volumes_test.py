"""Test claims to directories and devices of the node, as containers see them: hostPath, local and ephemeral volumes.

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.claims import (
    claim_spec,
    on_node,
    put_claim,
    put_claimed,
    put_volume,
    volume_name,
    wait_for_claim,
    with_claim,
)
from framework.cluster_client import TIMEOUT, Namespace, or_none
from framework.disks import can_make_ext4, loop_device
from framework.local_cluster import Environment, LocalCluster
from framework.pods import pod, sleeper
from framework.volumes import looker, mounted, once, told
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api

pytestmark = pytest.mark.local

V = [mounted("v", "/v")]
DEVICE = [{"name": "v", "devicePath": "/dev/v"}]


# Each of these volumes needs a program that the machine may lack. A volume maps to the error that the kubelet then
# reports.
WITHOUT_TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "nfs": ({"nfs": {"server": "127.0.0.1", "path": "/export"}}, "mount.nfs is not installed"),
    "iscsi": (
        {"iscsi": {"targetPortal": "127.0.0.1", "iqn": "iqn.2001-04.com.example:storage", "lun": 0}},
        "iscsiadm is not installed",
    ),
}


@pytest.fixture(scope="module")
def folder(local: LocalCluster) -> Path:
    """Return the directory that holds the contents of the volumes."""
    folder = local.folder / "persistent-volumes"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def device(folder: Path) -> Iterator[str]:
    disk = folder / "disk"
    disk.write_bytes(b"on the disk\n" + bytes(1 << 20))
    with loop_device(disk) as device:
        yield device


@pytest.fixture(scope="module")
def empty_device(folder: Path) -> Iterator[str]:
    """Yield a device without a file system."""
    disk = folder / "empty"
    disk.write_bytes(bytes(8 << 20))
    with loop_device(disk) as device:
        yield device


@pytest.fixture(scope="module", autouse=True)
def made(environment: Environment, namespace: Namespace, folder: Path, device: str, empty_device: str) -> None:
    def directory(name: str) -> str:
        path = folder / name
        path.mkdir()
        (path / "file").write_text("from the node")
        path.chmod(0o777)
        return str(path)

    here, elsewhere = on_node(environment.node), on_node("elsewhere")
    put_claimed(namespace, "host-path", {"hostPath": {"path": directory("host-path")}})
    namespace.create(with_claim(once("host-path", looker("cat /v/file; echo from a pod > /v/new", volumeMounts=V))))
    readonly = "cat /v/file; touch /v/new 2>&1 | grep -o 'Read-only.*'"
    once_more = once("read-only", looker(readonly, volumeMounts=V))
    namespace.create(with_claim(once_more, "host-path", readOnly=True))
    sub = once("sub-path", looker("ls -A /v", volumeMounts=[mounted("v", "/v", subPath="folder/below")]))
    namespace.create(with_claim(sub, "host-path"))

    put_claimed(namespace, "local", {"local": {"path": directory("local")}}, nodeAffinity=here)
    group = {"runAsUser": 1000, "fsGroup": 2000}
    looks = "cat /v/file; touch /v/new; stat -c %g /v /v/file /v/new"
    namespace.create(with_claim(once("local", looker(looks, volumeMounts=V), securityContext=group)))
    put_claimed(namespace, "elsewhere", {"local": {"path": directory("elsewhere")}}, nodeAffinity=elsewhere)
    namespace.create(with_claim(once("elsewhere", looker("ls", volumeMounts=V))))
    put_claimed(namespace, "not-there", {"local": {"path": str(folder / "not-there")}}, nodeAffinity=here)
    namespace.create(with_claim(once("not-there", looker("ls", volumeMounts=V))))
    put_claimed(namespace, "block", {"local": {"path": device}}, "Block", nodeAffinity=here)
    reads = "[ -b /dev/v ] && dd if=/dev/v bs=12 count=1 2>/dev/null"
    namespace.create(with_claim(once("block", looker(reads, volumeDevices=DEVICE))))

    formatted = {"path": empty_device, "fsType": "ext4"}
    put_claimed(namespace, "formatted", {"local": formatted}, nodeAffinity=here, mountOptions=["noatime"])
    shows = "grep ' /v ' /proc/mounts; touch /v/new && stat -c %g /v/new; echo once more >> /v/kept; cat /v/kept"
    for name in ("formatted", "formatted-again"):
        found = once(name, looker(shows, volumeMounts=V), securityContext={"fsGroup": 2000})
        namespace.create(with_claim(found, "formatted"))

    template = {"metadata": {"labels": {"made": "for-a-pod"}}, "spec": claim_spec()}
    ephemeral = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]
    put_volume(namespace, "ephemeral-v", {"hostPath": {"path": directory("ephemeral")}})
    namespace.create(pod("ephemeral", sleeper(volumeMounts=V), volumes=ephemeral))

    for name, (source, _) in WITHOUT_TOOLS.items():
        put_claimed(namespace, name, source)
        namespace.create(with_claim(pod(name, sleeper(volumeMounts=V))))

    put_claim(namespace, "late")
    namespace.create(with_claim(once("late", looker("cat /v/file", volumeMounts=V))))
    namespace.create(with_claim(once("later", looker("cat /v/file", volumeMounts=V))))
    directory("late"), directory("later")


def test_claim_to_a_host_path(namespace: Namespace, folder: Path) -> None:
    assert told(namespace, "host-path") == "from the node"
    assert (folder / "host-path" / "new").read_text() == "from a pod\n"


def test_claim_that_is_read_only(namespace: Namespace) -> None:
    assert told(namespace, "read-only").splitlines() == ["from the nodeRead-only file system"]


def test_sub_path_of_a_claim(namespace: Namespace, folder: Path) -> None:
    assert told(namespace, "sub-path") == ""
    assert (folder / "host-path" / "folder" / "below").is_dir()


def test_local_volume_belongs_to_the_pods_group(namespace: Namespace) -> None:
    assert told(namespace, "local") == "from the node2000\n2000\n2000\n"


def test_local_volume_of_another_node(namespace: Namespace) -> None:
    volume = volume_name(namespace, "elsewhere")
    message = f'MountVolume.NodeAffinity check failed for volume "{volume}" : no matching NodeSelectorTerms'
    assert namespace.wait_for_event("elsewhere", "FailedMount", message).type == "Warning"


def test_local_volume_that_is_not_there(namespace: Namespace, folder: Path) -> None:
    volume = volume_name(namespace, "not-there")
    message = (
        f'MountVolume.NewMounter initialization failed for volume "{volume}" : path "{folder}/not-there" does not exist'
    )
    namespace.wait_for_event("not-there", "FailedMount", message)


def test_device_of_a_local_volume(namespace: Namespace) -> None:
    assert told(namespace, "block") == "on the disk\n"


@pytest.mark.parametrize("name", WITHOUT_TOOLS)
def test_claim_to_what_takes_programs(namespace: Namespace, name: str) -> None:
    if any(shutil.which(program) for program in ("mount.nfs", "iscsiadm")):
        pytest.skip("the machine has mount.nfs or iscsiadm")
    namespace.wait_for_event(
        name, "FailedMount", f'.* failed for volume "{volume_name(namespace, name)}" : .*{WITHOUT_TOOLS[name][1]}.*'
    )


@pytest.mark.skipif(not can_make_ext4(), reason="the machine cannot make file systems")
def test_device_with_a_file_system(namespace: Namespace) -> None:
    """An empty device gets a file system for its first pod, and later pods find the first pod's data."""
    seen = [told(namespace, name).splitlines() for name in ("formatted", "formatted-again")]
    for mount, group, *_ in seen:
        assert mount.split()[1:3] == ["/v", "ext4"] and "noatime" in mount.split()[3].split(",")
        assert group == "2000"
    assert max(len(lines) for lines in seen) == 4


def test_ephemeral_claim_of_others(namespace: Namespace) -> None:
    """A pod does not use an ephemeral claim that has the right name but belongs to another owner."""
    put_claimed(namespace, "taken-v", {"hostPath": {"path": "/etc"}})
    template = {"spec": claim_spec()}
    volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]
    namespace.create(pod("taken", sleeper(volumeMounts=V), volumes=volumes))
    why = f"PVC {namespace.name}/taken-v was not created for pod {namespace.name}/taken (pod is not owner)"
    namespace.wait_for_event("taken", "FailedMount", f".*{re.escape(why)}")


def test_ephemeral_claim_comes_and_goes_with_its_pod(core: CoreV1Api, namespace: Namespace) -> None:
    (found,) = namespace.wait_for_running("ephemeral")
    claim = core.read_namespaced_persistent_volume_claim("ephemeral-v", namespace.name)
    assert claim.metadata.labels == {"made": "for-a-pod"} and claim.status.phase == "Bound"
    assert [each.uid for each in claim.metadata.owner_references] == [found.metadata.uid]
    core.delete_namespaced_pod("ephemeral", namespace.name)
    namespace.wait_deleted("ephemeral")
    look = or_none(lambda: core.read_namespaced_persistent_volume_claim("ephemeral-v", namespace.name))
    wait_for("the claim is gone", lambda: look() is None, TIMEOUT)


def test_pod_waits_for_its_claim_and_the_claim_for_its_volume(namespace: Namespace, folder: Path) -> None:
    """A pod waits until its claim exists and has a volume.

    At first one claim lacks a volume, and the other claim does not exist.
    """
    wait_for_claim(namespace, "late", "waits", lambda claim: claim.status.phase == "Pending")
    put_volume(namespace, "late", {"hostPath": {"path": str(folder / "late")}})
    put_claimed(namespace, "later", {"hostPath": {"path": str(folder / "later")}})
    for name in ("late", "later"):
        assert told(namespace, name) == "from the node"
