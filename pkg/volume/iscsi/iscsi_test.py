"""Test iscsi volumes with a fake iscsiadm."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from framework import faulty_call
from framework.client_calls import Call
from framework.faulty_call import FaultyCall, Kind

from pkg import mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import raising
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.util import removeall
from pkg.util.exec import Executor
from pkg.util.testing import FakeExec, exit_status
from pkg.volume import DeviceMounterArgs, MounterArgs, Spec
from pkg.volume import util as volumeutil
from pkg.volume.iscsi import iscsi, iscsi_disk, iscsi_util
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.types import UncertainProgressError

IQN = "iqn.2014-12.server:storage.target01"
POD = v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("poduid"), namespace="ns"))


class Target:
    """Simulate the node's iscsiadm and the kernel. A command that contains a word of `fails` returns its code."""

    def __init__(self) -> None:
        self.exec = FakeExec(self._answer)
        self.hosts: dict[str, int] = {}
        self.fails: dict[str, int] = {}
        self.file_system = ""
        self.ifaces = {"default"}
        self.show = "# BEGIN RECORD\niface.iscsi_ifacename = default\niface.transport_name = tcp\niface.mtu = <empty>\n"

    def _answer(self, command: list[str]) -> bytes:
        for word, code in self.fails.items():
            if word in command:
                raise exit_status(code, f"iscsiadm: no {word}")
        if "-I" in command:
            self._answer_about(command[command.index("-I") + 1], command)
        if "--login" in command:
            self.hosts[command[command.index("-p") + 1]] = len(self.hosts)
        if "show" in command:
            return self.show.encode()
        if command[0] == "blkid":
            if not self.file_system:
                raise exit_status(2)
            return f"TYPE={self.file_system}\n".encode()
        return b""

    def _answer_about(self, iface: str, command: list[str]) -> None:
        if command[1:3] == ["-m", "iface"] and command[-1] == "new":
            self.ifaces.add(iface)
        if iface not in self.ifaces:
            raise exit_status(3, f"iscsiadm: Could not read iface {iface}")
        if command[1:3] == ["-m", "iface"] and command[-1] == "delete":
            self.ifaces.remove(iface)

    def words(self, command: str) -> list[str]:
        """List the arguments of the calls of a command, in order."""
        return [" ".join(c[1:]) for c in self.exec.commands if c[0] == command]

    def find_multipath_device_for_device(self, disk: str) -> str:
        return "/dev/dm-1" if len(self.hosts) > 1 else ""

    def find_slave_devices_on_multipath(self, disk: str) -> list[str]:
        return []

    def get_iscsi_portal_host_map_for_target(self, target_iqn: str) -> dict[str, int]:
        return dict(self.hosts)

    def find_devices_for_iscsi_lun(self, target_iqn: str, lun: int) -> list[str]:
        return []


@pytest.fixture
def target() -> Target:
    return Target()


@pytest.fixture
def host(tmp_path: Path) -> FakeVolumeHost:
    return FakeVolumeHost(str(tmp_path))


@pytest.fixture
def plugin(target: Target, host: FakeVolumeHost, monkeypatch: pytest.MonkeyPatch) -> iscsi.ISCSIPlugin:
    plugin = iscsi.ISCSIPlugin(target.exec, target)
    plugin.init(host)
    monkeypatch.setattr(iscsi_util, "scan_one_lun", lambda host, lun: None)
    monkeypatch.setattr(iscsi_util, "wait_for_path_to_exist", lambda pattern, retries, transport: pattern)
    return plugin


def persistent(block: bool = False, **more: Any) -> Spec:
    fields: dict[str, Any] = {"target_portal": "127.0.0.1", "iqn": IQN, "iscsi_interface": "default", "lun": 3} | more
    mode = v1.PERSISTENT_VOLUME_BLOCK if block else v1.PERSISTENT_VOLUME_FILESYSTEM
    spec = v1.PersistentVolumeSpec(iscsi=v1.ISCSIPersistentVolumeSource(**fields), volume_mode=mode)
    return Spec(persistent_volume=v1.PersistentVolume(metadata=metav1.ObjectMeta(name="pvA"), spec=spec))


def in_pod(name: str = "vol1", **more: Any) -> Spec:
    fields: dict[str, Any] = {
        "target_portal": "127.0.0.1:3261",
        "iqn": IQN,
        "iscsi_interface": "default",
        "lun": 0,
    } | more
    return Spec(v1.Volume(name=name, iscsi=v1.ISCSIVolumeSource(**fields)))


def global_path(host: FakeVolumeHost, name: str = f"iface-default/127.0.0.1:3260-{IQN}-lun-3") -> str:
    return f"{host.root}/plugins/kubernetes.io/iscsi/{name}"


def test_which_volumes_are_its_own(plugin: iscsi.ISCSIPlugin) -> None:
    assert plugin.can_support(persistent()) and plugin.can_support(in_pod())
    other = Spec(v1.Volume(name="e", empty_dir=v1.EmptyDirVolumeSource()))
    assert not plugin.can_support(other) and not plugin.can_support(Spec())
    assert plugin.get_volume_name(in_pod()) == f"127.0.0.1:3261:{IQN}:0"
    with pytest.raises(ValueError, match="does not reference an ISCSI"):
        plugin.get_volume_name(other)


def test_disk_goes_all_the_way_to_the_pod_and_back(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    spec = persistent(fs_type="xfs")
    attacher = plugin.new_attacher()
    device = attacher.wait_for_attach(spec, "", POD, 60.0)
    assert device == f"/dev/disk/by-path/ip-127.0.0.1:3260-iscsi-{IQN}-lun-3"
    path = attacher.get_device_mount_path(spec)
    assert path == global_path(host) and "Iqn" in json.loads(Path(path, "iscsi.json").read_text())
    attacher.mount_device(spec, device, path, DeviceMounterArgs())
    mounter = plugin.new_mounter(spec, POD)
    mounter.set_up(MounterArgs())
    mounter.set_up(MounterArgs())
    pod_path = f"{host.root}/pods/poduid/volumes/kubernetes.io~iscsi/pvA"
    assert host.mounter.mounts == [
        (device, path, "xfs", ["defaults"]),
        (path, pod_path, "", ["bind"]),
    ]
    rebuilt = plugin.construct_volume_spec("pvA", pod_path).spec
    assert plugin.get_volume_name(rebuilt) == f"127.0.0.1:3260:{IQN}:3"
    plugin.new_unmounter("pvA", types.UID("poduid")).tear_down()
    target.exec.commands.clear()
    plugin.new_detacher().unmount_device(path)
    assert host.mounter.list() == [] and not os.path.exists(path) and not os.path.exists(pod_path)
    assert target.words("iscsiadm") == [
        f"-m node -p 127.0.0.1:3260 -T {IQN} --logout -I default",
        f"-m node -p 127.0.0.1:3260 -T {IQN} -o delete -I default",
    ]


def test_logs_in_once_and_then_uses_the_session(plugin: iscsi.ISCSIPlugin, target: Target) -> None:
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    calls = target.words("iscsiadm")
    discovery = "-m discoverydb -t sendtargets -p 127.0.0.1:3260 -I default"
    node = f"-m node -p 127.0.0.1:3260 -T {IQN} -I default"
    assert calls == [
        "-m iface -I default -o show",
        f"{discovery} -o new",
        f"{discovery} --discover",
        f"{node} -o update -n node.session.scan -v manual",
        f"{node} --login",
        f"-m node -p 127.0.0.1:3260 -T {IQN} -o update -n node.startup -v manual",
    ]
    target.exec.commands.clear()
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    assert target.words("iscsiadm") == ["-m iface -I default -o show"]


def test_several_portals_give_a_multipath_device(plugin: iscsi.ISCSIPlugin, target: Target) -> None:
    spec = persistent(portals=["127.0.0.2", "[fd00::1]:3260"])
    assert plugin.new_attacher().wait_for_attach(spec, "", POD, 60.0) == "/dev/dm-1"
    assert sorted(target.hosts) == ["127.0.0.1:3260", "127.0.0.2:3260", "[fd00::1]:3260"]


def test_passwords_reach_iscsiadm_and_nothing_else(
    tmp_path: Path, target: Target, plugin: iscsi.ISCSIPlugin, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = v1.Secret(
        metadata=metav1.ObjectMeta(namespace="ns", name="chap"),
        data={"node.session.auth.password": b"sesame", "discovery.sendtargets.auth.password": b"sesame"},
    )
    plugin.host = FakeVolumeHost(str(tmp_path), FakeClientset(secret))
    spec = persistent(
        chap_auth_discovery=True, chap_auth_session=True, secret_ref=v1.SecretReference(name="chap", namespace="ns")
    )
    plugin.new_attacher().wait_for_attach(spec, "", POD, 60.0)
    calls = target.words("iscsiadm")
    assert sum("sesame" in call for call in calls) == 2 and sum(call.endswith("CHAP") for call in calls) == 2
    target.fails["node.session.auth.password"] = 7
    target.hosts.clear()
    with pytest.raises(UncertainProgressError) as caught:
        plugin.new_attacher().wait_for_attach(spec, "", POD, 60.0)
    assert "sesame" not in str(caught.value) + "".join(capfd.readouterr())
    assert "sesame" not in Path(global_path(plugin.host), "iscsi.json").read_text()


def test_missing_secret_is_named(tmp_path: Path, plugin: iscsi.ISCSIPlugin) -> None:
    plugin.host = FakeVolumeHost(str(tmp_path), FakeClientset())
    spec = in_pod(chap_auth_session=True, secret_ref=v1.LocalObjectReference(name="chap"))
    with pytest.raises(ValueError, match="couldn't get secret ns/chap"):
        plugin.new_mounter(spec, POD)


@pytest.mark.parametrize(
    ("word", "message", "undone"),
    [
        ("--discover", "failed to sendtargets to portal 127.0.0.1:3260 output: iscsiadm: no --discover", "-o delete"),
        ("--login", "iscsi: failed to attach disk: Error: iscsiadm: no --login", "-o delete"),
    ],
)
def test_target_that_refuses_is_told(
    plugin: iscsi.ISCSIPlugin, target: Target, word: str, message: str, undone: str
) -> None:
    target.fails[word] = 8
    with pytest.raises(UncertainProgressError, match=message):
        plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    assert sum(undone in call for call in target.words("iscsiadm")) == 1


@pytest.mark.parametrize(
    ("initiator_name", "iface"), [("", "of-the-node"), ("iqn.own", "127.0.0.1:3260:pvA")], ids=["node's", "own"]
)
@pytest.mark.parametrize("refused", ["--discover", "--login", "iface.initiatorname", "new"])
def test_disk_of_a_target_that_refuses_is_detached_in_the_end(
    host: FakeVolumeHost,
    plugin: iscsi.ISCSIPlugin,
    target: Target,
    initiator_name: str,
    iface: str,
    refused: str,
) -> None:
    """The disk's own settings stay, and so do those of others."""
    target.ifaces.add("of-the-node")
    spec = persistent(iscsi_interface="of-the-node", initiator_name=initiator_name)
    target.fails = {refused: 8, "--login": 8}
    with pytest.raises(UncertainProgressError):
        plugin.new_attacher().wait_for_attach(spec, "", POD, 60.0)
    target.fails = {}
    path = global_path(host, f"iface-{iface}/127.0.0.1:3260-{IQN}-lun-3")
    plugin.new_detacher().unmount_device(path)
    assert target.ifaces == {"default", "of-the-node"} and not os.path.exists(path)


def test_disk_whose_settings_are_gone_already_is_detached(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    plugin.new_attacher().wait_for_attach(persistent(initiator_name="iqn.own"), "", POD, 60.0)
    target.ifaces.remove("127.0.0.1:3260:pvA")
    path = global_path(host, f"iface-127.0.0.1:3260:pvA/127.0.0.1:3260-{IQN}-lun-3")
    plugin.new_detacher().unmount_device(path)
    assert target.words("iscsiadm")[-2] == f"-m node -p 127.0.0.1:3260 -T {IQN} --logout"
    assert not os.path.exists(path)


def test_node_without_the_tools_says_so(
    plugin: iscsi.ISCSIPlugin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plugin.exec = Executor()
    with pytest.raises(OSError, match="cannot attach iscsi volumes: iscsiadm is not installed"):
        plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)


def test_disk_whose_settings_cannot_be_written_is_not_attached(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    not_a_directory = Path(global_path(host, "iface-127.0.0.1:3260:pvA"))
    not_a_directory.parent.mkdir(parents=True)
    not_a_directory.touch()
    with pytest.raises(NotADirectoryError):
        plugin.new_attacher().wait_for_attach(persistent(initiator_name="iqn.own"), "", POD, 60.0)
    assert target.words("iscsiadm") == ["-m iface -I default -o show"]


def test_disk_that_does_not_appear_is_detached_in_the_end(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is detached in the end, because the volume manager unmounts a device whose state is uncertain."""
    monkeypatch.setattr(iscsi_util, "wait_for_path_to_exist", lambda pattern, retries, transport: "")
    with pytest.raises(UncertainProgressError, match="Timed out waiting for device"):
        plugin.new_attacher().wait_for_attach(persistent(portals=["127.0.0.2"]), "", POD, 60.0)
    plugin.new_detacher().unmount_device(global_path(host))
    assert sum("--logout" in call for call in target.words("iscsiadm")) == 2 and not os.path.exists(global_path(host))


def test_other_initiator_gets_settings_of_its_own(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    spec = persistent(initiator_name="iqn.own")
    plugin.new_attacher().wait_for_attach(spec, "", POD, 60.0)
    calls = target.words("iscsiadm")
    assert "-m iface -I 127.0.0.1:3260:pvA -o new" in calls
    assert "-m iface -I 127.0.0.1:3260:pvA -o update -n iface.initiatorname -v iqn.own" in calls
    path = plugin.new_attacher().get_device_mount_path(spec)
    assert path == global_path(host, f"iface-127.0.0.1:3260:pvA/127.0.0.1:3260-{IQN}-lun-3")
    plugin.new_detacher().unmount_device(path)
    assert target.words("iscsiadm")[-1] == "-m iface -I 127.0.0.1:3260:pvA -o delete"


def test_settings_of_a_pods_volume_are_not_those_of_a_persistent_volume(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    plugin.new_attacher().wait_for_attach(persistent(initiator_name="iqn.own"), "", POD, 60.0)
    target.exec.commands.clear()
    attacher = plugin.new_attacher()
    names = set()
    for iqn in (f"{IQN}.one", f"{IQN}.other"):
        spec = in_pod("pvA", target_portal="127.0.0.1", iqn=iqn, initiator_name="iqn.pod")
        attacher.wait_for_attach(spec, "", POD, 60.0)
        assert attacher.get_device_mount_path(spec) == attacher.get_device_mount_path(
            in_pod("other", target_portal="127.0.0.1", iqn=iqn, initiator_name="iqn.pod")
        ), "the node mounts the disk once for all pods"
        # After a restart the kubelet uses the file in the disk's directory.
        plugin.new_detacher().unmount_device(attacher.get_device_mount_path(spec))
        names |= {call.split()[3] for call in target.words("iscsiadm") if call.startswith("-m iface")} - {"default"}
        last = target.words("iscsiadm")[-1]
        assert last.startswith("-m iface -I 127.0.0.1:3260:@") and last.endswith(" -o delete")
    assert len(names) == 2 and "127.0.0.1:3260:pvA" not in names


def test_disk_that_go_has_mounted_for_a_pod_is_mounted_nowhere_else(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    """A disk that the Go kubelet has mounted for a pod is not mounted in a second place.

    Otherwise the two mounts of the same disk would keep each other from being unmounted.
    """
    disk = f"127.0.0.1:3261-{IQN}-lun-0"
    path = global_path(host, f"iface-127.0.0.1:3261:vol1/{disk}")
    os.makedirs(path)
    spec = in_pod(initiator_name="iqn.pod")
    host.mounter.mount(f"/dev/disk/by-path/ip-127.0.0.1:3261-iscsi-{IQN}-lun-0", path, "ext4", [])
    attacher = plugin.new_attacher()
    device = attacher.wait_for_attach(spec, "", POD, 60.0)
    found = attacher.get_device_mount_path(spec)
    attacher.mount_device(spec, device, found, DeviceMounterArgs())
    plugin.new_mounter(spec, POD).set_up(MounterArgs())
    plugin.new_unmounter("vol1", types.UID("poduid")).tear_down()
    assert not volumeutil.has_mount_refs(found, plugin.get_device_mount_refs(found))
    plugin.new_detacher().unmount_device(found)
    assert host.mounter.list() == []
    assert attacher.get_device_mount_path(spec) == global_path(host, f"iface-127.0.0.1:3261:@3172164d9f0a458c/{disk}")


@pytest.mark.parametrize("node_was_started_anew", [False, True])
def test_disk_in_a_directory_of_go_is_logged_out_of_as_it_was_logged_in_to(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target, node_was_started_anew: bool
) -> None:
    """The logout from a disk in a directory of the Go kubelet uses the settings of the login.

    The command iscsiadm ends no session if the given settings are not those of the session.
    """
    name, disk = "127.0.0.1:3261:vol1", f"127.0.0.1:3261-{IQN}-lun-0"
    path = global_path(host, f"iface-{name}/{disk}")
    os.makedirs(path)
    saved = {"VolName": "vol1", "Portals": ["127.0.0.1:3261"], "Iqn": IQN, "Lun": "0", "Iface": name}
    Path(path, "iscsi.json").write_text(json.dumps(saved))
    target.ifaces.add(name)
    target.hosts = {} if node_was_started_anew else {"127.0.0.1:3261": 0}
    attacher, spec = plugin.new_attacher(), in_pod(initiator_name="iqn.pod")
    device = attacher.wait_for_attach(spec, "", POD, 60.0)
    assert attacher.get_device_mount_path(spec) == path
    attacher.mount_device(spec, device, path, DeviceMounterArgs())
    logged_in = [words.split()[-2] for words in target.words("iscsiadm") if words.endswith("--login")]
    plugin.new_detacher().unmount_device(path)
    logged_out = [words.split()[-1] for words in target.words("iscsiadm") if "--logout" in words]
    assert logged_out == (logged_in if node_was_started_anew else [name]) and not os.path.exists(path)


@pytest.mark.parametrize(
    "names",
    [
        {"target_portal": "../../../etc/x"},
        {"portals": ["1.2.3.4", "a/b"]},
        {"iqn": f"{IQN}/../../x"},
        {"iscsi_interface": "../default"},
        {"initiator_name": f"iqn\n* * * * * root x #{IQN}"},
    ],
    ids=lambda names: next(iter(names)),
)
def test_names_do_not_lead_out_of_the_directories_of_iscsiadm(
    plugin: iscsi.ISCSIPlugin, target: Target, names: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a portal, target, initiator or interface"):
        plugin.new_attacher().wait_for_attach(persistent(**names), "", POD, 60.0)
    with pytest.raises(ValueError, match="cannot be the name"):
        plugin.new_device_mounter().get_device_mount_path(persistent(**names))
    assert target.exec.commands == []


def test_session_stays_while_another_disk_uses_it(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    plugin.new_attacher().wait_for_attach(persistent(lun=4), "", POD, 60.0)
    target.exec.commands.clear()
    plugin.new_detacher().unmount_device(global_path(host))
    assert target.words("iscsiadm") == [] and not os.path.exists(global_path(host))
    plugin.new_detacher().unmount_device(global_path(host, f"iface-default/127.0.0.1:3260-{IQN}-lun-4"))
    assert len(target.words("iscsiadm")) == 2


def test_session_stays_while_another_disk_uses_it_over_portals_in_another_order(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    first, second = "10.0.0.1:3260", "10.0.0.2:3260"
    for lun, portal, other in ((3, first, second), (4, second, first)):
        spec = persistent(lun=lun, target_portal=portal, portals=[other])
        plugin.new_attacher().wait_for_attach(spec, "", POD, 60.0)
    target.exec.commands.clear()
    plugin.new_detacher().unmount_device(global_path(host, f"iface-default/{first}-{IQN}-lun-3"))
    assert target.words("iscsiadm") == []
    plugin.new_detacher().unmount_device(global_path(host, f"iface-default/{second}-{IQN}-lun-4"))
    assert len(target.words("iscsiadm")) == 4


def test_disk_of_two_volumes_stays_until_both_are_detached(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk of two volumes stays until both volumes are detached.

    Otherwise the kernel would remove the disk while the other volume is mounted.
    """
    deleted: list[str] = []
    monkeypatch.setattr(target, "find_devices_for_iscsi_lun", lambda iqn, lun: ["sda", "sdb"])
    monkeypatch.setattr(iscsi_util, "delete_device", deleted.append)
    portals = ("10.0.0.1:3260", "10.0.0.2:3260")
    for portal in portals:
        plugin.new_attacher().wait_for_attach(persistent(target_portal=portal), "", POD, 60.0)
    first, second = (global_path(host, f"iface-default/{portal}-{IQN}-lun-3") for portal in portals)
    plugin.new_detacher().unmount_device(first)
    assert deleted == [] and not os.path.exists(first)
    plugin.new_detacher().unmount_device(second)
    assert deleted == ["sda", "sdb"]


def test_disk_that_is_detached_counts_until_its_directory_is_gone(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is being detached counts as in use until its directory is gone.

    Otherwise the kubelet would not log out when two disks of a target are detached at the same time.
    """
    locked: list[bool] = []
    remove = removeall.remove_all_one_filesystem

    def see_lock(mounter: mount_utils.Interface, path: str) -> None:
        locked.append(IQN in plugin.target_locks.held())
        remove(mounter, path)

    monkeypatch.setattr(removeall, "remove_all_one_filesystem", see_lock)
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    plugin.new_detacher().unmount_device(global_path(host))
    assert locked == [True] and not plugin.target_locks.held()


def test_disk_of_another_target_keeps_no_session(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    plugin.new_attacher().wait_for_attach(persistent(iqn=f"{IQN}0"), "", POD, 60.0)
    target.exec.commands.clear()
    plugin.new_detacher().unmount_device(global_path(host))
    assert len(target.words("iscsiadm")) == 2


def test_nobody_logs_out_of_the_target_before_a_new_disk_counts(
    plugin: iscsi.ISCSIPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bool] = []

    def persist(disk: iscsi_disk.ISCSIDisk, directory: str) -> None:
        written.append(IQN in plugin.target_locks.held())

    monkeypatch.setattr(iscsi_util, "persist_iscsi_file", persist)
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    assert written == [True] and not plugin.target_locks.held()


def test_session_that_is_gone_already_is_fine(host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target) -> None:
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    Path(global_path(host), "iscsi.json").unlink()
    target.fails = {"--logout": 21, "delete": 2}
    plugin.new_detacher().unmount_device(global_path(host))
    plugin.new_detacher().unmount_device(global_path(host))
    assert not os.path.exists(global_path(host))


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{", b"\xff", b"3", b'{"Portals": [3]}', b'{"Iqn": ["a"]}'])
def test_settings_that_cannot_be_read_are_told_by_the_name(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target, content: bytes
) -> None:
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    Path(global_path(host), "iscsi.json").write_bytes(content)
    plugin.new_detacher().unmount_device(global_path(host))
    assert not os.path.exists(global_path(host))
    assert f"-m node -p 127.0.0.1:3260 -T {IQN} --logout -I default" in target.words("iscsiadm")


def test_settings_that_cannot_be_read_now_are_waited_for(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet waits for settings that it cannot read now.

    The disk may have more portals than the one in the directory's name.
    """

    def no_descriptor(path: Path) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    plugin.new_attacher().wait_for_attach(persistent(portals=["127.0.0.2"]), "", POD, 60.0)
    target.exec.commands.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", no_descriptor)
        with pytest.raises(OSError, match="Too many open files"):
            plugin.new_detacher().unmount_device(global_path(host))
    assert target.words("iscsiadm") == []
    plugin.new_detacher().unmount_device(global_path(host))
    assert sum("--logout" in call for call in target.words("iscsiadm")) == 2


def test_settings_are_kept_when_they_cannot_be_written_anew(
    plugin: iscsi.ISCSIPlugin, host: FakeVolumeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    file = Path(global_path(host), "iscsi.json")
    before = file.read_text()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    assert file.read_text() == before and os.listdir(file.parent) == [file.name]


def test_session_that_was_overlooked_keeps_its_record(plugin: iscsi.ISCSIPlugin, target: Target) -> None:
    target.fails["--login"] = 15
    with pytest.raises(UncertainProgressError, match="could not get SCSI host number"):
        plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    assert not any(call.endswith("-o delete") for call in target.words("iscsiadm"))


def test_device_of_which_nobody_can_tell_whether_it_is_there_is_not_forgotten(
    plugin: iscsi.ISCSIPlugin, tmp_path: Path
) -> None:
    # As with a disk fault, it is unknown whether a path that is too long exists.
    with pytest.raises(OSError, match="File name too long"):
        plugin.manager.detach_block_iscsi_disk(str(tmp_path / ("a" * 300)))


def test_file_of_a_disk_that_is_still_mounted_is_not_taken_for_its_settings(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = global_path(host)
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    for _ in range(2):
        host.mounter.mount("/dev/sda", path, "ext4", [])
    # A pod has written this file.
    file = Path(path, "iscsi.json")
    of_kubelet = file.read_text()
    file.write_text(of_kubelet.replace(IQN, "iqn.2014-12.server:storage.of-others"))

    def unmount(target: str) -> None:
        host.mounter.mount_points.pop()
        if not host.mounter.mount_points:
            file.write_text(of_kubelet)

    monkeypatch.setattr(host.mounter, "unmount", unmount)
    target.exec.commands.clear()
    with pytest.raises(OSError, match="is still mounted"):
        plugin.new_detacher().unmount_device(path)
    assert target.words("iscsiadm") == []
    plugin.new_detacher().unmount_device(path)
    assert all(IQN in call for call in target.words("iscsiadm")) and not os.path.exists(path)


def test_failed_log_out_is_told_and_keeps_the_settings(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    target.fails = {"--logout": 5}
    with pytest.raises(OSError, match="iscsi: failed to detach disk"):
        plugin.new_detacher().unmount_device(global_path(host))
    assert Path(global_path(host), "iscsi.json").exists()


def test_failed_mount_of_the_device_leaves_no_directory(host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin) -> None:
    host.mounter.errors[global_path(host)] = OSError("no")
    with pytest.raises(OSError, match=r"^no$"):
        plugin.new_device_mounter().mount_device(persistent(), "/dev/x", global_path(host), DeviceMounterArgs())
    assert not os.path.exists(global_path(host))


def test_disk_that_cannot_be_mounted_is_detached_in_the_end(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target
) -> None:
    """The disk is detached in the end, because the volume manager unmounts a device whose state is uncertain."""
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    target.fails["fsck"] = 4
    target.file_system = "ext4"
    with pytest.raises(UncertainProgressError, match="'fsck' found errors"):
        plugin.new_device_mounter().mount_device(persistent(), "/dev/x", global_path(host), DeviceMounterArgs())
    plugin.new_detacher().unmount_device(global_path(host))
    assert "--logout" in " ".join(target.words("iscsiadm")) and not os.path.exists(global_path(host))


def test_block_volume(host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target) -> None:
    spec = persistent(block=True)
    plugin.new_attacher().wait_for_attach(spec, "", POD, 60.0)
    mapper = plugin.new_block_volume_mapper(spec, POD)
    path = f"{host.get_volume_device_plugin_dir('kubernetes.io/iscsi')}/iface-default/127.0.0.1:3260-{IQN}-lun-3"
    assert mapper.get_global_map_path(spec) == path and Path(path, "iscsi.json").exists()
    device_dir = f"{host.root}/pods/poduid/volumeDevices/kubernetes.io~iscsi"
    assert mapper.get_pod_device_map_path() == (device_dir, "pvA")
    rebuilt = iscsi.get_volume_spec_from_global_map_path("pvA", path)
    assert plugin.get_volume_name(rebuilt) == f"127.0.0.1:3260:{IQN}:3"
    unmapper = plugin.new_block_volume_unmapper("pvA", types.UID("poduid"))
    assert isinstance(unmapper, iscsi.ISCSIDiskUnmapper)
    target.exec.commands.clear()
    # The device does not exist, as if its target were gone.
    unmapper.tear_down_device(path, "")
    node = f"-m node -p 127.0.0.1:3260 -T {IQN}"
    assert target.words("iscsiadm") == [f"{node} --logout -I default", f"{node} -o delete -I default"]
    assert not os.path.exists(path)


def test_disks_are_found_that_no_directory_of_a_pod_tells_of(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet finds disks that no directory of a pod shows.

    A kubelet that was killed before it could unmount them has left these disks.
    """
    assert plugin.list_staged_volumes() == [] and plugin.list_published_devices() == []
    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    plugin.new_attacher().wait_for_attach(persistent(block=True, lun=4), "", POD, 60.0)
    Path(global_path(host, "iface-default/other")).mkdir()
    mounted, mapped = plugin.list_staged_volumes()
    assert plugin.get_volume_name(mounted) == f"127.0.0.1:3260:{IQN}:3"
    assert plugin.new_device_mounter().get_device_mount_path(mounted) == global_path(host)
    assert plugin.get_volume_name(mapped) == f"127.0.0.1:3260:{IQN}:4"
    assert Path(plugin.new_block_volume_mapper(mapped, POD).get_global_map_path(mapped), "iscsi.json").exists()
    others = [persistent(block=True), persistent(lun=4), persistent(iscsi_interface="i"), persistent(target_portal="/")]
    same = [plugin.is_staged_by_another_name(spec, mounted) for spec in (persistent(), *others)]
    assert same == [True, False, False, False, False]
    # No directory can have this name, and the pod's volume must not stop the check of others.
    too_long = in_pod(target_portal="p" * 300, initiator_name="iqn.pod")
    assert not plugin.is_staged_by_another_name(too_long, mounted)
    monkeypatch.setattr(os, "scandir", raising(OSError(errno.EMFILE, os.strerror(errno.EMFILE))))
    with pytest.raises(OSError, match="Too many open files"):
        plugin.list_staged_volumes()


def test_disk_is_not_mounted_and_detached_at_the_same_time(
    host: FakeVolumeHost, plugin: iscsi.ISCSIPlugin, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk is not mounted and detached at the same time.

    Volumes with different names may have the same disk, and operations on them run concurrently.
    """
    path, held, run = global_path(host), [], target.exec.run

    def note(command: list[str], timeout: float | None = None) -> bytes:
        held.append(path in plugin.mount_locks.held())
        return run(command, timeout)

    plugin.new_attacher().wait_for_attach(persistent(), "", POD, 60.0)
    monkeypatch.setattr(target.exec, "run", note)
    plugin.new_device_mounter().mount_device(persistent(), "/dev/x", path, DeviceMounterArgs())
    mounting = len(held)
    plugin.new_detacher().unmount_device(path)
    assert 0 < mounting < len(held) and all(held)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        (f"/x/iface-a/1.2.3.4:3260-{IQN}-lun-7", ("1.2.3.4:3260", IQN, "7")),
        ("/x/iface-a/[fd00::1]:3260-eui.02004567A425678D-lun-0", ("[fd00::1]:3260", "eui.02004567A425678D", "0")),
        ("/x/iface-a/1.2.3.4:3260-iqn.a-lun-b-lun-1", ("1.2.3.4:3260", "iqn.a-lun-b", "1")),
        ("/x/iface-a/1.2.3.4:3260-naa.52004567BA64678D-lun-0", ("1.2.3.4:3260", "naa.52004567BA64678D", "0")),
        (f"/x/iface-a/my-disks.example:3260-{IQN}-lun-7", ("my-disks.example:3260", IQN, "7")),
        ("/x/127.0.0.1-lun-1", None),
        ("/x/noportal", None),
        ("/x/1.2.3.4-iqn.a-lun-x", None),
    ],
)
def test_names_of_directories(path: str, parts: tuple[str, str, str] | None) -> None:
    if parts is None:
        with pytest.raises(ValueError):
            iscsi_util.parse_device_dir(path)
    else:
        assert iscsi_util.parse_device_dir(path) == parts


@pytest.mark.parametrize(
    ("output", "transport"),
    [
        ("iface.transport_name = tcp\n", "tcp"),
        ("iface.transport_name = <empty>\n", "tcp"),
        ("iface.transport_name = qla4xxx\nx", "qla4xxx"),
        ("nothing", ""),
    ],
)
def test_transport(output: str, transport: str) -> None:
    assert iscsi_util.extract_transportname(output) == transport


def test_settings_that_cannot_be_read_are_told() -> None:
    assert iscsi_util.parse_iscsiadm_show("# x\niface.a = b\niface.c = <empty>\n") == {"iface.a": "b"}
    with pytest.raises(OSError, match="invalid iface setting"):
        iscsi_util.parse_iscsiadm_show("iface.a b\n")


@faulty_call.cases(Call("pkg/volume/iscsi/iscsi_disk.py", "secrets", "get"))
def test_call_that_gets_a_secret(
    call: Call, kind: Kind, plugin: iscsi.ISCSIPlugin, host: FakeVolumeHost, tmp_path: Path
) -> None:
    """The secret with the disk's passwords is read once the API server's fault is over."""
    pod = v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("poduid"), namespace="default"))
    with FaultyCall(tmp_path, call, kind) as api:
        api.create("secrets", {"stringData": {"node.session.auth.username": "me"}})
        host.kube_client = api.client

        def secret_of(name: str) -> dict[str, str]:
            spec = in_pod(chap_auth_session=True, secret_ref=v1.LocalObjectReference(name=name))
            mounter = plugin.new_mounter(spec, pod)
            assert isinstance(mounter, iscsi.ISCSIDiskMounter)
            return mounter.disk.secret

        api.see_recover(secret_of, {"node.session.auth.username": "me"})
