"""Test the manager of container statistics on recorded machines."""

from __future__ import annotations

import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubelet.cadvisor import cgroups, manager
from kubelet.cadvisor.cgroups.cgroups_test import APP_V1, APP_V2, BOX_V2, POD_V1, POD_V2
from kubelet.cadvisor.containers import Container
from kubelet.cadvisor.fs import FileSystems
from kubelet.cadvisor.info import v1 as info
from kubelet.cadvisor.info import v2
from kubelet.cadvisor.machine import Machine
from kubelet.cadvisor.testing import FakeContainers, unpack_tree
from pkg import golang
from pkg.apimachinery.clock.testing import FakeClock

APP, BOX = "a" * 64, "5" * 64
LABELS = {"io.kubernetes.container.name": "app", "io.kubernetes.pod.name": "web"}
KNOWN = {
    APP: Container(APP, LABELS, "docker.io/library/busybox:1", is_sandbox=False),
    BOX: Container(BOX, {"io.kubernetes.pod.name": "web"}, "registry.k8s.io/pause:3.10", is_sandbox=True),
}
ALL = v2.RequestOptions(count=-1, recursive=True)
START = datetime(2026, 11, 21, tzinfo=UTC)
WAIT = 30.0


class Node:
    """Represent a recorded machine with cgroups of version 2, whose files a test changes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock(START)
        self.containers = FakeContainers(dict(KNOWN))
        unpack_tree("v2.tree", root)
        filesystems = FileSystems(f"{root}/proc")
        self.manager = manager.Manager(
            cgroups.CgroupsV2(f"{root}/sys/fs/cgroup", f"{root}/proc"),
            Machine(str(root), filesystems),
            filesystems,
            self.containers,
            ["/kubepods.slice"],
            proc=f"{root}/proc",
            clock_=self.clock,
        )

    def cgroup(self, name: str) -> Path:
        return self.root / "sys/fs/cgroup" / name[1:]

    def use_cpu(self, microseconds: int) -> None:
        """Set the container's CPU time since its start."""
        text = f"usage_usec {microseconds}\nuser_usec {microseconds}\nsystem_usec 0\n"
        (self.cgroup(APP_V2) / "cpu.stat").write_text(text)

    def one(
        self, name: str, count: int = 1, max_age: float | None = None, *, complete: bool = False
    ) -> info.ContainerInfo:
        options = v2.RequestOptions(count=count, max_age=max_age)
        return self.manager.get_requested_containers(name, options, complete=complete)[name]

    def cpu_rate(self) -> int | None:
        """Return the reported CPU rate of the container, in billionths of a core."""
        found = self.one(APP_V2, count=2)
        last = v2.container_stats_from_v1(APP_V2, found.spec, found.stats)[-1]
        return last.cpu_inst.usage.total if last.cpu_inst is not None else None


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_all_containers(node: Node) -> None:
    found = node.manager.get_requested_containers("/", ALL)
    assert set(found) == {
        "/",
        "/kubepods.slice",
        "/kubepods.slice/kubepods-burstable.slice",
        POD_V2,
        APP_V2,
        BOX_V2,
    }
    app, box, pod = found[APP_V2], found[BOX_V2], found[POD_V2]
    assert app.reference == info.ContainerReference(APP_V2, APP, [APP, APP_V2], "containerd")
    assert (app.spec.labels, app.spec.image) == (LABELS, "docker.io/library/busybox:1")
    assert (app.spec.has_network, box.spec.has_network, pod.spec.has_network) == (False, True, False)
    expected = info.InterfaceStats("eth0", 1526, 17, 1, 2, 542, 7, 3, 4)
    assert box.stats[-1].network.interfaces == [expected], "that of the pod, not the loopback"
    assert app.stats[-1].network.interfaces == []
    assert app.stats[-1].processes.process_count == 2
    assert pod.reference == info.ContainerReference(POD_V2)
    assert app.stats[-1].timestamp == START


def test_containers_below_one(node: Node) -> None:
    found = node.manager.get_requested_containers(POD_V2, ALL)
    assert set(found) == {POD_V2, APP_V2, BOX_V2}


def test_what_is_listed(node: Node) -> None:
    """Other services and mounts are not listed; a container of the runtime is listed wherever its cgroup is."""
    other = "e" * 64
    node.containers.known[other] = Container(other, {}, "", is_sandbox=False)
    for name in ("system.slice/sshd.service", "kubepods.slice/run.mount", f"k8s.io/{other}", f"k8s.io/{'d' * 64}"):
        shutil.copytree(node.cgroup(BOX_V2), node.root / "sys/fs/cgroup" / name)
    listed = set(node.manager.get_requested_containers("/", ALL))
    assert f"/k8s.io/{other}" in listed
    assert not listed & {"/system.slice/sshd.service", "/kubepods.slice/run.mount", f"/k8s.io/{'d' * 64}"}


def test_cgroups_that_a_container_has_made_are_nobodys(node: Node) -> None:
    """Cgroups that a container creates are not listed, because their names may be those of other containers or pods."""
    other = "e" * 64
    node.containers.known[other] = Container(other, {}, "", is_sandbox=False)
    before = set(node.manager.get_requested_containers("/", ALL))
    for name in (f"{APP_V2}/cri-containerd-{other}.scope", f"{APP_V2}/init/kubepods-podother.slice"):
        shutil.copytree(node.cgroup(BOX_V2), node.cgroup(name))
    assert set(node.manager.get_requested_containers("/", ALL)) == before


def test_cgroup_that_is_not_listed_can_be_asked_for(node: Node) -> None:
    shutil.copytree(node.cgroup(BOX_V2), node.root / "sys/fs/cgroup/system.slice/containerd.service")
    assert node.one("/system.slice/containerd.service").stats[-1].memory.usage == 352256


@pytest.mark.parametrize("recursive", [False, True])
def test_unknown_container(node: Node, recursive: bool) -> None:
    with pytest.raises(LookupError, match='unknown container "/gone"'):
        node.manager.get_requested_containers("/gone", v2.RequestOptions(recursive=recursive))


def test_container_that_goes(node: Node) -> None:
    assert APP_V2 in node.manager.get_requested_containers("/", ALL)
    shutil.rmtree(node.cgroup(APP_V2))
    assert APP_V2 not in node.manager.get_requested_containers("/", ALL)
    with pytest.raises(LookupError):
        node.one(APP_V2)


def test_container_that_goes_while_it_is_read(node: Node) -> None:
    (node.cgroup(APP_V2) / "cpu.stat").unlink()
    found = node.manager.get_requested_containers("/", ALL)
    assert BOX_V2 in found
    assert APP_V2 not in found


def test_container_that_takes_long_to_read_holds_up_nobody_else(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Event(), threading.Event()
    read = cgroups.CgroupsV2.stats

    def slow(self: cgroups.CgroupsV2, name: str) -> info.ContainerStats:
        if name == APP_V2:
            reading.set()
            go_on.wait(WAIT)
        return read(self, name)

    monkeypatch.setattr(cgroups.CgroupsV2, "stats", slow)
    found: golang.Channel[info.ContainerInfo] = golang.Channel(1)
    scrape = golang.go(node.manager.get_requested_containers, "/", ALL, name="scrape")
    assert reading.wait(WAIT)
    other = golang.go(lambda: found.send(node.one("/", max_age=0)), name="other")
    answered = found.recv(WAIT)[1]
    go_on.set()
    for thread in (scrape, other):
        thread.join(WAIT)
    assert answered, "the figures of the machine were not told meanwhile"


@pytest.mark.parametrize(("name", "text"), [("memory.current", "many"), ("cpu.pressure", "some avg10=1.00")])
def test_container_whose_figures_make_no_sense(node: Node, name: str, text: str) -> None:
    (node.cgroup(APP_V2) / name).write_text(text)
    found = node.manager.get_requested_containers("/", ALL)
    assert BOX_V2 in found
    assert APP_V2 not in found
    with pytest.raises(ValueError, match=r"many|has an incomplete file: 'total'"):
        node.one(APP_V2)


def test_container_comes_back_without_its_past(node: Node) -> None:
    node.manager.get_requested_containers("/", ALL)
    kept = node.root / "kept"
    shutil.move(node.cgroup(APP_V2), kept)
    node.manager.get_requested_containers("/", ALL)
    shutil.move(kept, node.cgroup(APP_V2))
    node.clock.step(30)
    assert node.cpu_rate() is None


def test_figures_are_kept_for_a_second(node: Node) -> None:
    node.use_cpu(1000)
    assert node.one(APP_V2).stats[-1].cpu.usage.total == 1_000_000
    node.use_cpu(2000)
    node.clock.step(0.9)
    assert node.one(APP_V2).stats[-1].cpu.usage.total == 1_000_000
    assert node.one(APP_V2, max_age=5).stats[-1].cpu.usage.total == 1_000_000
    assert node.one(APP_V2, max_age=0).stats[-1].cpu.usage.total == 2_000_000, "whoever wants new ones gets them"
    node.use_cpu(3000)
    node.clock.step(1)
    assert node.one(APP_V2).stats[-1].cpu.usage.total == 3_000_000


def test_rates_are_of_ten_to_twenty_seconds(node: Node) -> None:
    """Rates refer to ten to twenty seconds, however often a caller asks.

    In each second, the container uses a millicore more than in the previous one.
    """
    used, rates = 0, []
    for second in range(45):
        used += second * 1000
        node.use_cpu(used)
        rates.append(node.cpu_rate())
        node.clock.step(1)
    assert rates[0] is None, "a rate needs two samples"
    assert rates[1] == 1_000_000
    for second in (15, 19, 25, 29, 38, 44):
        base = second - second % 10 - 10
        average = sum(range(base + 1, second + 1)) / (second - base)
        assert rates[second] == pytest.approx(average * 1e6, rel=1e-6), second


def test_rate_when_nobody_asked_for_long(node: Node) -> None:
    node.use_cpu(0)
    node.cpu_rate()
    node.clock.step(600)
    node.use_cpu(60_000_000)
    assert node.cpu_rate() == 100_000_000


@pytest.mark.parametrize("hours", [-1, 1])
def test_clock_that_is_set_freezes_no_figures(node: Node, hours: int) -> None:
    node.use_cpu(0)
    node.cpu_rate()
    node.clock.step(20)
    node.clock.shift(hours * 3600)
    node.use_cpu(2_000_000)
    assert node.cpu_rate() == 100_000_000
    assert node.one(APP_V2).stats[-1].timestamp == node.clock.now()


@pytest.mark.parametrize(("count", "samples"), [(1, 1), (2, 2), (-1, 2)])
def test_how_many_samples(node: Node, count: int, samples: int) -> None:
    node.one(APP_V2)
    node.clock.step(5)
    assert len(node.one(APP_V2, count=count).stats) == samples


def test_machine(node: Node) -> None:
    (node.root / "sys/class/net/eth0").mkdir(parents=True)
    (node.root / "sys/block/vda").mkdir(parents=True)
    (node.root / "sys/block/vda/dev").write_text("253:0\n")
    (node.root / "sys/block/vda/size").write_text("2048\n")
    (node.root / "proc/1/net").mkdir(parents=True)
    (node.root / "proc/1/net/dev").write_text((node.root / "proc/25323/net/dev").read_text())
    (node.root / "proc/self").mkdir()
    (node.root / "proc/self/mountinfo").write_text("22 1 253:0 / / rw - ext4 /dev/vda rw\n")
    found = node.one("/", complete=True)
    assert (found.spec.has_network, found.spec.has_filesystem, found.spec.has_memory) == (True, True, True)
    assert found.spec.memory.limit == 24684092 * 1024
    assert found.spec.memory.swap_limit == 2097148 * 1024
    stats = found.stats[-1]
    assert [interface.name for interface in stats.network.interfaces] == ["eth0"]
    assert [fs.device for fs in stats.filesystem] == ["/dev/vda"]
    assert stats.disk_io.io_service_bytes[0].device == "/dev/vda"


def test_machine_that_gets_more_memory(node: Node) -> None:
    """The limit follows the machine's memory.

    Otherwise no memory would seem available after memory was added and used.
    """
    node.one("/")
    (node.root / "proc/meminfo").write_text("MemTotal: 67108864 kB\nSwapTotal: 0 kB\n")
    memory = node.one("/", max_age=0.0).spec.memory
    assert (memory.limit, memory.swap_limit) == (67108864 * 1024, 0)


def test_version_1(tmp_path: Path) -> None:
    root = unpack_tree("v1.tree", tmp_path)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1024 kB\n")
    filesystems = FileSystems(f"{root}/proc")
    made = manager.Manager(
        cgroups.CgroupsV1(f"{root}/sys/fs/cgroup"),
        Machine(root, filesystems),
        filesystems,
        FakeContainers(dict(KNOWN)),
        ["/kubepods"],
        proc=f"{root}/proc",
    )
    found = made.get_requested_containers("/", ALL, complete=True)
    assert found[APP_V1].stats[-1].processes.ulimits == [info.UlimitSpec("max_open_files", 20000, 20000)]
    assert found[f"{POD_V1}/{BOX}"].stats[-1].network.interfaces[0].rx_bytes == 1526
    assert found[POD_V1].stats[-1].memory.usage > found[APP_V1].stats[-1].memory.usage
