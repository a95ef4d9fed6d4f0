"""Test volumes of CSI drivers, which run as separate programs on the node: the containers' view and the drivers' calls.

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from csi_driver import faults
from framework.claims import grow, put_claimed, volume_name, wait_for_claim, with_claim
from framework.cluster_client import TIMEOUT, Namespace
from framework.csi import EXPAND, PUBLISH, STAGE, UNPUBLISH, UNSTAGE, CSIDriver, loop_devices
from framework.local_cluster import Environment, LocalCluster
from framework.pods import Manifest, pod, sleeper
from framework.volumes import looker, mounted, once, put_secret, review, told
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api, StorageV1Api, V1CSINodeDriver

pytestmark = pytest.mark.local

DRIVER, PLAIN, NOBODY = "e2e.csi", "plain.csi", "nobody.csi"
# Volumes of this storage class may grow.
GROWING = "growing.e2e.csi"
ZONE = "topology.e2e.csi/zone"
NODE_ID = "the-node"
V = [mounted("v", "/v")]
MIB = 1 << 20
INFO = "csi.storage.k8s.io/"


@pytest.fixture(scope="module")
def storage(environment: Environment) -> StorageV1Api:
    return StorageV1Api(environment.api)


@pytest.fixture(scope="module")
def drivers(local: LocalCluster, storage: StorageV1Api, namespace: Namespace) -> Iterator[dict[str, CSIDriver]]:
    """Yield a driver with every capability and a driver with none."""
    _put_driver(
        storage,
        DRIVER,
        podInfoOnMount=True,
        fsGroupPolicy="File",
        tokenRequests=[{"audience": "storage", "expirationSeconds": 3600}],
        requiresRepublish=True,
        volumeLifecycleModes=["Persistent", "Ephemeral"],
    )
    _put_driver(storage, PLAIN, attachRequired=False, fsGroupPolicy="None")
    _put_driver(storage, NOBODY, attachRequired=False)
    growing = {"metadata": {"name": GROWING}, "provisioner": DRIVER, "allowVolumeExpansion": True}
    storage.create_storage_class(growing)
    root = local.kubelet.root_dir
    options = {"capabilities": "stage,stats,expand,condition", "topology": f"{ZONE}=a", "max-volumes": 50}
    full = CSIDriver(local.folder, DRIVER, root, NODE_ID, options)
    plain = CSIDriver(local.folder, PLAIN, root, NODE_ID, {"capabilities": ""})
    with full, plain:
        yield {DRIVER: full, PLAIN: plain}
        full.forget_faults()
        # Without their drivers, pods that a failed test left behind would not end.
        _delete_pods(namespace)
    for name in (DRIVER, PLAIN, NOBODY):
        storage.delete_csi_driver(name)
    storage.delete_storage_class(GROWING)


@pytest.fixture(scope="module")
def driver(drivers: dict[str, CSIDriver]) -> CSIDriver:
    return drivers[DRIVER]


def _put_driver(storage: StorageV1Api, name: str, **spec: Any) -> None:
    """Create a driver's CSIDriver object."""
    storage.create_csi_driver({"metadata": {"name": name}, "spec": spec})


def _delete_pods(namespace: Namespace) -> None:
    for found in namespace.pods.all():
        grace = 0 if found.status.phase == "Pending" else None
        namespace.core.delete_namespaced_pod(found.metadata.name, namespace.name, grace_period_seconds=grace)
    for found in namespace.pods.all():
        namespace.wait_deleted(found.metadata.name)


def handle(namespace: Namespace, name: str) -> str:
    """Return the handle by which the driver knows the volume of a claim."""
    return f"{namespace.name}-{name}"


def put(namespace: Namespace, name: str, mode: str = "Filesystem", driver: str = DRIVER, **csi: Any) -> None:
    """Create a claim that is bound to a volume of a driver."""
    spec = {key: csi.pop(key) for key in ("accessModes", "mountOptions", "storageClassName") if key in csi}
    source = {"csi": {"driver": driver, "volumeHandle": handle(namespace, name), **csi}}
    put_claimed(namespace, name, source, mode, **spec)


@pytest.fixture(scope="module", autouse=True)
def made(namespace: Namespace, drivers: dict[str, CSIDriver]) -> None:
    driver = drivers[DRIVER]
    writes = "echo content > /v/file; cat /v/file; stat -c %g /v/file"
    put_secret(namespace, "stage", {"key": b"of stage"})
    put_secret(namespace, "publish", {"key": b"of publish"})
    secrets: dict[str, Any] = {
        f"node{each}SecretRef": {"name": each.lower(), "namespace": namespace.name} for each in ("Stage", "Publish")
    }
    put(namespace, "all", fsType="xfs", volumeAttributes={"a": "b"}, mountOptions=["discard"], **secrets)
    group = {"fsGroup": 2000}
    namespace.create(with_claim(once("all", looker(writes, volumeMounts=V), securityContext=group)))
    put(namespace, "plain", driver=PLAIN)
    namespace.create(with_claim(once("plain", looker(writes, volumeMounts=V), securityContext=group)))
    put(namespace, "read-only")
    reads = "touch /v/file 2>&1 | grep -o 'Read-only.*'"
    namespace.create(with_claim(once("read-only", looker(reads, volumeMounts=V)), readOnly=True))
    put(namespace, "shared")
    for name in ("shared", "sharing"):
        namespace.create(with_claim(pod(name, sleeper(volumeMounts=V)), "shared"))
    put(namespace, "block", "Block")
    device = [{"name": "v", "devicePath": "/dev/v"}]
    namespace.create(with_claim(pod("block", sleeper(volumeDevices=device))))
    put(namespace, "grows", storageClassName=GROWING)
    namespace.create(with_claim(pod("grows", sleeper(volumeMounts=V))))
    inline = {"driver": DRIVER, "volumeAttributes": {"c": "d"}}
    namespace.create(_with(pod("inline", sleeper(volumeMounts=V)), {"csi": inline}))
    put(namespace, "nobody", driver=NOBODY)
    namespace.create(with_claim(once("nobody", looker("ls", volumeMounts=V))))
    driver.let(PUBLISH, faults.FAIL, volume=handle(namespace, "fails"), times=2, message="no bed of roses")
    put(namespace, "fails")
    namespace.create(with_claim(once("fails", looker("ls /v", volumeMounts=V))))


def _with(manifest: Manifest, source: dict[str, Any]) -> Manifest:
    manifest["spec"]["volumes"] = [{"name": "v", **source}]
    return manifest


# --- Registration -----------------------------------------------------------------------------------


def test_node_tells_of_its_drivers(
    core: CoreV1Api, storage: StorageV1Api, environment: Environment, driver: CSIDriver
) -> None:
    def look() -> dict[str, V1CSINodeDriver]:
        known = {each.name: each for each in storage.read_csi_node(environment.node).spec.drivers}
        return known if {DRIVER, PLAIN} <= set(known) else {}

    known = wait_for("the CSINode has the drivers", look, TIMEOUT)
    assert (known[DRIVER].node_id, known[DRIVER].topology_keys) == (NODE_ID, [ZONE])
    allocatable = known[DRIVER].allocatable
    assert allocatable is not None and allocatable.count == 50
    assert not known[PLAIN].topology_keys and known[PLAIN].allocatable is None
    node = core.read_node(environment.node)
    assert node.metadata.labels[ZONE] == "a"
    assert json.loads(node.metadata.annotations["csi.volume.kubernetes.io/nodeid"])[DRIVER] == NODE_ID
    # The kubelet updates the API server before it notifies the driver.
    told = wait_for("the driver's notification", lambda: driver.calls("NotifyRegistrationStatus"), TIMEOUT)
    assert told[-1].request == {"plugin_registered": True}


# --- The containers' view and the drivers' calls ----------------------------------------------------


def test_volume_with_everything(namespace: Namespace, driver: CSIDriver, environment: Environment) -> None:
    assert told(namespace, "all") == "content\n2000\n"
    volume = handle(namespace, "all")
    stage, publish = (driver.calls(method, volume=volume)[0].request for method in (STAGE, PUBLISH))
    attached = {"attachedTo": environment.node}
    for request, secret in ((stage, "of stage"), (publish, "of publish")):
        assert request["secrets"] == {"key": secret}
        assert request["publish_context"] == attached
        assert request["volume_capability"]["mount"] == {"fs_type": "xfs", "mount_flags": ["discard"]}
        assert request["volume_capability"]["access_mode"] == {"mode": "SINGLE_NODE_WRITER"}
        assert request["volume_context"]["a"] == "b"
    assert publish["staging_target_path"] == stage["staging_target_path"]
    found = namespace.history("all")[-1].object
    context = publish["volume_context"]
    assert {key.removeprefix(INFO): value for key, value in context.items() if key.startswith(f"{INFO}pod")} == {
        "pod.name": "all",
        "pod.namespace": namespace.name,
        "pod.uid": found.metadata.uid,
    }
    assert context[f"{INFO}serviceAccount.name"] == "default" and context[f"{INFO}ephemeral"] == "false"
    assert found.metadata.uid in publish["target_path"]


def test_driver_gets_tokens_of_the_pods_account(namespace: Namespace, driver: CSIDriver) -> None:
    namespace.wait_for_running("shared")
    publish = driver.calls(PUBLISH, volume=handle(namespace, "shared"))[0].request
    tokens = json.loads(publish["volume_context"][f"{INFO}serviceAccount.tokens"])
    status = review(namespace.api, tokens["storage"]["token"], "storage")
    assert status.authenticated
    assert status.user.username == f"system:serviceaccount:{namespace.name}:default"
    assert tokens["storage"]["expirationTimestamp"]


def test_driver_that_wants_nothing(namespace: Namespace, drivers: dict[str, CSIDriver]) -> None:
    """A driver without capabilities gets no attachment, no staging, no pod name and no group."""
    assert told(namespace, "plain") == "content\n0\n"
    plain = drivers[PLAIN]
    volume = handle(namespace, "plain")
    assert plain.calls(STAGE, volume=volume) == []
    publish = plain.calls(PUBLISH, volume=volume)[0].request
    assert "publish_context" not in publish and "volume_context" not in publish
    assert "staging_target_path" not in publish


def test_read_only_volume(namespace: Namespace, driver: CSIDriver) -> None:
    assert told(namespace, "read-only") == "Read-only file system\n"
    assert driver.calls(PUBLISH, volume=handle(namespace, "read-only"))[0].request["readonly"] is True


def test_volume_of_two_pods_is_staged_once(
    core: CoreV1Api, namespace: Namespace, driver: CSIDriver, local: LocalCluster
) -> None:
    namespace.wait_for_running("shared", "sharing")
    volume = handle(namespace, "shared")
    published = {call.path for call in driver.calls(PUBLISH, volume=volume)}
    assert len(published) == 2 and len({call.path for call in driver.calls(STAGE, volume=volume)}) == 1
    for name in ("shared", "sharing"):
        assert driver.calls(UNSTAGE, volume=volume) == []
        core.delete_namespaced_pod(name, namespace.name)
        namespace.wait_deleted(name)
    driver.wait_for_call_of(UNSTAGE, volume)
    assert {call.path for call in driver.calls(UNPUBLISH, volume=volume)} == published


def test_device(core: CoreV1Api, namespace: Namespace, driver: CSIDriver, local: LocalCluster) -> None:
    (found,) = namespace.wait_for_running("block")
    disk = driver.state / "volumes" / handle(namespace, "block") / "disk"
    assert len(loop_devices(disk)) == 2, (
        "expected the driver's loop device, and one by which the kubelet keeps the file open"
    )
    container_id = found.status.container_statuses[0].container_id.rpartition("/")[2]
    said = local.cri.exec(container_id, "sh", "-c", "echo to the disk | dd of=/dev/v conv=fsync 2>/dev/null")
    assert said.exit_code == 0, said
    assert disk.read_bytes()[:12] == b"to the disk\n"
    core.delete_namespaced_pod("block", namespace.name)
    namespace.wait_deleted("block")
    driver.wait_for_call_of(UNSTAGE, handle(namespace, "block"))
    wait_for("no loop device is left", lambda: not loop_devices(disk), TIMEOUT, lambda: loop_devices(disk))


def test_volume_grows_under_its_pod(core: CoreV1Api, namespace: Namespace, driver: CSIDriver) -> None:
    namespace.wait_for_running("grows")
    grow(namespace, "grows", "40Mi")
    wait_for_claim(
        namespace, "grows", "a status of its expansion", lambda claim: claim.status.allocated_resource_statuses
    )
    # The kubelet checks a pod's claims when it syncs the pod, at least every minute or two. The annotation causes a
    # sync at once.
    core.patch_namespaced_pod("grows", namespace.name, {"metadata": {"annotations": {"look": "at the claim"}}})
    claim = wait_for_claim(namespace, "grows", "grown", lambda claim: claim.status.capacity.get("storage") == "40Mi")
    (call,) = driver.calls(EXPAND, volume=handle(namespace, "grows"))
    assert call.request["capacity_range"] == {"required_bytes": str(40 * MIB)}
    assert not claim.status.conditions and not claim.status.allocated_resource_statuses
    message = "MountVolume.NodeExpandVolume succeeded for volume .*"
    namespace.wait_for_event("grows", "FileSystemResizeSuccessful", message)


def test_volume_within_a_pods_spec(core: CoreV1Api, namespace: Namespace, driver: CSIDriver) -> None:
    (found,) = namespace.wait_for_running("inline")
    (publish, *_) = [each for each in driver.calls(PUBLISH) if found.metadata.uid in each.path]
    context = publish.request["volume_context"]
    assert (context["c"], context[f"{INFO}ephemeral"], context[f"{INFO}pod.name"]) == ("d", "true", "inline")
    assert publish.volume.startswith("csi-") and driver.calls(STAGE, volume=publish.volume) == []
    core.delete_namespaced_pod("inline", namespace.name)
    namespace.wait_deleted("inline")
    assert driver.calls(UNPUBLISH, volume=publish.volume)[-1].code == "OK"
    assert not (driver.state / "volumes" / publish.volume).exists()


# --- Failures ---------------------------------------------------------------------------------------


def test_driver_that_is_not_there(namespace: Namespace) -> None:
    volume = volume_name(namespace, "nobody")
    why = f"driver name {NOBODY} not found in the list of registered CSI drivers"
    namespace.wait_for_event("nobody", "FailedMount", f'MountVolume.* failed for volume "{volume}" : .*{why}')


def test_driver_that_fails(namespace: Namespace, driver: CSIDriver) -> None:
    """An event repeats the driver's error, and the kubelet calls the driver again."""
    volume = volume_name(namespace, "fails")
    why = "rpc error: code = Internal desc = no bed of roses"
    namespace.wait_for_event("fails", "FailedMount", f'MountVolume.SetUp failed for volume "{volume}" : {why}')
    assert told(namespace, "fails") == ""
    codes = [call.code for call in driver.calls(PUBLISH, volume=handle(namespace, "fails"))]
    assert codes[:3] == ["INTERNAL", "INTERNAL", "OK"]


def test_volume_is_published_again_for_new_tokens(core: CoreV1Api, namespace: Namespace, driver: CSIDriver) -> None:
    """For a driver that wants new tokens, the kubelet publishes a volume again at the same path.

    The mount stays in place.
    """
    namespace.wait_for_running("grows")
    volume = handle(namespace, "grows")
    before = len(driver.calls(PUBLISH, volume=volume))
    core.patch_namespaced_pod("grows", namespace.name, {"metadata": {"annotations": {"look": "again"}}})

    def look() -> list[Any]:
        calls = driver.calls(PUBLISH, volume=volume)
        return calls if len(calls) > before else []

    calls = wait_for("a repeated call to publish the volume", look, TIMEOUT, driver.describe)
    assert len({call.path for call in calls}) == 1
    assert driver.calls(UNPUBLISH, volume=volume) == []


# --- Ends and restarts ------------------------------------------------------------------------------


def test_driver_dies_in_the_middle_of_publishing(core: CoreV1Api, namespace: Namespace, driver: CSIDriver) -> None:
    volume = handle(namespace, "dies")
    driver.let(PUBLISH, faults.DIE, faults.DURING, volume)
    put(namespace, "dies")
    namespace.create(with_claim(pod("dies", sleeper(volumeMounts=V))))
    driver.wait_for_death()
    message = (
        f'MountVolume.SetUp failed for volume "{volume_name(namespace, "dies")}" : rpc error: code = Unavailable .*'
    )
    namespace.wait_for_event("dies", "FailedMount", message)
    driver.start()
    namespace.wait_for_running("dies")
    assert [call.code for call in driver.calls(PUBLISH, volume=volume)][:1] == [""]
    assert len({call.path for call in driver.calls(PUBLISH, volume=volume)}) == 1
    core.delete_namespaced_pod("dies", namespace.name)
    namespace.wait_deleted("dies")


def test_kubelet_is_killed_with_a_volume_mounted(
    core: CoreV1Api, namespace: Namespace, driver: CSIDriver, local: LocalCluster
) -> None:
    put(namespace, "stays")
    namespace.create(with_claim(pod("stays", sleeper(volumeMounts=V))))
    namespace.wait_for_running("stays")
    volume = handle(namespace, "stays")
    before = driver.mounts()
    local.kubelet.kill()
    driver.mark("the kubelet was killed")
    registered = len([call for call in driver.calls("NotifyRegistrationStatus") if call.code == "OK"])
    local.kubelet.start()
    driver.wait_for_call("NotifyRegistrationStatus", count=registered + 1)
    core.delete_namespaced_pod("stays", namespace.name)
    namespace.wait_deleted("stays")
    driver.wait_for_call_of(UNSTAGE, volume)
    assert [each for each in driver.mounts() if each not in before] == []
    assert driver.violations() == [], driver.describe()


def test_nothing_is_left(
    namespace: Namespace, drivers: dict[str, CSIDriver], storage: StorageV1Api, environment: Environment
) -> None:
    """After the deletion of all pods, no mount, staged volume or attachment is left. A stopped driver is forgotten."""
    _delete_pods(namespace)
    driver = drivers[DRIVER]
    wait_for(
        "all volumes are unmounted", lambda: not any("kubernetes.io~csi" in each for each in driver.mounts()), TIMEOUT
    )
    wait_for(
        "all volumes are unstaged", lambda: not any("kubernetes.io/csi" in each for each in driver.mounts()), TIMEOUT
    )
    for each in drivers.values():
        assert each.violations(stages=each is driver) == [], each.describe()
        wait_for("no loop device is left", lambda each=each: not each.loop_devices(), TIMEOUT, each.loop_devices)  # type: ignore[misc]

    def attachments() -> list[str]:
        found = storage.list_volume_attachment().items
        return [each.metadata.name for each in found if each.spec.attacher in drivers]

    wait_for("all volumes are detached", lambda: not attachments(), TIMEOUT, attachments)
    drivers[PLAIN].stop()

    def forgotten() -> bool:
        return PLAIN not in [each.name for each in storage.read_csi_node(environment.node).spec.drivers]

    wait_for("the driver is forgotten", forgotten, TIMEOUT)
