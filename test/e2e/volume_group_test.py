"""Test the owners of files in persistent volumes: how fsGroup affects volumes that already have content.

- fsGroupChangePolicy: test_policy
- groups that volumes bring with them: test_group_that_a_volume_brings
- volumes of the node, which stay as they are: test_host_path_is_left_alone
- the policy of a CSI driver: test_policy_of_the_driver, test_driver_takes_care_of_the_group_itself

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.claims import on_node, put_claimed, with_claim
from framework.cluster_client import Namespace
from framework.csi import CSIDriver
from framework.local_cluster import Environment, LocalCluster
from framework.volumes import looker, mounted, once, told

pytestmark = pytest.mark.local

GROUP = 2000
OWNERS = "stat -c '%a %g' /v /v/folder /v/folder/file"
# Each name maps to the policy, to the mode and group of the volume's root, and to what a container sees of the root,
# the directory and the file.
KEPT, CHANGED = ["700 0", "600 0"], ["2770 2000", "660 2000"]
POLICIES: dict[str, tuple[str | None, int, int, list[str]]] = {
    "default": (None, 0o2770, GROUP, ["2770 2000", *CHANGED]),
    "always": ("Always", 0o2770, GROUP, ["2770 2000", *CHANGED]),
    "root-matches": ("OnRootMismatch", 0o2770, GROUP, ["2770 2000", *KEPT]),
    "root-of-another-group": ("OnRootMismatch", 0o2770, 3000, ["2770 2000", *CHANGED]),
    "root-that-may-not-be-written": ("OnRootMismatch", 0o2750, GROUP, ["2770 2000", *CHANGED]),
    "root-that-does-not-hand-it-on": ("OnRootMismatch", 0o770, GROUP, ["2770 2000", *CHANGED]),
}
# Each name maps to the volume's access mode and file system type, and the group that its files then have.
OF_DRIVER: dict[str, tuple[str, dict[str, str], int]] = {
    "with-type": ("ReadWriteOnce", {"fsType": "ext4"}, GROUP),
    "without-type": ("ReadWriteOnce", {}, 0),
    "of-many": ("ReadWriteMany", {"fsType": "ext4"}, 0),
}
ITSELF = "itself.csi"
NO_WORD = "no-word.csi"


@pytest.fixture(scope="module")
def folder(local: LocalCluster) -> Path:
    """Return the directory that holds the contents of the volumes."""
    folder = local.folder / "volume-group"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def itself(local: LocalCluster) -> Iterator[CSIDriver]:
    """Yield a driver that gets the group in its calls and applies it by itself."""
    options = {"capabilities": "volume-mount-group"}
    with CSIDriver(local.folder, ITSELF, local.kubelet.root_dir, options=options) as driver:
        yield driver


@pytest.fixture(scope="module")
def no_word(local: LocalCluster) -> Iterator[CSIDriver]:
    with CSIDriver(local.folder, NO_WORD, local.kubelet.root_dir, options={"capabilities": ""}) as driver:
        yield driver


def with_content(folder: Path, name: str, mode: int = 0o700, group: int = 0) -> str:
    path = folder / name
    (path / "folder").mkdir(parents=True)
    (path / "folder/file").write_text("from before")
    (path / "folder/file").chmod(0o600)
    (path / "folder").chmod(0o700)
    os.chown(path, 0, group)
    path.chmod(mode)
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def made(
    environment: Environment, namespace: Namespace, folder: Path, itself: CSIDriver, no_word: CSIDriver
) -> Iterator[None]:
    """Create all pods. At the end, delete the pods whose volumes need a driver before the driver stops."""
    here = on_node(environment.node)

    def looks(name: str, script: str, **security: Any) -> None:
        main = looker(script, volumeMounts=[mounted("v", "/v")])
        namespace.create(with_claim(once(name, main, securityContext={"fsGroup": GROUP, **security})))

    for name, (policy, root, group, _) in POLICIES.items():
        source = {"local": {"path": with_content(folder, name, root, group)}}
        put_claimed(namespace, name, source, nodeAffinity=here)
        looks(name, OWNERS, **({"fsGroupChangePolicy": policy} if policy else {}))
    put_claimed(namespace, "host-path", {"hostPath": {"path": with_content(folder, "host-path", 0o755)}})
    looks("host-path", OWNERS)
    annotated = {"hostPath": {"path": with_content(folder, "annotated")}}
    put_claimed(namespace, "annotated", annotated, annotations={"pv.beta.kubernetes.io/gid": "4321"})
    looks("annotated", "id -G")
    script = "touch /v/file; stat -c %g /v/file"
    for name, (mode, csi, _) in OF_DRIVER.items():
        put_csi(namespace, NO_WORD, name, mode, **csi)
        looks(name, script)
    put_csi(namespace, ITSELF, "itself", "ReadWriteOnce", fsType="ext4")
    looks("itself", script)
    yield
    of_drivers = [*OF_DRIVER, "itself"]
    for name in of_drivers:
        namespace.core.delete_namespaced_pod(name, namespace.name)
    for name in of_drivers:
        namespace.wait_deleted(name)
    for driver in (itself, no_word):
        assert driver.violations(stages=False) == [], driver.describe()
        assert [each for each in driver.mounts() if "kubernetes.io~csi" in each] == []


def put_csi(namespace: Namespace, driver: str, name: str, mode: str, **more: str) -> None:
    source = {"csi": {"driver": driver, "volumeHandle": f"{namespace.name}-{name}", **more}}
    put_claimed(namespace, name, source, accessModes=[mode])


@pytest.mark.parametrize("name", POLICIES)
def test_policy(namespace: Namespace, name: str) -> None:
    assert told(namespace, name).splitlines() == POLICIES[name][-1]


def test_host_path_is_left_alone(namespace: Namespace) -> None:
    assert told(namespace, "host-path").splitlines() == ["755 0", *KEPT]


def test_group_that_a_volume_brings(namespace: Namespace) -> None:
    assert set(told(namespace, "annotated").split()) >= {"2000", "4321"}


@pytest.mark.parametrize("name", OF_DRIVER)
def test_policy_of_the_driver(namespace: Namespace, name: str) -> None:
    """By default only ReadWriteOnce volumes with a file system type give their files the pod's group."""
    assert told(namespace, name) == f"{OF_DRIVER[name][-1]}\n"


def test_driver_takes_care_of_the_group_itself(namespace: Namespace, itself: CSIDriver) -> None:
    assert told(namespace, "itself") == "0\n"
    [call, *_] = itself.calls("NodePublishVolume", volume=f"{namespace.name}-itself")
    assert call.request["volume_capability"]["mount"]["volume_mount_group"] == str(GROUP)
