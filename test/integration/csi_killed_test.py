"""Kubelet and CSI driver are killed at every call for a volume: afterwards pods have their volumes, or nothing is left.

The kubelet is the real one, on the runtime that runs nothing; the driver is a program of its own that mounts really.
Each volume's life is stopped at a call of its own; then whoever is to be killed is, once for all volumes. The mount
table and the driver's log of calls tell whether anything was lost, left, or done out of order.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from csi_driver import faults, protocol
from framework.apiserver.cluster import Cluster
from framework.apiserver.controllers import base
from framework.cluster_node import ClusterNode
from framework.csi import CSIDriver
from framework.pods import Manifest, pod, sleeper

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which takes root")

NODE = "csi-killed"
DRIVER = "k.csi"
TIMEOUT = 90.0
STAGE, PUBLISH, UNPUBLISH, UNSTAGE, EXPAND = (
    "NodeStageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
    "NodeExpandVolume",
)
# In front of the names, since those of volumes are never used again.
ROUNDS = itertools.count(1)


@dataclass(frozen=True)
class Step:
    """A call, and where in it its volume's life is stopped. `late`: it goes on only after the kubelet is back."""

    method: str
    where: str
    block: bool
    late: bool = False

    @property
    def name(self) -> str:
        words = [self.method[4:].removesuffix("Volume"), self.where, "block" if self.block else "mount"]
        return "-".join([*words, *(["late"] if self.late else [])]).lower()


def steps(*methods: str, late: Sequence[bool] = (False, True)) -> list[Step]:
    wheres = (faults.BEFORE, faults.DURING, faults.AFTER)
    return [Step(*each) for each in itertools.product(methods, wheres, (False, True), late)]


class RealKubelet(ClusterNode):
    """Not a hollow one: it sees what is mounted."""

    program = "cmd.kubelet"


class Story:
    """The node, its driver, and the volumes of a round."""

    def __init__(self, node: ClusterNode, driver: CSIDriver) -> None:
        self.node = node
        self.driver = driver
        self.cluster = node.cluster
        self.before = driver.mounts()

    def create(self, prefix: str, step: Step) -> str:
        """A pod with a claim and a volume that is this claim's; all have the same name."""
        name, mode = f"{prefix}{step.name}", "Block" if step.block else "Filesystem"
        shape = {"volumeMode": mode, "accessModes": ["ReadWriteOnce"]}
        volume = {
            "metadata": {"name": name},
            "spec": {
                **shape,
                "capacity": {"storage": "16Mi"},
                "claimRef": {"namespace": "default", "name": name},
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": {"driver": DRIVER, "volumeHandle": name},
            },
        }
        claim = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {**shape, "resources": {"requests": {"storage": "16Mi"}}, "volumeName": name},
        }
        self.cluster.store.create("persistentvolumes", volume)
        self.cluster.store.create("persistentvolumeclaims", claim)
        self.node.create(_pod(name, step.block))
        return name

    def stop_at(self, prefix: str, step: Step) -> None:
        self.driver.let(step.method, faults.WAIT, step.where, f"{prefix}{step.name}")

    def wait_until_stopped(self, prefix: str, several: Sequence[Step]) -> None:
        for step in several:
            self.driver.wait_for_waiting(step.method, f"{prefix}{step.name}", TIMEOUT)

    def go_on(self, prefix: str, several: Sequence[Step]) -> None:
        for step in several:
            self.driver.go_on(step.method, f"{prefix}{step.name}")

    def kill_kubelet(
        self, prefix: str, several: Sequence[Step], meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        """Kill it, let calls go on before or after it is back, and start it again."""
        self.node.kill()
        self.driver.mark("the kubelet was killed")
        self.go_on(prefix, [each for each in several if not each.late])
        meanwhile()
        self.node.join()
        late = [each for each in several if each.late]
        for step in late:
            self._wait_until_asked_again(f"{prefix}{step.name}")
        self.go_on(prefix, late)

    def _wait_until_asked_again(self, volume: str) -> None:
        """The new kubelet wants something; maybe it is told that something is going on already."""

        def look() -> bool:
            calls = self.driver.calls(volume=volume)
            return calls[-1].marks > calls[0].marks and bool(calls[-1].code)

        self.node.wait_for_condition(f"calls for {volume} again", look, TIMEOUT)

    def kill_driver(self) -> None:
        """Kill it with all its calls, and start it again."""
        self.driver.kill()
        self.driver.mark("the driver was killed")
        self.driver.forget_faults()
        self.driver.start()

    # What must be.

    def assert_in_use(self, names: Sequence[str]) -> None:
        """Each volume is staged and published once, where its pod looks for it."""
        self.node.wait_for_api_running(*names, timeout=TIMEOUT)
        mounts = self.driver.mounts()
        assert len(set(mounts)) == len(mounts), "mounted twice over"
        places = protocol.left(self.driver.calls())
        for name in names:
            version = self.node.history.latest(name)
            assert version is not None
            published = [each for each in mounts if version.uid in each]
            assert len(published) >= 1, f"{name}: mounted at {published}\n{self.driver.describe()}"
            assert set(published) <= {*places[name], *_block_mounts(mounts, name)}
        self.assert_in_order()

    def assert_gone(self, names: Sequence[str]) -> None:
        """Nothing of the pods and their volumes is left on the node, and the cluster knows it."""
        for name in names:
            self.node.wait_until_gone(name, timeout=TIMEOUT)
        self.node.wait_for_condition("all unmounted", lambda: self.driver.mounts() == self.before, TIMEOUT)

        def unused() -> bool:
            status = (self.node.api_object() or {}).get("status") or {}
            return not status.get("volumesInUse") and not status.get("volumesAttached")

        self.node.wait_for_condition("nothing in use", unused, TIMEOUT)
        self.node.wait_for_condition("no pod directories", lambda: not self.node.pod_directories(), TIMEOUT)
        assert self.cluster.store.list("volumeattachments") == []
        assert self.driver.loop_devices() == []
        left = [*(self.node.root_dir / "plugins" / "kubernetes.io").rglob("*")]
        assert [each for each in left if any(name in str(each) for name in names)] == []
        assert protocol.left(self.driver.calls()) == {}
        self.assert_in_order()

    def assert_in_order(self) -> None:
        violations = self.driver.violations()
        assert violations == [], self.driver.describe()

    def delete(self, names: Sequence[str], grace: int | None = None) -> None:
        for name in names:
            self.node.delete(name, grace)


def _pod(name: str, block: bool) -> Manifest:
    if block:
        main = sleeper(volumeDevices=[{"name": "data", "devicePath": "/dev/data"}])
    else:
        main = sleeper(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    return pod(name, main, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}])


def _block_mounts(mounts: Sequence[str], name: str) -> list[str]:
    """What the kubelet itself mounts for a device: below the directory that has a link for each pod."""
    return [each for each in mounts if f"/volumeDevices/{name}/" in each or f"/volumeDevices/publish/{name}" in each]


@pytest.fixture(scope="module")
def story(new_node: Callable[..., ClusterNode], cluster: Cluster, history: object) -> Iterator[Story]:
    cluster.store.create("csidrivers", {"metadata": {"name": DRIVER}, "spec": {"fsGroupPolicy": "None"}})
    with tempfile.TemporaryDirectory(prefix="csi-") as name:
        folder = Path(name)
        config = {
            "maxPods": 300,
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(folder / "logs"),
            # How long it may take until it is seen that a claim has grown.
            "syncFrequency": "2s",
        }
        node = RealKubelet(folder, NODE, cluster, history, config)  # type: ignore[arg-type]
        node.server.start()
        try:
            with CSIDriver(folder, DRIVER, node.root_dir, NODE) as driver:
                node.join()
                driver.wait_for_call("NotifyRegistrationStatus", timeout=TIMEOUT)
                yield Story(node, driver)
                driver.forget_faults()
        finally:
            node.end()


# --- Registration -----------------------------------------------------------------------------------


def registered(story: Story) -> bool:
    """Whether the node says that it has the driver."""
    found = base.find(story.cluster.store, "csinodes", NODE)
    return found is not None and [each["name"] for each in found["spec"]["drivers"]] == [DRIVER]


def registrations(story: Story) -> list[str]:
    """The errors that the driver was told, empty for success, one for each time it was to be registered."""
    calls = story.driver.calls("NotifyRegistrationStatus")
    assert all(call.request.get("plugin_registered", False) != bool(call.request.get("error")) for call in calls)
    return [call.request.get("error", "") for call in calls]


def wait_for_registrations(story: Story, count: int) -> list[str]:
    def look() -> list[str]:
        found = registrations(story)
        return found if len(found) >= count else []

    return story.node.wait_for_condition(f"{count} registrations", look, TIMEOUT)


def test_driver_that_is_killed_registers_again(story: Story) -> None:
    before = len(registrations(story))
    story.kill_driver()
    wait_for_registrations(story, before + 1)
    assert registered(story)


def test_driver_that_ends_is_no_longer_the_nodes(story: Story) -> None:
    before = len(registrations(story))
    story.driver.stop()
    story.node.wait_for_condition("the driver is forgotten", lambda: not registered(story), TIMEOUT)
    story.driver.start()
    wait_for_registrations(story, before + 1)
    assert registered(story)


def test_kubelet_that_is_killed_registers_the_driver_again(story: Story) -> None:
    """And the node never says meanwhile that it does not have it."""
    before = len(registrations(story))
    watch = story.cluster.store.watch("csinodes")
    story.kill_kubelet("", [])
    wait_for_registrations(story, before + 1)
    watch.stop()
    seen = list(watch)
    assert seen and all(each.object["spec"]["drivers"] for each in seen)


def test_registration_that_fails_is_tried_again(story: Story) -> None:
    before = len(registrations(story))
    story.driver.stop()
    story.driver.let("NodeGetInfo", faults.FAIL, times=1, message="not just now")
    story.driver.start()
    told = wait_for_registrations(story, before + 2)[before:]
    assert "not just now" in told[0] and told[-1] == "", told
    assert registered(story)


# --- Volumes ----------------------------------------------------------------------------------------


@pytest.fixture
def prefix() -> str:
    return f"r{next(ROUNDS)}-"


COMING = steps(STAGE, PUBLISH)
GOING = steps(UNPUBLISH, UNSTAGE)


def test_kubelet_is_killed_while_volumes_come(story: Story, prefix: str) -> None:
    for step in COMING:
        story.stop_at(prefix, step)
    names = [story.create(prefix, step) for step in COMING]
    story.wait_until_stopped(prefix, COMING)
    story.kill_kubelet(prefix, COMING)
    story.assert_in_use(names)
    story.delete(names)
    story.assert_gone(names)


def test_kubelet_is_killed_while_volumes_go(story: Story, prefix: str) -> None:
    names = [story.create(prefix, step) for step in GOING]
    story.assert_in_use(names)
    for step in GOING:
        story.stop_at(prefix, step)
    story.delete(names)
    story.wait_until_stopped(prefix, GOING)
    story.kill_kubelet(prefix, GOING)
    story.assert_gone(names)


def test_pods_are_gone_when_a_kubelet_comes_back_that_was_killed_while_volumes_came(story: Story, prefix: str) -> None:
    several = steps(STAGE, PUBLISH, late=[False])
    for step in several:
        story.stop_at(prefix, step)
    names = [story.create(prefix, step) for step in several]
    story.wait_until_stopped(prefix, several)
    story.kill_kubelet(prefix, several, lambda: story.delete(names, 0))
    story.assert_gone(names)


def test_driver_is_killed(story: Story, prefix: str) -> None:
    """While volumes come, and again while they go."""
    coming, going = steps(STAGE, PUBLISH, late=[False]), steps(UNPUBLISH, UNSTAGE, late=[False])
    for step in coming:
        story.stop_at(prefix, step)
    names = [story.create(prefix, step) for step in [*coming, *going]]
    story.wait_until_stopped(prefix, coming)
    story.kill_driver()
    story.assert_in_use(names)
    for step in going:
        story.stop_at(prefix, step)
    story.delete(names)
    story.wait_until_stopped(prefix, going)
    story.kill_driver()
    story.assert_gone(names)


def test_both_are_killed(story: Story, prefix: str) -> None:
    """The driver is back after the kubelet, and registers again.

    Of a device that the driver has taken from its pod already, nothing is left that tells the kubelet to ask again.
    """
    coming, going = steps(STAGE, PUBLISH, late=[False]), steps(UNPUBLISH, UNSTAGE, late=[False])
    going.remove(Step(UNPUBLISH, faults.AFTER, True))
    for step in coming:
        story.stop_at(prefix, step)
    names = [story.create(prefix, step) for step in [*coming, *going]]
    story.wait_until_stopped(prefix, coming)
    story.driver.kill()
    story.driver.forget_faults()
    story.kill_kubelet(prefix, [])
    story.driver.start()
    story.assert_in_use(names)
    for step in going:
        story.stop_at(prefix, step)
    story.delete(names)
    story.wait_until_stopped(prefix, going)
    story.driver.kill()
    story.driver.forget_faults()
    story.kill_kubelet(prefix, [])
    story.driver.start()
    story.assert_gone(names)


@pytest.mark.parametrize("who", ["kubelet", "driver"])
def test_killed_while_volumes_grow(story: Story, prefix: str, who: str) -> None:
    several = steps(EXPAND, late=[False])
    names = [story.create(prefix, step) for step in several]
    story.assert_in_use(names)
    for step in several:
        story.stop_at(prefix, step)
    for name in names:
        patch = {"spec": {"resources": {"requests": {"storage": "32Mi"}}}}
        story.cluster.store.patch("persistentvolumeclaims", name, patch, "default")
    story.wait_until_stopped(prefix, several)
    if who == "kubelet":
        story.kill_kubelet(prefix, several)
    else:
        story.kill_driver()

    def grown() -> bool:
        claims = [base.find(story.cluster.store, "persistentvolumeclaims", name, "default") or {} for name in names]
        return all(each["status"]["capacity"] == {"storage": "32Mi"} for each in claims)

    story.node.wait_for_condition("volumes have grown", grown, TIMEOUT)
    for name in names:
        assert (story.driver.state / "volumes" / name / "size").read_text() == str(32 << 20)
    story.delete(names)
    story.assert_gone(names)
