"""Test the container manager of a Linux node, and the stub."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import wait_for_end_of_threads

from kubelet import cm, config, eviction, lifecycle
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as deviceplugin
from kubelet.cadvisor import testing as cadvisortest
from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cm import node_container_manager, topologymanager
from kubelet.cm.cgroup_v1_manager import CgroupV1Manager
from kubelet.cm.container_manager import parse_qos_reserved
from kubelet.cm.container_manager_linux import ContainerManagerImpl, Host
from kubelet.cm.dra import state
from kubelet.cm.dra.claiminfo import ClaimInfo
from kubelet.cm.resourceupdates import Update
from kubelet.cm.testing import FakeCgroupfs, FakeSystemd
from kubelet.cri.testing import FakeRuntimeService
from kubelet.status.testing import FakePodStatusProvider
from pkg import golang, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.component_helpers.node.util import sysctl

POD = v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("u")), spec=v1.PodSpec(containers=[v1.Container(name="c")]))
# ENDING is the UID of a terminating pod, whose containers still run.
ENDING = {"ending"}
MEMORY = 4 << 30
KERNEL = {
    sysctl.VM_OVERCOMMIT_MEMORY: "0",
    sysctl.VM_PANIC_ON_OOM: "0",
    sysctl.KERNEL_PANIC: "0",
    sysctl.KERNEL_PANIC_ON_OOPS: "1",
    sysctl.ROOT_MAX_KEYS: "1000000",
    sysctl.ROOT_MAX_BYTES: "25000000",
    "kernel/pid_max": "1000",
}


class World:
    """Hold a machine with two cores, whose kernel files are in a directory."""

    def __init__(self, root: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
        (root / "cgroup").mkdir()
        self.fake = FakeCgroupfs(root / "cgroup", version, monkeypatch)
        self.proc = root / "proc"
        self.root_dir = tempfile.mkdtemp(prefix="cm")  # A socket's path must be short.
        self.systemd = FakeSystemd()
        self.recorder = FakeRecorder(100)
        core = tuple(cadvisorapi.Core(id=n, threads=(n,)) for n in range(2))
        topology = (cadvisorapi.Node(id=0, memory=MEMORY, cores=core),)
        machine = cadvisorapi.MachineInfo(num_cores=2, memory_capacity=MEMORY, topology=topology)
        self.cadvisor = cadvisortest.FakeCadvisor(machine=machine)
        self.pods: list[v1.Pod] = []
        for name, text in (KERNEL | {"../loadavg": "1 1 1 1/100 9"}).items():
            self.write_proc(f"sys/{name}", text)
        self.write_proc("self/mountinfo", self.fake.mount_info())
        self.write_proc("self/cgroup", "1:cpu,memory:/me\n")
        self.ctx, self.cancel = golang.with_cancel(golang.background())

    def write_proc(self, name: str, text: str) -> None:
        path = Path(os.path.normpath(self.proc / name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def manager(self, client: FakeClientset | None = None, **settings: Any) -> ContainerManagerImpl:
        host = Host(str(self.fake.root), str(self.proc), self.systemd)
        plugins = f"{self.root_dir}/device-plugins"
        node = cm.NodeConfig(node_name="n", kubelet_root_dir=self.root_dir, device_plugin_directory=plugins, **settings)
        return ContainerManagerImpl(mount_utils.Mounter(), self.cadvisor, node, self.recorder, client, host)

    def started(self, **settings: Any) -> ContainerManagerImpl:
        manager = self.manager(**settings)
        start(manager, self.ctx, self.pods)
        wait_for_end_of_threads("node-allocatable")
        return manager

    def file(self, controller: str, cgroup: str, name: str) -> str:
        return self.fake.read(f"{controller if self.fake.version == 1 else ''}/{cgroup}/{name}".lstrip("/"))


def start(manager: cm.ContainerManager, ctx: golang.Context, pods: list[v1.Pod]) -> None:
    sources, status, runtime = config.SourcesImpl(lambda seen: True), FakePodStatusProvider(), FakeRuntimeService()
    could_run = ENDING.__contains__
    manager.start(ctx, v1.Node(), lambda: pods, could_run, lambda ctx: v1.Node(), sources, status, runtime, True)


def _world(root: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(root, version, monkeypatch)
    yield world
    world.cancel()
    shutil.rmtree(world.root_dir, ignore_errors=True)  # Servers end on their own threads.


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    yield from _world(tmp_path, 1, monkeypatch)


@pytest.fixture
def world2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    yield from _world(tmp_path, 2, monkeypatch)


def test_start_lays_out_the_cgroups(world: World) -> None:
    for controller in world.fake.root.iterdir():
        (controller / "a/b").mkdir(parents=True)
    manager = world.started(cgroup_root="/a/b")
    found = [path for path in world.fake.directories() if path.startswith("cpu/")]
    below = ("", "/burstable", "/besteffort")
    assert set(found) >= {f"cpu/a/b/kubepods{name}" for name in below}
    assert manager.get_pod_cgroup_root() == "/a/b/kubepods"
    assert manager.get_node_config().cgroup_version == 1
    world.started(cgroup_root="/a/b")


def test_managers_keep_what_pods_have_that_could_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = world.manager(FakeClientset())
    told: dict[str, Callable[[str], bool]] = {}
    for name in ("_dra_manager", "_cpu_manager", "_memory_manager", "_device_manager"):

        def note(ctx: object, active_pods: object, could_run: Any, *more: object, name: str = name) -> None:
            told[name] = could_run

        monkeypatch.setattr(getattr(manager, name), "start", note)
    start(manager, world.ctx, world.pods)
    assert len(told) == 4
    assert all(could_run("ending") and not could_run("gone") for could_run in told.values())


def test_cgroup_root_must_be_there(world: World) -> None:
    expected = r'invalid configuration: cgroup \["gone"\] has some missing paths: .*/cpu/gone'
    with pytest.raises(ValueError, match=expected):
        world.manager(cgroup_root="/gone")
    with pytest.raises(ValueError, match="cgroup-root was not specified"):
        world.manager(cgroup_root="")


AMOUNTS = {"cpu": resource.parse_quantity("500m"), "memory": resource.parse_quantity("1Gi")}


@pytest.mark.parametrize(
    ("enforced", "shares", "memory"),
    [((), "2048", MEMORY), (("pods",), "1536", 3 << 30)],
)
def test_all_pods_are_limited_to_what_is_not_reserved(
    world: World, enforced: tuple[str, ...], shares: str, memory: int
) -> None:
    world.started(system_reserved=AMOUNTS, enforce_node_allocatable=frozenset(enforced))
    assert world.file("cpu", "kubepods", "cpu.shares") == shares
    assert world.file("memory", "kubepods", "memory.limit_in_bytes") == str(memory)
    assert world.file("pids", "kubepods", "pids.max") == "1000"
    assert world.file("cpuset", "kubepods", "cpuset.cpus") == "0-1"
    assert world.recorder.drain() == ["Normal NodeAllocatableEnforced Updated Node Allocatable limit across pods"]


def test_limits_follow_a_new_configuration(world: World) -> None:
    world.started(enforce_node_allocatable=frozenset({"pods"}))
    world.started(system_reserved=AMOUNTS, enforce_node_allocatable=frozenset({"pods"}))
    assert world.file("memory", "kubepods", "memory.limit_in_bytes") == str(3 << 30)


def test_limits_are_tried_again_until_pods_have_made_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real, refusals = CgroupV1Manager.update, [RecursionError("too deep"), OSError("in use")]

    def update(self: CgroupV1Manager, name: cm.CgroupName, config: cm.ResourceConfig) -> None:
        if config.memory is not None and refusals:
            raise refusals.pop()
        real(self, name, config)

    monkeypatch.setattr(CgroupV1Manager, "update", update)
    monkeypatch.setattr(node_container_manager, "_RETRY_PERIOD", 0.0)
    world.started()
    assert world.recorder.drain() == [
        'Warning FailedNodeAllocatableEnforcement Failed to update Node Allocatable Limits ["kubepods"]: in use',
        'Warning FailedNodeAllocatableEnforcement Failed to update Node Allocatable Limits ["kubepods"]: too deep',
        "Normal NodeAllocatableEnforced Updated Node Allocatable limit across pods",
    ]


def test_reserved_cgroups_are_limited(world2: World) -> None:
    for name in ("sys", "kube"):
        world2.fake.write("cgroup.subtree_control", "+cpu +memory +pids")
        os.mkdir(world2.fake.root / name)
    world2.started(
        system_reserved=AMOUNTS,
        kube_reserved=AMOUNTS | {"pid": resource.parse_quantity("50")},
        system_reserved_cgroup_name="/sys",
        kube_reserved_cgroup_name="/kube",
        enforce_node_allocatable=frozenset({"system-reserved-compressible", "kube-reserved"}),
    )
    assert world2.file("cpu", "sys", "cpu.weight") == "20"
    assert world2.file("memory", "sys", "memory.max") == "max", "only what can be squeezed"
    assert world2.file("memory", "kube", "memory.max") == str(1 << 30)
    assert world2.file("pids", "kube", "pids.max") == "50"
    assert set(world2.recorder.drain()) >= {
        "Normal NodeAllocatableEnforced Updated limits on system reserved cgroup /sys",
        "Normal NodeAllocatableEnforced Updated limits on kube reserved cgroup /kube",
    }


def test_a_reserved_cgroup_that_is_not_there_is_told(world: World) -> None:
    with pytest.raises(ValueError, match=r'Failed to enforce System Reserved Cgroup Limits on "/gone": cgroup \[.gone'):
        world.started(
            system_reserved=AMOUNTS,
            system_reserved_cgroup_name="/gone",
            enforce_node_allocatable=frozenset({"system-reserved"}),
        )
    assert any(event.startswith("Warning FailedNodeAllocatableEnforcement") for event in world.recorder.drain())


def test_more_reserved_than_there_is_is_refused(world: World) -> None:
    with pytest.raises(
        ValueError,
        match=r'Node Allocatable configuration\. Resource "memory" has a reservation of 5Gi but capacity of 4Gi',
    ):
        world.manager(kube_reserved={"memory": resource.parse_quantity("5Gi")})


def test_pod_cgroups_follow_the_configuration(world: World) -> None:
    manager = world.started(cgroup_driver="systemd", pod_pids_limit=33, cpu_cfs_quota_period=0.001001)
    pods = manager.new_pod_container_manager()
    pods.ensure_exists(POD)
    _, literal = pods.get_pod_container_name(POD)
    assert literal == "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice"
    assert world.fake.read(f"pids{literal}/pids.max") == "33"
    guaranteed = v1.deepcopy(POD)
    amounts = {"cpu": resource.parse_quantity("1"), "memory": resource.parse_quantity("1Mi")}
    guaranteed.spec.containers[0].resources = v1.ResourceRequirements(requests=amounts, limits=amounts)
    pods.ensure_exists(guaranteed)
    _, literal = pods.get_pod_container_name(guaranteed)
    assert world.fake.read(f"cpu{literal}/cpu.cfs_period_us") == "1001"
    assert world.fake.read(f"cpu{literal}/cpu.cfs_quota_us") == "1001"


def test_without_cgroups_per_qos_nothing_is_made(world: World) -> None:
    manager = world.manager(cgroups_per_qos=False, cgroup_root="")
    before = world.fake.directories()
    start(manager, world.ctx, [])
    manager.update_qos_cgroups()
    assert world.fake.directories() == before
    assert isinstance(manager.new_pod_container_manager(), cm.PodContainerManagerNoop)


def test_reservations_are_added_up(world: World) -> None:
    manager = world.manager(
        kube_reserved={"cpu": resource.parse_quantity("100m"), "pid": resource.parse_quantity("10")},
        system_reserved={"cpu": resource.parse_quantity("200m"), "memory": resource.parse_quantity("1Gi")},
    )
    found = manager.get_node_allocatable_reservation()
    assert {name: str(quantity) for name, quantity in found.items()} == {"cpu": "300m", "memory": "1Gi"}
    absolute = manager.get_node_allocatable_absolute()
    assert (str(absolute["cpu"]), absolute["memory"].value()) == ("1700m", 3 << 30)


def test_disk_that_does_not_answer_has_no_capacity(world: World) -> None:
    nodefs = eviction.parse_threshold_config([], {"nodefs.available": "10%"}, {}, {}, {})
    manager = world.manager(hard_eviction_thresholds=nodefs)
    world.cadvisor.fs_err = OSError("gone")
    assert manager.get_capacity(True) == manager.get_capacity(False)
    assert manager.get_node_allocatable_reservation() == {}


# ---- Unsuitable machines ----


def test_controller_without_a_mount_is_refused(world: World) -> None:
    """A controller whose directory exists without a mount counts as missing."""
    lines = world.fake.mount_info().splitlines(keepends=True)
    world.write_proc("self/mountinfo", "".join(line for line in lines if not line.endswith((",cpuset\n", ",memory\n"))))
    with pytest.raises(ValueError, match=r"Following Cgroup subsystem not mounted: \[cpuset memory\]"):
        world.manager()
    assert "not mounted" in str(world.manager(cgroups_per_qos=False).status().soft_requirements)


@pytest.mark.parametrize("version", [1, 2])
def test_read_only_hierarchies_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    for world in _world(tmp_path, version, monkeypatch):
        world.write_proc("self/mountinfo", world.fake.mount_info("ro"))
        with pytest.raises(ValueError, match=r"cgroup hierarchies are mounted read-only: \[.*cgroup"):
            world.manager()
        world.manager(cgroups_per_qos=False)


def test_v2_without_memory_is_refused(world2: World) -> None:
    world2.fake.write("cgroup.controllers", "cpu pids")
    with pytest.raises(ValueError, match=r"cgroup\.controllers: \[memory\]; they may be disabled on the kernel's"):
        world2.manager()


def test_node_without_pids_comes_up(world: World) -> None:
    lines = world.fake.mount_info().splitlines(keepends=True)
    world.write_proc("self/mountinfo", "".join(line for line in lines if not line.endswith(",pids\n")))
    manager = world.started(pod_pids_limit=10)
    pods = manager.new_pod_container_manager()
    pods.ensure_exists(POD)
    assert pods.exists(POD)
    assert not (world.fake.root / "pids/kubepods").exists()


def test_kernel_without_quota_is_a_soft_fault(world: World) -> None:
    (world.fake.root / "cpu/cpu.cfs_quota_us").unlink()
    assert str(world.manager().status().soft_requirements) == "CPU hardcapping unsupported"


def test_manager_that_does_not_start_is_named(world: World) -> None:
    state = '{"policyName":"static","defaultCpuSet":"0-1","checksum":1636926438}'
    Path(world.root_dir, "cpu_manager_state").write_text(state)
    with pytest.raises(ValueError, match=r'^start cpu manager error: .* configured policy "none" differs'):
        world.started()


def test_hybrid_node_counts_as_version_1(world: World) -> None:
    lines = world.fake.mount_info() + f"99 31 0:99 / {world.fake.root}/unified rw - cgroup2 cgroup2 rw\n"
    world.write_proc("self/mountinfo", lines)
    assert world.manager().get_node_config().cgroup_version == 1
    assert world.manager().status().soft_requirements is None


def test_kernel_is_set_as_a_node_needs_it(world: World) -> None:
    world.manager()
    assert (world.proc / "sys" / sysctl.VM_OVERCOMMIT_MEMORY).read_text() == "1"
    assert (world.proc / "sys" / sysctl.KERNEL_PANIC).read_text() == "10"
    world.manager(protect_kernel_defaults=True)


def test_kernel_defaults_are_protected(world: World) -> None:
    (world.proc / "sys" / sysctl.ROOT_MAX_KEYS).unlink()
    with pytest.raises(ValueError) as caught:
        world.manager(protect_kernel_defaults=True)
    message = str(caught.value)
    assert "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0" in message
    assert "invalid kernel flag: kernel/panic, expected value: 10" in message
    assert "kernel/keys/root_maxkeys cannot be read" in message
    assert (world.proc / "sys" / sysctl.VM_OVERCOMMIT_MEMORY).read_text() == "0"


def test_kernel_settings_that_cannot_be_changed_are_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.proc / "sys" / sysctl.ROOT_MAX_KEYS).unlink()
    monkeypatch.setattr(sysctl, "set_sysctl", refuse)
    world.manager()
    assert (world.proc / "sys" / sysctl.VM_OVERCOMMIT_MEMORY).read_text() == "0"


def test_fault_that_lasts_is_told_once(world: World, log: io.StringIO) -> None:
    manager = world.manager()
    for _ in range(2):
        manager._watch_own_cgroup()  # The imitated machine has no process 1.
    assert log.getvalue().count("Failed to ensure process in container with oom score") == 1


def test_systemd_driver_needs_systemd(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubelet.cm.systemd.is_running_systemd", lambda: False)
    host = Host(str(world.fake.root), str(world.proc))
    node = cm.NodeConfig(
        cgroup_driver="systemd", kubelet_root_dir=world.root_dir, device_plugin_directory=world.root_dir
    )
    with pytest.raises(ValueError, match="systemd not running on this host, cannot use systemd cgroups manager"):
        ContainerManagerImpl(mount_utils.Mounter(), world.cadvisor, node, world.recorder, None, host)


def test_memory_backed_volumes_on_a_node_with_swap_are_told_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubelet.util.swap.is_tmpfs_noswap_option_supported", lambda mounter, path: False)
    world.manager()
    assert world.recorder.drain() == []
    world.write_proc("swaps", "Filename Type\n/swapfile file\n")
    world.manager()
    assert [event.split()[1] for event in world.recorder.drain()] == ["PossibleMemoryBackedVolumesOnDisk"]


# ---- The managers ----


def test_resources_are_the_callers_own(world: World) -> None:
    for manager in (world.manager(), cm.ContainerManagerStub()):
        ctx, container = golang.background(), v1.Container()
        first = manager.get_resources(ctx, POD, container)
        assert first is not manager.get_resources(ctx, POD, container)


def test_news_of_managers_come_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = world.manager()
    news: golang.Channel[Update] = golang.Channel(1)
    monkeypatch.setattr(manager._device_manager, "updates", lambda: news)
    start(manager, world.ctx, [])
    news.send(Update(("a", "b")))
    assert manager.updates().recv(timeout=30) == (Update(("a", "b")), True)


def test_news_that_nobody_takes_end_with_the_kubelet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = world.manager()
    channel: golang.Channel[Update] = golang.Channel(0)
    monkeypatch.setattr(manager._device_manager, "updates", lambda: channel)
    start(manager, world.ctx, world.pods)
    # The sync loop's channel holds ten updates, so the last one has to wait for the loop.
    for number in range(11):
        channel.send(Update((f"u-{number}",)))
    world.cancel()


def test_an_attempt_that_fails_leaves_no_threads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = world.manager(cgroup_root="/", cgroups_per_qos=True)
    attempt, cancel = golang.with_cancel(world.ctx)
    with golang.ThreadGroup() as group, monkeypatch.context() as patch:
        patch.setattr(manager._device_manager, "start", refuse)
        with pytest.raises(OSError, match="refused"):
            start(manager, attempt, world.pods)
        cancel()
    assert group.join(30) == []
    with golang.ThreadGroup() as group:
        start(manager, world.ctx, world.pods)
    names = [thread.name for thread in group.alive()]
    assert len(names) == len(set(names))


def refuse(*args: object) -> None:
    raise OSError("refused")


def guaranteed(uid: str) -> v1.Pod:
    limits = {name: resource.parse_quantity("1") for name in (v1.RESOURCE_CPU, v1.RESOURCE_MEMORY)}
    resources = v1.ResourceRequirements(limits=limits, requests=limits)
    spec = v1.PodSpec(containers=[v1.Container(name="c", resources=resources)])
    status = v1.PodStatus(qos_class=v1.POD_QOS_GUARANTEED)
    return v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID(uid)), spec=spec, status=status)


def test_pod_waits_for_what_one_that_is_ending_still_has(world: World) -> None:
    manager = world.started(cpu_manager_policy="static", kube_reserved={v1.RESOURCE_CPU: resource.parse_quantity("1")})
    handler = manager.get_allocate_resources_pod_admit_handler()

    def admit(pod: v1.Pod) -> lifecycle.PodAdmitResult:
        world.pods[:] = [pod]
        return handler.admit(lifecycle.PodAdmitAttributes(pod))

    assert admit(guaranteed("ending")).admit
    result = admit(guaranteed("new"))
    assert (result.admit, result.wait) == (False, True)
    assert result.message.startswith("waits for resources of terminating pods: Allocate failed due to")
    # An active pod keeps its resources, so waiting for them makes no sense.
    world.pods.append(guaranteed("ending"))
    result = handler.admit(lifecycle.PodAdmitAttributes(guaranteed("new"), world.pods))
    assert (result.admit, result.wait) == (False, False)


def test_nodes_that_a_pod_got_are_known_as_long_as_it_is_active(world: World) -> None:
    reserved = {v1.RESOURCE_CPU: resource.parse_quantity("1")}
    manager = world.started(cpu_manager_policy="static", topology_manager_policy="restricted", kube_reserved=reserved)
    handler, pod, other = manager.get_allocate_resources_pod_admit_handler(), guaranteed("u"), guaranteed("other")
    world.pods[:] = [pod]
    assert handler.admit(lifecycle.PodAdmitAttributes(pod)).admit
    # The admission of the other pod must not drop the nodes of this pod.
    world.pods.append(other)
    handler.admit(lifecycle.PodAdmitAttributes(other))
    assert manager._topology_manager.get_affinity("u", "c").preferred
    world.pods.remove(pod)
    handler.admit(lifecycle.PodAdmitAttributes(other))
    assert manager._topology_manager.get_affinity("u", "c") == topologymanager.TopologyHint()


def test_devices_are_shown_by_numa_node(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    near = deviceplugin.TopologyInfo(nodes=[deviceplugin.NUMANode(ID=0), deviceplugin.NUMANode(ID=1)])
    given = {"a.com/dev": {"x": deviceplugin.Device(ID="x"), "y": deviceplugin.Device(ID="y", topology=near)}}
    manager = world.manager()
    monkeypatch.setattr(manager._device_manager, "get_devices", lambda pod_uid, container_name: given)
    shown = manager.get_devices("u", "c")
    found = [(d.resource_name, list(d.device_ids), [n.ID for n in d.topology.nodes]) for d in shown]
    assert found == [("a.com/dev", ["x"], []), ("a.com/dev", ["y"], [0]), ("a.com/dev", ["y"], [1])]


def test_devices_of_a_claim_show_their_own_cdi_names(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = world.manager(FakeClientset())
    devices = [state.Device("pool", name, cdi_device_ids=(f"a.com/dev={name}",)) for name in ("x", "y")]
    claim = ClaimInfo(claim_name="claim", driver_state={"a.com": state.DriverState(devices)})
    monkeypatch.setattr(manager._dra_manager, "get_container_claim_infos", lambda pod, container: [claim])
    (shown,) = manager.get_dynamic_resources(POD, POD.spec.containers[0])
    found = [(device.device_name, [cdi.name for cdi in device.cdi_devices]) for device in shown.claim_resources]
    assert found == [("x", ["a.com/dev=x"]), ("y", ["a.com/dev=y"])]


def test_claims_are_refused_where_there_is_no_api_server(world: World) -> None:
    pod = v1.Pod(spec=v1.PodSpec(resource_claims=[v1.PodResourceClaim(name="c")]))
    for manager in (world.manager(), cm.ContainerManagerStub()):
        with pytest.raises(ValueError, match="resource claims are not supported by this node"):
            manager.prepare_dynamic_resources(golang.background(), pod)
        manager.prepare_dynamic_resources(golang.background(), POD)
        manager.unprepare_dynamic_resources(golang.background(), pod)
        assert not manager.pod_might_need_to_unprepare_resources(types.UID("u"))


def test_stub(world: World) -> None:
    stub: cm.ContainerManager = cm.ContainerManagerStub()
    start(stub, world.ctx, [])
    assert not stub.get_node_config().cgroups_per_qos
    assert stub.new_pod_container_manager().get_pod_container_name(POD) == ((), "")
    assert stub.get_node_allocatable_reservation() == {}
    assert stub.updates().try_recv()[2] is False


def test_storage_of_a_hollow_node() -> None:
    stub = cm.ContainerManagerStub()
    assert stub.get_capacity(True)[v1.RESOURCE_EPHEMERAL_STORAGE].value() > 0
    assert stub.get_capacity(False) == {}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {}),
        ({"memory": "0%"}, {"memory": 0}),
        ({"memory": "100%"}, {"memory": 100}),
        ({"memory": "50"}, "percentage expected, got '50'"),
        ({"memory": "a%"}, "invalid number in percentage 'a%'"),
        ({"memory": "101%"}, "percentage must be between 0 and 100"),
        ({"cpu": "10%"}, 'cannot reserve "cpu" resource'),
    ],
)
def test_parse_qos_reserved(values: dict[str, str], expected: dict[str, int] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            parse_qos_reserved(values)
    else:
        assert parse_qos_reserved(values) == expected
