"""Run a node and its CSI driver, kill either of them during a call, and check what must hold afterwards.

The kubelet is the real one, on the fake runtime. The driver is a separate process that really mounts volumes.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from csi_driver import faults, protocol

from framework.apiserver.cluster import Cluster
from framework.cluster_node import RealKubelet, real_node
from framework.csi import CSIDriver, grow, has_grown, put_claimed, put_growing_class
from framework.pod_history import PodHistory
from framework.pods import Manifest, pod, sleeper

DRIVER = "k.csi"
TIMEOUT = 90.0


@dataclass(frozen=True)
class Step:
    """Describe at which point of a call the call stops. With `late` it continues only after the kubelet is back."""

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


class Story:
    """Drive the node, its driver, and the volumes of each round."""

    def __init__(self, node: RealKubelet, driver: CSIDriver) -> None:
        self.node = node
        self.driver = driver
        self.cluster = node.cluster
        self.before = driver.mounts()
        self._rounds = itertools.count(1)

    def new_round(self) -> str:
        """Return a new prefix for the names of a round. Rounds never share the names of volumes."""
        return f"r{next(self._rounds)}-"

    def create(self, prefix: str, step: Step) -> str:
        """Create a pod, its claim and the claim's volume, and return the name that all three have."""
        name = f"{prefix}{step.name}"
        put_claimed(self.cluster, DRIVER, name, step.block)
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
        """Kill the kubelet and start it again; calls that wait continue before or after it is back."""
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
        """Wait for a call by the new kubelet. The response may be that an operation is already in progress."""

        def look() -> bool:
            calls = self.driver.calls(volume=volume)
            return calls[-1].marks > calls[0].marks and bool(calls[-1].code)

        self.node.wait_for_condition(f"a repeated call for {volume}", look, TIMEOUT)

    def kill_driver(self) -> None:
        """Kill the driver with all its calls, and start it again."""
        self.driver.kill()
        self.driver.mark("the driver was killed")
        self.driver.forget_faults()
        self.driver.start()

    def kill_both(self) -> None:
        """Kill both. The driver starts after the kubelet is back, and registers again."""
        self.driver.kill()
        self.driver.forget_faults()
        self.kill_kubelet("", [])
        self.driver.start()

    def grow(self, names: Sequence[str]) -> None:
        """Request larger volumes."""
        for name in names:
            grow(self.cluster, name)

    def assert_grown(self, names: Sequence[str]) -> None:
        """Wait until all claims have the larger size, and check that the driver has expanded the volumes."""
        self.node.wait_for_condition(
            "the volumes have grown", lambda: all(has_grown(self.cluster, name) for name in names), TIMEOUT
        )
        for name in names:
            size = (self.driver.state / "volumes" / name / "size").read_text()
            assert size == str(32 << 20), f"{name} has {size} bytes"

    def assert_in_use(self, names: Sequence[str]) -> None:
        """Check that each volume is staged and published once, where its pod needs it."""
        self.node.wait_for_api_running(*names, timeout=TIMEOUT)
        mounts = self.driver.mounts()
        assert len(set(mounts)) == len(mounts), "a path is mounted twice"
        places = protocol.left(self.driver.calls())
        for name in names:
            version = self.node.history.latest(name)
            assert version is not None
            published = [each for each in mounts if version.uid in each]
            assert published, f"{name} is not mounted\n{self.driver.describe()}"
            unknown = set(published) - {*places[name], *_block_mounts(mounts, name)}
            assert not unknown, f"{name} is mounted at {unknown}\n{self.driver.describe()}"
        self.assert_in_order()

    def assert_gone(self, names: Sequence[str]) -> None:
        """Check that nothing of the pods and their volumes is left on the node or in the node's status."""
        for name in names:
            self.node.wait_until_gone(name, timeout=TIMEOUT)
        self.node.wait_for_condition("all volumes are unmounted", lambda: self.driver.mounts() == self.before, TIMEOUT)

        def used() -> list[str]:
            return [*self.node.volumes("volumesInUse"), *self.node.volumes("volumesAttached")]

        self.node.wait_for_condition("no volume is in use", lambda: not used(), TIMEOUT)
        # The volume attachments are deleted only after the node's status no longer has the volumes.
        self.node.wait_for_condition(
            "all volumes are detached", lambda: not self.cluster.store.list("volumeattachments"), TIMEOUT
        )
        self.node.wait_for_condition("no pod directory is left", lambda: not self.node.pod_directories(), TIMEOUT)
        files = [str(each) for each in (self.node.root_dir / "plugins" / "kubernetes.io").rglob("*")]
        left = {
            "files": [each for each in files if any(name in each for name in names)],
            "loop devices": self.driver.loop_devices(),
            "places": protocol.left(self.driver.calls()),
        }
        assert not any(left.values()), f"{left}\n{self.driver.describe()}"
        self.assert_in_order()

    def assert_in_order(self) -> None:
        violations = self.driver.violations()
        assert violations == [], f"{violations}\n{self.driver.describe()}"

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
    """Return the kubelet's own mounts of a block device, below the directory that has a link for each pod."""
    return [each for each in mounts if f"/volumeDevices/{name}/" in each or f"/volumeDevices/publish/{name}" in each]


@contextmanager
def of(node_name: str, cluster: Cluster, history: PodHistory) -> Iterator[Story]:
    """Yield a node that is ready and has its driver. At the end, remove everything in any case."""
    cluster.store.create("csidrivers", {"metadata": {"name": DRIVER}, "spec": {"fsGroupPolicy": "None"}})
    put_growing_class(cluster, DRIVER)
    # `syncFrequency` limits the time until the kubelet notices that a claim has grown.
    config = {"maxPods": 300, "syncFrequency": "2s"}
    with tempfile.TemporaryDirectory(prefix="csi-") as name:
        folder = Path(name)
        with (
            real_node(folder, node_name, cluster, history, config) as node,
            CSIDriver(folder, DRIVER, node.root_dir, node_name) as driver,
        ):
            node.join()
            driver.wait_for_call("NotifyRegistrationStatus", timeout=TIMEOUT)
            yield Story(node, driver)
            driver.forget_faults()
