"""Test the mounts of containers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet import kubelet_mounts
from kubelet.kubelet_mounts import make_block_volumes, make_mounts, resolve_recursive_read_only
from kubelet.testing import new_pod
from pkg import volume
from pkg.api.core import v1
from pkg.mount_utils.testing import FakeMounter
from pkg.volume.util.hostutil import HostUtil
from pkg.volume.util.hostutil.testing import FakeHostUtil
from pkg.volume.util.subpath import Subpather
from pkg.volume.util.subpath.testing import FakeSubpather
from pkg.volume.util.volumepathhandler import VolumePathHandler

# ---- Volumes ----


class StubVolume:
    def __init__(self, path: str, **attributes: bool) -> None:
        self.path = path
        self.attributes = volume.Attributes(**attributes)

    def get_path(self) -> str:
        return self.path

    def get_attributes(self) -> volume.Attributes:
        return self.attributes


def volumes(**paths: Any) -> kubecontainer.VolumeMap:
    return {
        name: kubecontainer.VolumeInfo(
            mounter=path if isinstance(path, StubVolume) else StubVolume(path),  # type: ignore[arg-type]
            inner_volume_spec_name=name,
        )
        for name, path in paths.items()
    }


def mounts_of(
    pod_dir: Path,
    container: v1.Container,
    pod_volumes: kubecontainer.VolumeMap,
    *,
    pod: v1.Pod | None = None,
    ips: list[str] | None = None,
    subpather: FakeSubpather | None = None,
    envs: dict[str, str] | None = None,
    supports_rro: bool = False,
    images: dict[str, runtimeapi.ImageSpec] | None = None,
) -> tuple[list[kubecontainer.Mount], Any]:
    return make_mounts(
        pod or new_pod("p"),
        str(pod_dir),
        container,
        "fakepodname",
        "",
        ips or [],
        pod_volumes,
        FakeHostUtil(),
        subpather or FakeSubpather(),
        [kubecontainer.EnvVar(name=name, value=value) for name, value in (envs or {}).items()],
        supports_rro,
        images or {},
    )


def container_with(*mounts: v1.VolumeMount) -> v1.Container:
    return v1.Container(name="container1", volume_mounts=list(mounts))


def test_make_mounts(tmp_path: Path) -> None:
    container = container_with(
        v1.VolumeMount(name="disk", mount_path="/etc/hosts", mount_propagation="HostToContainer"),
        v1.VolumeMount(name="disk", mount_path="/mnt/path3", read_only=True, mount_propagation="None"),
        v1.VolumeMount(name="disk4", mount_path="relative/path", mount_propagation="Bidirectional"),
        v1.VolumeMount(name="locked", mount_path="/locked"),
    )
    pod_volumes = volumes(disk="/mnt/disk", disk4="/mnt/host", locked=StubVolume("/mnt/locked", read_only=True))
    found, cleanup = mounts_of(tmp_path, container, pod_volumes, ips=["1.1.1.1"])
    assert cleanup is None
    assert found == [
        kubecontainer.Mount(
            name="disk",
            container_path="/etc/hosts",
            host_path="/mnt/disk",
            propagation=runtimeapi.PROPAGATION_HOST_TO_CONTAINER,
        ),
        kubecontainer.Mount(name="disk", container_path="/mnt/path3", host_path="/mnt/disk", read_only=True),
        kubecontainer.Mount(
            name="disk4",
            container_path="/relative/path",
            host_path="/mnt/host",
            propagation=runtimeapi.PROPAGATION_BIDIRECTIONAL,
        ),
        kubecontainer.Mount(name="locked", container_path="/locked", host_path="/mnt/locked", read_only=True),
    ], "and no managed hosts file: the pod has its own"


def test_volume_is_relabelled_once(tmp_path: Path) -> None:
    container = container_with(*(v1.VolumeMount(name="v", mount_path=path) for path in ("/a", "/b")))
    pod_volumes = volumes(v=StubVolume("/mnt/v", managed=True, selinux_relabel=True))
    found, _ = mounts_of(tmp_path, container, pod_volumes)
    assert [mount.se_linux_relabel for mount in found] == [True, False]


def test_image_volume(tmp_path: Path) -> None:
    image = runtimeapi.ImageSpec(image="image1")
    container = container_with(v1.VolumeMount(name="v", mount_path="/v", sub_path="some/path"))
    found, cleanup = mounts_of(tmp_path, container, volumes(v=""), images={"v": image})
    assert (found[0].image, found[0].image_sub_path, found[0].host_path) == (image, "some/path", "")
    assert cleanup is None


@pytest.mark.parametrize(
    ("mount", "error"),
    [
        (v1.VolumeMount(name="absent", mount_path="/v"), 'cannot find volume "absent" to mount into container'),
        (v1.VolumeMount(name="pathless", mount_path="/v"), "path is empty"),
        (v1.VolumeMount(name="v", mount_path="/v", mount_propagation="Sideways"), "invalid MountPropagation mode"),
        (v1.VolumeMount(name="v", mount_path="/v", sub_path="no/backsteps/../allowed"), "must not contain '..'"),
        (v1.VolumeMount(name="v", mount_path="/v", sub_path="/abs"), "must not be an absolute path"),
        (v1.VolumeMount(name="v", mount_path="/v", sub_path_expr="$(UP)/x"), "must not contain '..'"),
        (v1.VolumeMount(name="v", mount_path="/v", sub_path_expr="$(ABSENT)"), "missing value for"),
        (
            v1.VolumeMount(name="v", mount_path="/v", read_only=True, recursive_read_only="Enabled"),
            "failed to resolve recursive read-only mode: .* not supported by the runtime",
        ),
    ],
)
def test_mounts_that_are_refused(tmp_path: Path, mount: v1.VolumeMount, error: str) -> None:
    pod_volumes = volumes(v="/mnt/v", pathless="")
    with pytest.raises(ValueError, match=error):
        mounts_of(tmp_path, container_with(mount), pod_volumes, envs={"UP": ".."})


def test_sub_path_is_made_and_bound(tmp_path: Path) -> None:
    subpather = FakeSubpather()
    mount = v1.VolumeMount(name="v", mount_path="/v", sub_path_expr="data/$(NAME)")
    pod_volumes = volumes(v=str(tmp_path))
    found, cleanup = mounts_of(
        tmp_path / "pod", container_with(mount), pod_volumes, subpather=subpather, envs={"NAME": "one"}
    )
    assert found[0].host_path == str(tmp_path / "data/one")
    assert (tmp_path / "data/one").is_dir()
    assert [(s.volume_name, s.container_name, s.volume_mount_index) for s in subpather.prepared] == [
        ("v", "container1", 0)
    ]
    assert cleanup is not None


@pytest.mark.parametrize("link", ["/etc/shadow", "../secret", "/no/such/file"])
@pytest.mark.parametrize("sub_path", ["link", "link/below"])
def test_sub_path_that_is_a_link_out_of_the_volume_tells_nothing_of_the_host(
    tmp_path: Path, link: str, sub_path: str
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (tmp_path / "secret").touch()
    (volume / "link").symlink_to(link)
    mounter = FakeMounter()
    mount = v1.VolumeMount(name="v", mount_path="/v", sub_path=sub_path)
    with pytest.raises(ValueError) as caught:
        make_mounts(
            new_pod("p"),
            str(tmp_path / "pod"),
            container_with(mount),
            "host",
            "",
            [],
            volumes(v=str(volume)),
            HostUtil(),
            Subpather(mounter),
            [],
            False,
            {},
        )
    assert str(caught.value).endswith(
        'for volumeMount "v" of container "container1": the sub-path leads out of the volume'
    )
    assert mounter.calls == []


def test_sub_path_of_which_nothing_can_be_told_is_not_made(tmp_path: Path) -> None:
    class Blind(FakeHostUtil):
        def path_exists(self, path: str) -> bool:
            raise OSError("stale file handle")

    subpather = FakeSubpather()
    mount = v1.VolumeMount(name="v", mount_path="/v", sub_path="a")
    make_mounts(
        new_pod("p"), "/pod", container_with(mount), "h", "", [], volumes(v="/v"), Blind(), subpather, [], False, {}
    )
    assert [prepared.path for prepared in subpather.prepared] == ["/v/a"]


RRO_ERRORS = {
    "unknown": "unknown recursive read-only mode",
    "writable": "not read-only",
    "propagation": "not compatible with propagation",
    "runtime": "not supported by the runtime",
}


@pytest.mark.parametrize(
    ("mode", "read_only", "propagation", "supported", "expected"),
    [
        (None, False, None, True, False),
        (None, True, None, True, False),
        ("Disabled", True, None, True, False),
        ("IfPossible", True, None, True, True),
        ("IfPossible", True, None, False, False),
        ("IfPossible", True, "None", True, True),
        ("IfPossible", True, "HostToContainer", True, "propagation"),
        ("IfPossible", True, "Bidirectional", True, "propagation"),
        ("IfPossible", False, None, True, "writable"),
        ("IfPossible", False, None, False, "writable"),
        ("Enabled", True, None, True, True),
        ("Enabled", True, "None", True, True),
        ("Enabled", True, "HostToContainer", True, "propagation"),
        ("Enabled", False, None, True, "writable"),
        ("Enabled", True, None, False, "runtime"),
        ("foo", True, None, True, "unknown"),
    ],
)
def test_resolve_recursive_read_only(
    mode: str | None, read_only: bool, propagation: str | None, supported: bool, expected: bool | str
) -> None:
    mount = v1.VolumeMount(name="m", read_only=read_only, recursive_read_only=mode, mount_propagation=propagation)
    if isinstance(expected, bool):
        assert resolve_recursive_read_only(mount, supported) == expected
    else:
        with pytest.raises(ValueError, match=RRO_ERRORS[expected]):
            resolve_recursive_read_only(mount, supported)


# ---- The hosts file ----

ALIASES = [
    v1.HostAlias(ip="123.45.67.89", hostnames=["foo", "bar"]),
    v1.HostAlias(ip="fd00::1", hostnames=["baz"]),
]
ALIAS_TEXT = "\n# Entries added by HostAliases.\n123.45.67.89\tfoo\tbar\nfd00::1\tbaz\n"
LOOPBACK = (
    "# Kubernetes-managed hosts file.\n"
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)


@pytest.mark.parametrize(
    ("ips", "domain", "aliases", "expected"),
    [
        (["123.45.67.89"], "", [], LOOPBACK + "123.45.67.89\tpodFoo\n"),
        (["203.0.113.1"], "domainFoo", [], LOOPBACK + "203.0.113.1\tpodFoo.domainFoo\tpodFoo\n"),
        (["1.2.3.4"], "d", ALIASES, LOOPBACK + "1.2.3.4\tpodFoo.d\tpodFoo\n" + ALIAS_TEXT),
        (["1.2.3.4", "fd00::6"], "d", [], LOOPBACK + "1.2.3.4\tpodFoo.d\tpodFoo\nfd00::6\tpodFoo.d\tpodFoo\n"),
    ],
)
def test_managed_hosts_file_content(ips: list[str], domain: str, aliases: list[v1.HostAlias], expected: str) -> None:
    assert kubelet_mounts.managed_hosts_file_content(ips, "podFoo", domain, aliases).decode() == expected


@pytest.mark.parametrize("aliases", [[], ALIASES])
def test_node_hosts_file_content(tmp_path: Path, aliases: list[v1.HostAlias]) -> None:
    own = tmp_path / "hosts"
    own.write_bytes(b"# mine\n1.2.3.4\tcaf\xe9\n")
    text = kubelet_mounts.node_hosts_file_content(str(own), aliases)
    header = b"# Kubernetes-managed hosts file (host network).\n"
    assert text == header + own.read_bytes() + (ALIAS_TEXT.encode() if aliases else b"")


def test_node_without_a_hosts_file_has_no_names_of_its_own(tmp_path: Path) -> None:
    text = kubelet_mounts.node_hosts_file_content(str(tmp_path / "hosts"), ALIASES)
    assert text == b"# Kubernetes-managed hosts file (host network).\n" + ALIAS_TEXT.encode()


def test_hosts_file_is_rewritten_in_place(tmp_path: Path) -> None:
    path = kubelet_mounts.get_etc_hosts_path(str(tmp_path))
    kubelet_mounts.ensure_hosts_file(path, ["1.1.1.1"], "h", "", ALIASES, False)
    inode = os.stat(path).st_ino
    kubelet_mounts.ensure_hosts_file(path, ["2.2.2.2"], "h", "", [], False)
    assert os.stat(path).st_ino == inode, "the inode stays, because the file is mounted into containers"
    assert os.stat(path).st_mode & 0o777 == 0o644
    assert Path(path).read_text() == LOOPBACK + "2.2.2.2\th\n"


@pytest.mark.parametrize(
    ("ips", "host_network", "mounted"), [([], False, False), (["1.1.1.1"], False, True), ([], True, True)]
)
def test_hosts_file_is_mounted_once_there_is_an_address(
    tmp_path: Path, ips: list[str], host_network: bool, mounted: bool
) -> None:
    pod = new_pod("p", host_network=host_network)
    found, _ = mounts_of(tmp_path, v1.Container(name="c"), {}, pod=pod, ips=ips)
    assert [mount.container_path for mount in found] == (["/etc/hosts"] if mounted else [])
    assert [mount.se_linux_relabel for mount in found] == ([True] if mounted else [])


# ---- Devices ----


class Mapper:
    def __init__(self, directory: Path, name: str) -> None:
        self.path = (str(directory), name)

    def get_pod_device_map_path(self) -> tuple[str, str]:
        return self.path


def block(directory: Path, name: str, read_only: bool = False) -> kubecontainer.VolumeInfo:
    mapper = Mapper(directory, name)
    return kubecontainer.VolumeInfo(block_volume_mapper=mapper, read_only=read_only)  # type: ignore[arg-type]


def container(**devices: str) -> v1.Container:
    return v1.Container(
        name="c", volume_devices=[v1.VolumeDevice(name=name, device_path=path) for name, path in devices.items()]
    )


def test_devices_are_the_links_that_are_there(tmp_path: Path) -> None:
    for name in ("disk", "readonly"):
        os.symlink("/dev/null", tmp_path / name)
    volumes = {
        "disk": block(tmp_path, "disk"),
        "readonly": block(tmp_path, "readonly", read_only=True),
        "unmapped": block(tmp_path, "unmapped"),
    }
    devices = make_block_volumes(
        container(disk="/dev/xvda", readonly="/dev/xvdb", unmapped="/dev/xvdc"), volumes, VolumePathHandler()
    )
    assert devices == [
        kubecontainer.DeviceInfo(str(tmp_path / "disk"), "/dev/xvda", "mrw"),
        kubecontainer.DeviceInfo(str(tmp_path / "readonly"), "/dev/xvdb", "r"),
    ]


@pytest.mark.parametrize(
    ("path", "volumes", "error"),
    [
        ("dev/xvda", {}, "DevicePath `dev/xvda` must be an absolute path"),
        ("/dev/xvda", {}, 'cannot find volume "disk" to pass into container "c"'),
        ("/dev/xvda", {"disk": kubecontainer.VolumeInfo()}, 'cannot find volume "disk" to pass into container "c"'),
    ],
)
def test_devices_that_are_refused(path: str, volumes: kubecontainer.VolumeMap, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        make_block_volumes(container(disk=path), volumes, VolumePathHandler())
