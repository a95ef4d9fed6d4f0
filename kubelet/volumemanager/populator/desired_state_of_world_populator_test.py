"""Test how the populator derives the desired state from pods and their claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import wait_for_end_of_threads

from kubelet.volumemanager import testing
from kubelet.volumemanager.cache import ActualStateOfWorld, DesiredStateOfWorld, RemountRequiredError
from kubelet.volumemanager.populator import (
    APIServerClaims,
    DesiredStateOfWorldPopulator,
    desired_state_of_world_populator,
)
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.api.resource import Quantity, parse_quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import Action, FakeClientset
from pkg.golang.testing import out_of_threads
from pkg.volume import VolumePluginMgr
from pkg.volume import util as volumeutil
from pkg.volume.csi import testing as csitesting
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.operationexecutor import MarkVolumeOpts, VolumeMountState, VolumeToMount

VOLUME = "test.io/fake-plugin/pv"
ZERO = Quantity(0)


class World:
    def __init__(self, root: Path, standalone: bool = False) -> None:
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.plugin = testing.FakeAttachableVolumePlugin()
        self.plugins = VolumePluginMgr()
        self.plugins.init_plugins([self.plugin], FakeVolumeHost(str(root)))
        self.pods = testing.FakePods()
        self.client = FakeClientset()
        self.desired = DesiredStateOfWorld(self.plugins, volumeutil.Translator())
        self.actual = ActualStateOfWorld("node", self.plugins)
        # `pending` holds the volumes and pods with a running operation.
        self.pending: set[tuple[str, str]] = set()
        self.populated: golang.Channel[None] = golang.Channel(100)
        self.populator = DesiredStateOfWorldPopulator(
            None if standalone else APIServerClaims(self.ctx, self.client),
            self.pods,
            self.pods,
            self.desired,
            self.actual,
            self.plugins,
            lambda volume_name, pod_name: (volume_name, pod_name) in self.pending,
            on_populated=lambda: self.populated.send(None),
        )

    def pop_pod_errors(self, pod_name: str) -> list[str]:
        return [str(err) for err in self.desired.pop_pod_errors(pod_name)]

    def start(self) -> golang.Thread:
        thread = golang.go(self.populator.run, self.ctx, self.pods, name="populator-test")
        assert self.populated.recv(30)[1]
        return thread

    def loop(self) -> list[str]:
        """Run one pass. Return the names of the volumes that are desired afterwards."""
        self.populator.populator_loop()
        wait_for_end_of_threads("volume-claims-")
        return [volume.volume_name for volume in self.desired.get_volumes_to_mount()]

    def add_bound(self, claim: str = "claim", volume: str = "pv", **options: Any) -> None:
        pvc = testing.new_claim(claim, volume)
        self.client.add(pvc)
        self.client.add(testing.new_persistent_volume(volume, claim=pvc, **options))

    def add_pod(self, uid: str = "u", claim: str = "claim", devices: bool = False) -> v1.Pod:
        pod = testing.new_pod(uid, testing.new_claim_volume("v", claim), devices=devices)
        self.pods.pods[uid] = pod
        return pod

    def mount(self, uid: str = "u", state: VolumeMountState = VolumeMountState.VOLUME_MOUNTED) -> None:
        spec = testing.new_persistent_volume_spec("pv")
        self.actual.mark_volume_as_attached(VOLUME, spec, "node", "")
        self.actual.mark_volume_as_mounted(MarkVolumeOpts(uid, types.UID(uid), VOLUME, spec, volume_mount_state=state))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.cancel()


@pytest.mark.parametrize(
    ("has_added_pods", "terminating", "removed", "expected"),
    [
        (True, False, False, True),
        (True, True, False, False),
        (True, True, True, False),
        (False, False, False, True),
        (False, True, False, True),
        (False, True, True, False),
    ],
)
def test_pods_whose_containers_may_run_get_volumes(
    world: World, has_added_pods: bool, terminating: bool, removed: bool, expected: bool
) -> None:
    world.pods.ready = has_added_pods
    world.start()
    assert world.populator.has_added_pods() == has_added_pods
    world.add_bound()
    world.add_pod()
    world.pods.terminating |= {"u"} if terminating else set()
    world.pods.removed |= {"u"} if removed else set()
    assert world.loop() == ([VOLUME] if expected else [])


def test_volumes_of_a_pod_that_cannot_be_read_are_left_alone(world: World) -> None:
    world.add_bound()
    world.pods.pods["u"] = v1.PartialPod.of(world.add_pod())
    assert world.loop() == []
    assert world.desired.pod_exists_in_volume("u", VOLUME, "")
    assert world.desired.volume_exists_with_spec_name("u", "any")
    assert not world.desired.pod_exists_in_volume("other", VOLUME, "")
    world.pods.removed.add("u")
    world.loop()
    assert not world.desired.pod_exists_in_volume("u", VOLUME, "")
    assert not world.desired.volume_exists_with_spec_name("u", "any")


def test_pod_that_begins_its_next_life_while_it_is_forgotten_has_begun(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_bound()
    world.add_pod()
    world.populator.begin_pod("u")
    assert world.loop() == [VOLUME]
    world.mount()

    def removed_until_now(uid: str) -> bool:
        world.populator.begin_pod(uid)
        return True

    with monkeypatch.context() as patch:
        patch.setattr(world.pods, "should_pod_runtime_be_removed", removed_until_now)
        world.populator.find_and_remove_deleted_pods()
    assert world.populator.has_begun("u"), "the reconciler mounts nothing for a pod before that"
    assert world.loop() == [VOLUME]
    world.pods.removed.add("u")
    assert world.loop() == [] and not world.populator.has_begun("u")


def test_all_pods_are_there_when_a_round_has_ended_that_began_with_ready_sources(world: World) -> None:
    world.pods.ready = False
    world.start()
    world.populator.wake()
    world.populated.recv(30)
    assert not world.populator.has_added_pods()
    world.pods.ready = True
    world.populator.wake()
    world.populated.recv(30)
    assert world.populator.has_added_pods()


def test_asking_for_a_pod_wakes_the_populator(world: World) -> None:
    thread = world.start()
    world.add_bound()
    pod = world.add_pod()
    world.populator.reprocess_pod(pod.metadata.uid)
    while "u" not in world.desired.get_pods():
        assert world.populated.recv(30)[1]
    world.cancel()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize(("refusals", "expected"), [(2, [VOLUME]), (100, [])])
@pytest.mark.parametrize("resource", ["persistentvolumeclaims", "persistentvolumes"])
def test_asks_again_for_what_the_node_may_not_read_yet(
    world: World, monkeypatch: pytest.MonkeyPatch, resource: str, refusals: int, expected: list[str]
) -> None:
    monkeypatch.setattr(desired_state_of_world_populator, "FORBIDDEN_PERIOD", 0.0)
    left = iter(range(refusals))

    def refuse(action: Action) -> tuple[bool, object]:
        if next(left, None) is None:
            return False, None
        return True, apierrors.new_forbidden(resource, action.name, "no relationship found")

    world.client.prepend_reactor("get", resource, refuse)
    world.add_bound()
    world.add_pod()
    assert world.loop() == expected
    errors = world.pop_pod_errors("u")
    assert all("is forbidden: no relationship found" in each for each in errors) and bool(errors) != bool(expected)


def test_pods_do_not_wait_for_claims_of_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: golang.Channel[None] = golang.Channel(1)
    gate: golang.Channel[None] = golang.Channel()
    get = APIServerClaims.get_persistent_volume_claim

    def get_slowly(claims: APIServerClaims, namespace: str, name: str) -> v1.PersistentVolumeClaim:
        asked.send(None)
        gate.recv()
        return get(claims, namespace, name)

    monkeypatch.setattr(APIServerClaims, "get_persistent_volume_claim", get_slowly)
    thread = world.start()
    world.add_bound()
    world.add_pod("slow")
    world.populator.wake()
    assert asked.recv(30)[1]
    disk = v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd"))
    world.pods.pods["quick"] = testing.new_pod("quick", disk)
    world.populator.wake()
    while world.desired.get_pods() != {"quick"}:
        assert world.populated.recv(30)[1]
    gate.close()
    while world.desired.get_pods() != {"quick", "slow"}:
        assert world.populated.recv(30)[1]
    world.cancel()
    thread.join(30)


def test_pod_that_ends_while_its_claim_is_asked_for_loses_its_volumes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = APIServerClaims.get_persistent_volume_claim

    def end_meanwhile(claims: APIServerClaims, namespace: str, name: str) -> v1.PersistentVolumeClaim:
        world.pods.removed.add("u")
        del world.pods.pods["u"]
        return get(claims, namespace, name)

    monkeypatch.setattr(APIServerClaims, "get_persistent_volume_claim", end_meanwhile)
    thread = world.start()
    world.add_bound()
    world.add_pod()
    world.populator.wake()
    for _ in range(3):  # The first pass requests the claim, then the response arrives, then another pass follows.
        assert world.populated.recv(30)[1]
    assert world.desired.get_pods() == set()
    world.cancel()
    thread.join(30)


def test_volumes_that_no_container_uses_are_not_looked_at(world: World) -> None:
    pod = world.add_pod()
    pod.spec.containers[0].volume_mounts.clear()
    assert world.loop() == [] and world.client.actions() == []


def test_pod_is_processed_once_until_somebody_asks(world: World) -> None:
    world.add_bound()
    world.add_pod()
    world.loop()
    world.loop()
    assert len(world.client.actions("get", "persistentvolumeclaims")) == 1
    world.mount()
    world.plugin.remount = True
    assert world.actual.pod_exists_in_volume("u", VOLUME, ZERO, "").err is None
    world.populator.reprocess_pod("u")
    world.loop()
    assert len(world.client.actions("get", "persistentvolumeclaims")) == 2
    assert isinstance(world.actual.pod_exists_in_volume("u", VOLUME, ZERO, "").err, RemountRequiredError)


def test_who_asks_while_a_pod_is_looked_at_is_not_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    get = APIServerClaims.get_persistent_volume_claim
    asked: list[str] = []

    def ask_meanwhile(claims: APIServerClaims, namespace: str, name: str) -> v1.PersistentVolumeClaim:
        if not asked:
            world.populator.reprocess_pod("u")
        asked.append(name)
        return get(claims, namespace, name)

    monkeypatch.setattr(APIServerClaims, "get_persistent_volume_claim", ask_meanwhile)
    world.add_pod()
    assert world.loop() == []
    world.add_bound()
    assert world.loop() == world.loop() == [VOLUME]
    assert asked == ["claim", "claim"]


def test_claim_that_cannot_be_used_yet_is_tried_until_somebody_waits(world: World) -> None:
    world.add_pod()
    assert world.loop() == world.loop() == []
    assert len(world.client.actions("get", "persistentvolumeclaims")) == 2, "the pod has not got the error yet"
    world.populator.reprocess_pod("u")
    world.loop()
    world.loop()
    assert len(world.client.actions("get", "persistentvolumeclaims")) == 3, "the pod's next sync asks again"
    (error,) = world.pop_pod_errors("u")
    assert error.startswith("error processing PVC default/claim: failed to fetch PVC from API server: ")
    assert 'persistentvolumeclaims "claim" not found' in error


def test_errors_go_when_all_is_well(world: World) -> None:
    world.add_pod()
    world.loop()
    assert world.desired.get_pods_with_errors() == ["u"]
    world.add_bound()
    assert world.loop() == [VOLUME] and world.desired.get_pods_with_errors() == []


def test_errors_go_with_the_pod(world: World) -> None:
    world.add_pod()
    world.loop()
    world.pods.pods.clear()
    world.loop()
    assert world.desired.get_pods_with_errors() == []


def test_one_volume_that_fails_does_not_keep_others(world: World) -> None:
    world.add_bound()
    pod = world.add_pod()
    pod.spec.volumes.insert(0, testing.new_claim_volume("bad", "missing"))
    pod.spec.containers[0].volume_mounts.append(v1.VolumeMount(name="bad", mount_path="/bad"))
    assert world.loop() == [VOLUME]
    assert len(world.pop_pod_errors("u")) == 1


def _deleted(claim: v1.PersistentVolumeClaim, volume: v1.PersistentVolume) -> None:
    claim.metadata.deletion_timestamp = metav1.now()


def _deleted_but_protected(claim: v1.PersistentVolumeClaim, volume: v1.PersistentVolume) -> None:
    _deleted(claim, volume)
    claim.metadata.finalizers.append("kubernetes.io/pvc-protection")


def _pending(claim: v1.PersistentVolumeClaim, volume: v1.PersistentVolume) -> None:
    claim.status.phase = v1.CLAIM_PENDING


def _without_volume(claim: v1.PersistentVolumeClaim, volume: v1.PersistentVolume) -> None:
    claim.spec.volume_name = ""


def _volume_missing(claim: v1.PersistentVolumeClaim, volume: v1.PersistentVolume) -> None:
    claim.spec.volume_name = "gone"


def _volume_unbound(claim: v1.PersistentVolumeClaim, volume: v1.PersistentVolume) -> None:
    volume.spec.claim_ref = None


def _volume_of_another(claim: v1.PersistentVolumeClaim, volume: v1.PersistentVolume) -> None:
    assert volume.spec.claim_ref is not None
    volume.spec.claim_ref.uid = types.UID("another")


def _as_it_should_be(claim: v1.PersistentVolumeClaim, volume: v1.PersistentVolume) -> None: ...


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_as_it_should_be, None),
        (_deleted_but_protected, None),
        (_deleted, "PVC is being deleted"),
        (_pending, "PVC is not bound"),
        (_without_volume, "PVC has empty pvc.Spec.VolumeName"),
        (_volume_missing, "failed to fetch PV gone from API server: "),
        (
            _volume_unbound,
            "found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
        ),
        (
            _volume_of_another,
            "found PV object pv but its pv.Spec.ClaimRef.UID another does not point to claim.UID uid-of-claim",
        ),
    ],
)
def test_claim_must_be_bound_to_its_volume(
    world: World, change: Callable[[v1.PersistentVolumeClaim, v1.PersistentVolume], None], error: str | None
) -> None:
    claim = testing.new_claim("claim", "pv")
    volume = testing.new_persistent_volume("pv", claim=claim)
    change(claim, volume)
    world.client.add(claim)
    world.client.add(volume)
    world.add_pod()
    assert world.loop() == ([VOLUME] if error is None else [])
    if error is not None:
        (found,) = world.pop_pod_errors("u")
        assert found.startswith(f"error processing PVC default/claim: {error}")


def test_claim_without_an_api_server(tmp_path: Path) -> None:
    world = World(tmp_path, standalone=True)
    world.add_pod()
    assert world.loop() == []
    assert world.pop_pod_errors("u") == [
        "error processing PVC default/claim: the kubelet has no API server to read claims from"
    ]


@pytest.mark.parametrize(
    ("mode", "devices", "error"),
    [
        (v1.PERSISTENT_VOLUME_FILESYSTEM, False, None),
        (v1.PERSISTENT_VOLUME_BLOCK, True, None),
        (
            v1.PERSISTENT_VOLUME_FILESYSTEM,
            True,
            "volume v has volumeMode Filesystem, but is specified in volumeDevices",
        ),
        (v1.PERSISTENT_VOLUME_BLOCK, False, "volume v has volumeMode Block, but is specified in volumeMounts"),
    ],
)
def test_volume_is_used_as_its_mode_says(world: World, mode: str, devices: bool, error: str | None) -> None:
    world.add_bound(volume_mode=mode)
    world.add_pod(devices=devices)
    assert world.loop() == ([VOLUME] if error is None else [])
    assert world.pop_pod_errors("u") == ([] if error is None else [error])


@pytest.mark.parametrize("owner", ["u", "another"])
def test_ephemeral_claim_must_be_the_pods_own(world: World, owner: str) -> None:
    volume = v1.Volume(name="v", ephemeral=v1.EphemeralVolumeSource())
    world.pods.pods["u"] = testing.new_pod("u", volume)
    claim = testing.new_claim("pod-u-v", "pv")
    reference = metav1.OwnerReference(api_version="v1", kind="Pod", name="pod-u", uid=types.UID(owner), controller=True)
    claim.metadata.owner_references.append(reference)
    world.client.add(claim)
    world.client.add(testing.new_persistent_volume("pv", claim=claim))
    assert world.loop() == ([VOLUME] if owner == "u" else [])
    message = "PVC default/pod-u-v was not created for pod default/pod-u (pod is not owner)"
    assert world.pop_pod_errors("u") == ([] if owner == "u" else [message])


def test_volume_tells_its_group_and_whether_it_is_read_only(world: World) -> None:
    claim = testing.new_claim("claim", "pv")
    volume = testing.new_persistent_volume("pv", claim=claim)
    volume.metadata.annotations["pv.beta.kubernetes.io/gid"] = "777"
    world.client.add(claim)
    world.client.add(volume)
    pod = world.add_pod()
    assert pod.spec.volumes[0].persistent_volume_claim is not None
    pod.spec.volumes[0].persistent_volume_claim.read_only = True
    world.loop()
    (wanted,) = world.desired.get_volumes_to_mount()
    assert (wanted.volume_gid_value, wanted.volume_spec.read_only) == ("777", True)


@pytest.mark.parametrize(("read_only", "desired"), [(False, "10G"), (True, "5G")])
def test_larger_volume_is_noted_unless_it_is_read_only(world: World, read_only: bool, desired: str) -> None:
    world.add_bound()
    pod = world.add_pod()
    assert pod.spec.volumes[0].persistent_volume_claim is not None
    pod.spec.volumes[0].persistent_volume_claim.read_only = read_only
    world.loop()
    world.mount()
    world.add_bound(size="10G")
    world.populator.reprocess_pod("u")
    world.loop()
    (wanted,) = world.desired.get_volumes_to_mount()
    assert wanted.desired_persistent_volume_size == parse_quantity(desired)
    assert world.actual.get_claim_size(VOLUME) == (ZERO if read_only else parse_quantity("5G"))


@pytest.mark.parametrize("state", [VolumeMountState.VOLUME_MOUNTED, VolumeMountState.VOLUME_MOUNT_UNCERTAIN])
def test_volume_of_an_ended_pod_goes_when_it_can_be_unmounted(world: World, state: VolumeMountState) -> None:
    world.add_bound()
    world.add_pod()
    world.start()
    world.loop()
    world.pods.terminating.add("u")
    assert world.loop() == [VOLUME], "containers of the pod may be running"
    world.pods.removed.add("u")
    world.pending.add((VOLUME, "u"))
    assert world.loop() == [VOLUME], "its mount may be in progress"
    while world.populated.try_recv()[2]:
        pass
    world.mount(state=state)
    world.populator.operation_ended()
    world.populated.recv(30)
    assert world.desired.get_volumes_to_mount() == []


def test_end_of_an_operation_is_of_no_interest_to_the_populator_otherwise(world: World) -> None:
    world.start()
    world.populator.operation_ended()
    assert not world.populated.try_recv()[2]


def test_volume_of_a_pod_that_is_gone_goes_when_its_containers_have_ended(world: World) -> None:
    world.add_bound()
    world.add_pod()
    world.loop()
    world.pods.pods.clear()
    assert world.loop() == [VOLUME]
    world.pods.removed.add("u")
    assert world.loop() == []


def test_driver_that_needs_no_attachment_any_more(world: World) -> None:
    world.add_bound()
    world.add_pod()
    world.loop()
    assert world.desired.get_attachable_volumes() == {VOLUME}
    world.plugin.can_attach_volumes = False
    world.loop()
    assert world.desired.get_attachable_volumes() == set() and world.desired.get_pods() == {"u"}


def test_objects_of_the_pod_are_not_shared_with_plugins(world: World) -> None:
    source = v1.PhotonPersistentDiskVolumeSource(pd_id="inline")
    pod = testing.new_pod("u", v1.Volume(name="v", photon_persistent_disk=source))
    world.pods.pods["u"] = pod
    world.loop()
    (wanted,) = world.desired.get_volumes_to_mount()
    assert wanted.volume_spec.volume == pod.spec.volumes[0] and wanted.volume_spec.volume is not pod.spec.volumes[0]
    assert replace(wanted.volume_spec).name() == "v"


UNEXPECTED = [RecursionError("too deep"), MemoryError("no memory"), UnicodeError("bad"), golang.DeadlineExceeded()]


@pytest.mark.parametrize("err", UNEXPECTED, ids=lambda err: type(err).__name__)
def test_what_is_wrong_with_one_pod_is_told_that_pod_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    disk = v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd"))
    for uid in ("bad", "good"):
        world.pods.pods[uid] = testing.new_pod(uid, disk)
    mark, errs = world.actual.mark_remount_required, [err]

    def fail_once(pod_name: str) -> None:
        if pod_name == "bad" and errs:
            raise errs.pop()
        mark(pod_name)

    monkeypatch.setattr(world.actual, "mark_remount_required", fail_once)
    world.loop()
    assert world.pop_pod_errors("bad") == [str(err)] and "good" in world.desired.get_pods()
    assert not world.populator._pod_previously_processed("bad"), "the next pass processes the pod again"
    world.loop()
    assert world.populator._pod_previously_processed("bad") and world.pop_pod_errors("bad") == []


@pytest.mark.parametrize("err", UNEXPECTED, ids=lambda err: type(err).__name__)
def test_ended_pod_that_cannot_be_looked_at_keeps_no_other_from_going(
    world: World, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    disk = v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd"))
    for uid in ("bad", "good"):
        world.pods.pods[uid] = testing.new_pod(uid, disk)
    world.loop()
    world.pods.removed |= {"bad", "good"}
    ask, errs = world.populator._is_unneeded, [err]

    def fail_once(volume: VolumeToMount) -> bool:
        if volume.pod_name == "bad" and errs:
            raise errs.pop()
        return ask(volume)

    monkeypatch.setattr(world.populator, "_is_unneeded", fail_once)
    world.loop()
    assert world.desired.get_pods() <= {"bad"}
    world.loop()
    assert world.desired.get_pods() == set()


def test_claims_are_asked_for_once_there_is_a_thread(world: World) -> None:
    world.start()
    world.add_bound()
    world.add_pod()
    with out_of_threads("volume-claims-") as refused:
        assert world.loop() == []
    assert refused == ["volume-claims-u"]
    (told,) = world.pop_pod_errors("u")
    assert "can't start new thread" in told
    assert world.loop() == [VOLUME]


@pytest.mark.parametrize("err", UNEXPECTED, ids=lambda err: type(err).__name__)
def test_claim_whose_volume_fails_may_be_asked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    world.start()
    world.add_bound()
    world.add_pod()
    mark, errs = world.actual.mark_remount_required, [err]

    def fail_once(pod_name: str) -> None:
        if errs:
            raise errs.pop()
        mark(pod_name)

    monkeypatch.setattr(world.actual, "mark_remount_required", fail_once)
    world.loop()
    assert world.pop_pod_errors("u") == [str(err)]
    world.loop()
    assert world.populator._pod_previously_processed("u") and not world.populator._claim_threads


@pytest.fixture
def migrated(world: World, tmp_path: Path) -> Iterator[World]:
    """Return a world with the CSI plugin, whose drivers serve disks of Google and Azure."""
    with csitesting.TestPlugin(tmp_path) as made:
        world.plugins.init_plugins([made.plugin], made.host)
        yield world


def test_claimed_volume_of_a_plugin_that_is_gone_is_its_csi_drivers(migrated: World) -> None:
    world = migrated
    pvc = testing.new_claim("claim", "pv")
    volume = testing.new_persistent_volume("pv", claim=pvc)
    volume.spec.photon_persistent_disk = None
    volume.spec.gce_persistent_disk = v1.GCEPersistentDiskVolumeSource(pd_name="disk")
    world.client.add(pvc)
    world.client.add(volume)
    world.add_pod()
    handle = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"
    assert world.loop() == [f"kubernetes.io/csi/pd.csi.storage.gke.io^{handle}"]
    (wanted,) = world.desired.get_volumes_to_mount()
    assert wanted.volume_spec.migrated and not wanted.volume_spec.inline_volume_spec_for_csi_migration
    assert wanted.volume_spec.name() == "pv"


def test_inline_volume_of_a_plugin_that_is_gone_is_its_csi_drivers(migrated: World) -> None:
    world = migrated
    disk = v1.Volume(name="d", gce_persistent_disk=v1.GCEPersistentDiskVolumeSource(pd_name="disk"))
    world.pods.pods["u"] = testing.new_pod("u", disk)
    handle = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"
    assert world.loop() == [f"kubernetes.io/csi/pd.csi.storage.gke.io^{handle}"]
    (wanted,) = world.desired.get_volumes_to_mount()
    assert wanted.volume_spec.migrated and wanted.volume_spec.inline_volume_spec_for_csi_migration
    assert wanted.outer_volume_spec_names == ["d"]


def test_volume_that_cannot_be_translated_is_told_its_pod(migrated: World) -> None:
    world = migrated
    source = v1.AzureDiskVolumeSource(disk_uri="https://blob", kind="Shared")
    world.pods.pods["u"] = testing.new_pod("u", v1.Volume(name="d", azure_disk=source))
    assert world.loop() == []
    (told,) = world.pop_pod_errors("u")
    assert told == "failed to translate in-tree pv to CSI: kind(Shared) is not supported in csi migration"
