"""Test the DNS settings of pods.

Go: pkg/kubelet/network/dns/dns_test.go
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.network import dns
from kubelet.network.dns.dns import ResolvConfError, get_pod_dns_type, parse_resolv_conf
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.tools.record.testing import FakeRecorder

_CTX = golang.background()


def _pod(policy: str = "ClusterFirst", **spec: object) -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(name="test_pod", namespace="testNS", uid=types.UID("uid")),
        spec=v1.PodSpec(containers=[], dns_policy=policy, **spec),  # type: ignore[arg-type]
    )


class _World:
    def __init__(
        self,
        resolv_conf: str = "",
        cluster_dns: tuple[str, ...] = ("10.0.0.10",),
        node_ips: tuple[str, ...] = ("192.0.2.7",),
        domain: str = "kubernetes.io",
    ) -> None:
        self.recorder = FakeRecorder(20)
        self.configurer = dns.Configurer(
            self.recorder,
            v1.ObjectReference(kind="Node", name="node"),
            [ipaddress.ip_address(ip) for ip in node_ips],
            [ipaddress.ip_address(ip) for ip in cluster_dns],
            domain,
            resolv_conf,
        )

    def get(self, pod: v1.Pod) -> tuple[list[str], list[str], list[str]]:
        config: runtimeapi.DNSConfig = self.configurer.get_pod_dns(_CTX, pod)
        return list(config.servers), list(config.searches), list(config.options)


@pytest.fixture
def resolv_conf(tmp_path: Path) -> str:
    path = tmp_path / "resolv.conf"
    path.write_text("nameserver 1.2.3.4\nnameserver 5.6.7.8\nsearch example.com corp.example\noptions timeout:1\n")
    return str(path)


@pytest.mark.parametrize(
    ("text", "servers", "searches", "options"),
    [
        ("", [], [], []),
        ("\t\n\t", [], [], []),
        (" #comment\n", [], [], []),
        ("#comment\nnameserver 1.2.3.4\nsearch", ["1.2.3.4"], [], []),
        ("\tnameserver \t 1.2.3.4", ["1.2.3.4"], [], []),
        ("nameserver 1.2.3.4\nnameserver 5.6.7.8", ["1.2.3.4", "5.6.7.8"], [], []),
        ("nameserver 1.2.3.4 #comment", ["1.2.3.4"], [], []),
        ("search .", [], [], []),
        ("search foo .  bar", [], ["foo", "bar"], []),
        ("search foo. bar", [], ["foo", "bar"], []),
        ("search foo\nsearch bar", [], ["bar"], []),
        ("nameserver 1.2.3.4\n#comment\nsearch foo\ncomment", ["1.2.3.4"], ["foo"], []),
        ("options ", [], [], []),
        ("options ndots:1 ndots:5 attempts:2", [], [], ["ndots:5", "attempts:2"]),
        ("options ndots:1 edns0\noptions ndots:5 attempts:3", [], [], ["ndots:5", "edns0", "attempts:3"]),
    ],
)
def test_parse_resolv_conf(text: str, servers: list[str], searches: list[str], options: list[str]) -> None:
    assert parse_resolv_conf(text) == (servers, searches, options)


def test_nameserver_without_address() -> None:
    with pytest.raises(ResolvConfError, match="nameserver list is empty"):
        parse_resolv_conf("#comment\nnameserver\nsearch")


@pytest.mark.parametrize(
    ("policy", "host_network", "expected"),
    [
        ("ClusterFirst", False, dns.PodDNSType.CLUSTER),
        ("ClusterFirst", True, dns.PodDNSType.HOST),
        ("ClusterFirstWithHostNet", True, dns.PodDNSType.CLUSTER),
        ("Default", False, dns.PodDNSType.HOST),
        ("None", False, dns.PodDNSType.NONE),
    ],
)
def test_pod_dns_type(policy: str, host_network: bool, expected: dns.PodDNSType) -> None:
    assert get_pod_dns_type(_pod(policy, host_network=host_network)) is expected


def test_unknown_policy_is_taken_for_cluster_first() -> None:
    with pytest.raises(ValueError, match="invalid DNSPolicy=Odd"):
        get_pod_dns_type(_pod("Odd"))
    assert _World().get(_pod("Odd"))[0] == ["10.0.0.10"]


def test_cluster_first(resolv_conf: str) -> None:
    assert _World(resolv_conf).get(_pod()) == (
        ["10.0.0.10"],
        [
            "testNS.svc.kubernetes.io",
            "svc.kubernetes.io",
            "kubernetes.io",
            "example.com",
            "corp.example",
        ],
        ["ndots:5"],
    )


def test_cluster_first_without_domain(resolv_conf: str) -> None:
    assert _World(resolv_conf, domain="").get(_pod())[1] == ["example.com", "corp.example"]


def test_cluster_first_without_cluster_dns_falls_back_and_tells(resolv_conf: str) -> None:
    world = _World(resolv_conf, cluster_dns=())
    assert world.get(_pod()) == (
        ["1.2.3.4", "5.6.7.8"],
        ["example.com", "corp.example"],
        ["timeout:1"],
    )
    node, pod = world.recorder.drain()
    text = (
        'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy.'
        ' Falling back to "Default" policy.'
    )
    assert node == f"Warning MissingClusterDNS {text}"
    assert pod == f'Warning MissingClusterDNS pod: "test_pod_testNS(uid)". {text}'


def test_default(resolv_conf: str) -> None:
    got = _World(resolv_conf).get(_pod("Default"))
    assert got == (["1.2.3.4", "5.6.7.8"], ["example.com", "corp.example"], ["timeout:1"])


@pytest.mark.parametrize(
    ("node_ips", "servers"),
    [
        (("192.0.2.7",), ["127.0.0.1"]),
        (("fd00::7",), ["::1"]),
        (("192.0.2.7", "fd00::7"), ["127.0.0.1", "::1"]),
        ((), ["127.0.0.1"]),
    ],
)
def test_default_without_resolv_conf(node_ips: tuple[str, ...], servers: list[str]) -> None:
    assert _World("", node_ips=node_ips).get(_pod("Default")) == (servers, ["."], [])


def test_none_has_the_pods_own_alone(resolv_conf: str) -> None:
    config = v1.PodDNSConfig(
        nameservers=["203.0.113.1"],
        searches=["my.domain"],
        options=[v1.PodDNSConfigOption(name="ndots", value="3"), v1.PodDNSConfigOption(name="debug")],
    )
    world = _World(resolv_conf)
    assert world.get(_pod("None", dns_config=config)) == (
        ["203.0.113.1"],
        ["my.domain"],
        ["ndots:3", "debug"],
    )
    assert world.get(_pod("None")) == ([], [], [])


def test_own_settings_are_merged_without_duplicates(resolv_conf: str) -> None:
    config = v1.PodDNSConfig(
        nameservers=["10.0.0.10", "203.0.113.1"],
        searches=["example.com", "my.domain"],
        options=[v1.PodDNSConfigOption(name="ndots", value="2")],
    )
    servers, searches, options = _World(resolv_conf).get(_pod(dns_config=config))
    assert servers == ["10.0.0.10", "203.0.113.1"]
    assert searches[-3:] == ["example.com", "corp.example", "my.domain"]
    assert options == ["ndots:2"]


def test_unreadable_resolv_conf_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        _World(str(tmp_path / "none")).get(_pod())
    (tmp_path / "bad").write_text("nameserver\n")
    with pytest.raises(ResolvConfError, match="Encountered error while parsing resolv conf file"):
        _World(str(tmp_path / "bad")).get(_pod())


# This list has 2048 characters with the spaces.
_LONG = ["A" * 128, *(chr(ord("a") + i) * 127 for i in range(15))]
_MANY = ["testNS.svc.TEST", "svc.TEST", "TEST", *(str(i) for i in range(4, 33))]


@pytest.mark.parametrize(
    ("searches", "kept"),
    [
        (_MANY, _MANY),
        ([*_MANY, "33"], _MANY),
        (_LONG, _LONG),
        ([*_LONG, "B"], _LONG),
        (["a", "B" * 254, "b"], ["a", "b"]),
    ],
)
def test_search_limits(searches: list[str], kept: list[str]) -> None:
    world = _World()
    config = v1.PodDNSConfig(searches=searches)
    assert world.get(_pod("None", dns_config=config))[1] == kept
    expected = []
    if kept != searches:
        expected = [
            "Warning DNSConfigForming Search Line limits were exceeded, some search paths have been omitted,"
            f" the applied search line is: {' '.join(kept)}"
        ]
    assert world.recorder.drain() == expected


def test_nameserver_limit() -> None:
    servers = ["127.0.0.1", "10.0.0.10", "8.8.8.8", "1.2.3.4"]
    world = _World()
    assert world.get(_pod("None", dns_config=v1.PodDNSConfig(nameservers=servers)))[0] == servers[:3]
    assert world.recorder.drain() == [
        "Warning DNSConfigForming Nameserver limits were exceeded, some nameservers have been omitted,"
        " the applied nameserver line is: 127.0.0.1 10.0.0.10 8.8.8.8"
    ]


@pytest.mark.parametrize(
    ("searches", "part"),
    [
        (["a"] * 29, ""),
        (["a"] * 30, "contains search line consisting of more than 29 domains!"),
        (["B" * 254], "contains a search path which length is more than allowed 253 chars!"),
        (["b" * 200] * 11, "contains search line which length is more than allowed 2048 chars!"),
    ],
)
def test_check_limits_for_resolv_conf(tmp_path: Path, searches: list[str], part: str) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text(f"search {' '.join(searches)}\n")
    world = _World(str(path))
    world.configurer.check_limits_for_resolv_conf()
    told = world.recorder.drain()
    assert len(told) == (1 if part else 0)
    assert all(part in event for event in told)


def test_check_limits_of_a_missing_file(tmp_path: Path) -> None:
    world = _World(str(tmp_path / "none"))
    world.configurer.check_limits_for_resolv_conf()
    assert world.recorder.drain()[0].startswith("Warning CheckLimitsForResolvConf [Errno 2]")


def test_no_file_has_no_limits() -> None:
    world = _World("")
    world.configurer.check_limits_for_resolv_conf()
    assert world.recorder.drain() == []


def test_setup_dns_in_containerized_mounter(tmp_path: Path, resolv_conf: str) -> None:
    (tmp_path / "rootfs" / "etc").mkdir(parents=True)
    _World(resolv_conf).configurer.setup_dns_in_containerized_mounter(str(tmp_path / "mounter"))
    written = (tmp_path / "rootfs" / "etc" / "resolv.conf").read_text()
    assert written == "nameserver 10.0.0.10\nsearch example.com corp.example\n"
