"""Test the setters of a node's status.

Go: pkg/kubelet/nodestatus/setters_test.go
"""

from __future__ import annotations

import _socket
import datetime
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest

from kubelet import cadvisor, cm, nodestatus
from kubelet import container as kubecontainer
from kubelet.container.testing import FakeVersion
from kubelet.nodestatus import setters
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.api.testing import quantities, texts
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.net import IPAddress
from pkg.golang.net.testing import Resolver

HOST = "test-node"
PROVIDED = "alpha.kubernetes.io/provided-node-ip"
CTX = golang.background()
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, datetime.UTC)
NOW_SENT = NOW.replace(microsecond=0)
BEFORE = NOW_SENT - datetime.timedelta(seconds=10)
Resources = dict[str, str]


class Events:
    """Record the events."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []

    def record(self, *event: str) -> None:
        self.seen.append(event)


# ---- Addresses ----


def make_node(annotations: dict[str, str] | None = None, addresses: list[v1.NodeAddress] | None = None) -> v1.Node:
    metadata = metav1.ObjectMeta(name=HOST, annotations=annotations or {})
    return v1.Node(metadata=metadata, status=v1.NodeStatus(addresses=addresses or []))


def addresses(node: v1.Node) -> list[str]:
    return [f"{address.type} {address.address}" for address in node.status.addresses]


def refuse_loopback(ip: IPAddress) -> None:
    if ip.is_loopback or ip.is_multicast:
        raise ValueError("nodeIP can't be such an address")


def address_setter(ips: str, cloud: bool = False, resolved: str = "", hostname: str = HOST) -> nodestatus.Setter:
    def resolve(bind: IPAddress | None) -> IPAddress:
        if not resolved:
            raise ValueError("no default routes")
        return ip_address(resolved)

    parsed = [ip_address(ip) for ip in ips.split(",") if ip]
    return nodestatus.node_address(parsed, refuse_loopback, hostname, cloud, resolve)


@pytest.fixture
def nobody_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(host: str, port: object, **_: object) -> None:
        raise socket.gaierror("unknown")

    monkeypatch.setattr(_socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("nobody_known")
@pytest.mark.parametrize(
    ("ips", "resolved", "cloud", "expected"),
    [
        pytest.param("10.0.0.1", "", True, ["10.0.0.1"], id="using cloud provider and nodeIP specified"),
        pytest.param("0.0.0.0", "10.0.0.2", False, ["10.0.0.2"], id="no cloud provider and nodeIP IPv4 unspecified"),
        pytest.param("::", "2001:db2::2", False, ["2001:db2::2"], id="no cloud provider and nodeIP IPv6 unspecified"),
        pytest.param("0.0.0.0", "10.0.0.2", True, ["10.0.0.2"], id="cloud provider and nodeIP IPv4 unspecified"),
        pytest.param("::", "2001:db2::2", True, ["2001:db2::2"], id="cloud provider and nodeIP IPv6 unspecified"),
        pytest.param("", "10.0.0.2", False, ["10.0.0.2"], id="no cloud provider and no nodeIP resolve IPv4"),
        pytest.param("", "2001:db2::2", False, ["2001:db2::2"], id="no cloud provider and no nodeIP resolve IPv6"),
        pytest.param("", "10.0.0.2", True, [], id="using cloud provider and no nodeIP"),
        pytest.param("10.1.1.1,fd01::1234", "", False, ["10.1.1.1", "fd01::1234"], id="dual --node-ips"),
        pytest.param("fd01::1234,10.1.1.2", "", True, ["fd01::1234", "10.1.1.2"], id="dual-stack cloud"),
    ],
)
def test_node_address(ips: str, resolved: str, cloud: bool, expected: list[str]) -> None:
    node = make_node()
    address_setter(ips, cloud, resolved)(CTX, node)
    assert addresses(node) == [*(f"InternalIP {ip}" for ip in expected), f"Hostname {HOST}"]


@pytest.mark.parametrize(
    ("ips", "cloud", "existing", "expected"),
    [
        pytest.param("10.1.1.1", True, None, "10.1.1.1", id="cloud provider gets nodeIP annotation"),
        pytest.param("10.1.1.1", False, None, None, id="no cloud provider does not get nodeIP annotation"),
        pytest.param("10.1.1.1", False, "10.1.1.3", None, id="stale annotation is removed"),
        pytest.param("10.1.1.1", True, "10.1.1.3", "10.1.1.1", id="incorrect annotation is fixed"),
        pytest.param("fd01::1,10.1.1.2", True, None, "fd01::1,10.1.1.2", id="dual-stack cloud"),
        pytest.param("10.1.1.1,fd01::1", True, "10.1.1.1", "10.1.1.1,fd01::1", id="upgrade to dual-stack"),
        pytest.param("10.1.1.1", True, "10.1.1.1,fd01::1", "10.1.1.1", id="downgrade from dual-stack"),
    ],
)
def test_node_address_annotation(ips: str, cloud: bool, existing: str | None, expected: str | None) -> None:
    node = make_node({PROVIDED: existing} if existing else None)
    address_setter(ips, cloud)(CTX, node)
    assert node.metadata.annotations.get(PROVIDED) == expected


def test_addresses_of_the_cloud_provider_stay() -> None:
    node = make_node(addresses=[v1.NodeAddress(type="ExternalIP", address="10.1.1.2")])
    address_setter("10.1.1.1", cloud=True)(CTX, node)
    assert addresses(node) == ["ExternalIP 10.1.1.2"]


@pytest.mark.parametrize(
    ("ips", "message"),
    [
        pytest.param("127.0.0.1", "failed to validate nodeIP: nodeIP can't be such an address", id="single"),
        pytest.param("10.1.1.1,224.0.0.0", "failed to validate secondaryNodeIP", id="second of two"),
    ],
)
def test_node_address_of_no_use(ips: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        address_setter(ips)(CTX, make_node())


@pytest.mark.parametrize(
    ("ips", "found", "resolved", "expected"),
    [
        pytest.param("", ["10.1.2.3"], "", "10.1.2.3", id="the name stands for one"),
        pytest.param("", ["fd00::1", "10.1.2.3"], "", "10.1.2.3", id="version 4 is preferred"),
        pytest.param("::", ["10.1.2.3", "fd00::1"], "", "fd00::1", id="version 6 is preferred if asked for"),
        pytest.param("", ["fd00::1"], "", "fd00::1", id="version 6 alone"),
        pytest.param("", ["127.0.1.1"], "10.9.9.9", "10.9.9.9", id="a loopback address does not count"),
    ],
)
def test_node_address_from_the_name_service(
    monkeypatch: pytest.MonkeyPatch, ips: str, found: list[str], resolved: str, expected: str
) -> None:
    def look_up(host: str, port: object, **_: object) -> list[Any]:
        assert host == HOST
        return [(0, 0, kind, "", (ip, 0)) for ip in found for kind in (1, 2)]

    monkeypatch.setattr(_socket, "getaddrinfo", look_up)
    node = make_node()
    address_setter(ips, resolved=resolved)(CTX, node)
    assert addresses(node)[0] == f"InternalIP {expected}"


def test_node_address_is_that_of_the_default_route_while_the_name_service_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(setters, "LOOKUP_TIMEOUT", 0.1)
    monkeypatch.setattr(setters, "SILENT_LOOKUP_TIMEOUT", 0.1)
    names = Resolver(monkeypatch)
    node = make_node()
    set_address = address_setter("", resolved="10.9.9.9")
    set_address(CTX, node)
    assert addresses(node)[0] == "InternalIP 10.9.9.9"
    # This timeout is longer than the test may take, so it shows that the second lookup does not wait for it.
    monkeypatch.setattr(setters, "LOOKUP_TIMEOUT", 1e6)
    set_address(CTX, node)
    assert names.asked == [HOST]
    assert names.answered == []
    names.go_on.set()


def test_hostname_that_is_an_address() -> None:
    node = make_node()
    address_setter("", hostname="10.1.2.3")(CTX, node)
    assert addresses(node) == ["InternalIP 10.1.2.3", "Hostname 10.1.2.3"]


def test_name_that_dns_cannot_have() -> None:
    node = make_node()
    node.metadata.name = 64 * "n"
    address_setter("", resolved="10.9.9.9")(CTX, node)
    assert addresses(node)[0] == "InternalIP 10.9.9.9"


@pytest.mark.usefixtures("nobody_known")
def test_machine_without_any_address() -> None:
    with pytest.raises(ValueError, match="can't get ip address of node test-node"):
        address_setter("")(CTX, make_node())


# ---- The machine ----


def set_machine(
    node: v1.Node,
    info: cadvisor.MachineInfo | None = None,
    max_pods: int = 110,
    pods_per_core: int = 0,
    storage: str = "",
    devices: tuple[Resources, Resources, list[str]] = ({}, {}, []),
    reserved: Resources | None = None,
    events: Events | None = None,
) -> nodestatus.Setter:
    def machine_info() -> cadvisor.MachineInfo:
        if info is None:
            raise OSError("foo")
        return info

    setter = nodestatus.machine_info(
        HOST,
        max_pods,
        pods_per_core,
        machine_info,
        lambda isolation: quantities(**{"ephemeral-storage": storage} if storage else {}),
        lambda: cm.DevicePluginResourceCapacity(quantities(**devices[0]), quantities(**devices[1]), devices[2]),
        lambda: quantities(**reserved or {}),
        (events or Events()).record,
        True,
    )
    setter(CTX, node)
    return setter


MACHINE = cadvisor.MachineInfo(num_cores=2, memory_capacity=1024)
CAPACITY = {"cpu": "2", "memory": "1Ki", "pods": "110"}


@pytest.mark.parametrize(
    ("existing", "kwargs", "capacity", "allocatable"),
    [
        pytest.param({}, {}, {}, {}, id="basic capacity and allocatable"),
        pytest.param(
            {},
            {"max_pods": 10, "pods_per_core": 4},
            {"pods": "8"},
            {"pods": "8"},
            id="podsPerCore greater than zero, but less than maxPods/cores",
        ),
        pytest.param(
            {},
            {"max_pods": 10, "pods_per_core": 6},
            {"pods": "10"},
            {"pods": "10"},
            id="podsPerCore greater than maxPods/cores",
        ),
        pytest.param(
            {},
            {"reserved": {"cpu": "1m", "memory": "1", "pods": "1", "ephemeral-storage": "1"}},
            {},
            {"cpu": "1999m", "memory": "1023", "pods": "109"},
            id="allocatable should equal capacity minus reservations",
        ),
        pytest.param(
            {"hugepages-test": "1"},
            {},
            {"hugepages-test": "1"},
            {"hugepages-test": "1", "memory": "1023"},
            id="allocatable memory does not double-count hugepages reservations",
        ),
        pytest.param(
            {"negative-resource": "-1"},
            {},
            {"negative-resource": "-1"},
            {"negative-resource": "0"},
            id="negative capacity resources should be set to 0 in allocatable",
        ),
        pytest.param(
            {"hugepages-test": "1025"},
            {},
            {"hugepages-test": "1025"},
            {"hugepages-test": "1025", "memory": "0"},
            id="hugepages reservation greater than node memory capacity",
        ),
        pytest.param(
            {},
            {"storage": "5000"},
            {"ephemeral-storage": "5k"},
            {"ephemeral-storage": "5k"},
            id="ephemeral storage is reflected in capacity and allocatable",
        ),
        pytest.param(
            {},
            {"devices": ({"device-plugin": "2"}, {"device-plugin": "1"}, [])},
            {"device-plugin": "2"},
            {"device-plugin": "1"},
            id="device plugin resources are reflected in capacity and allocatable",
        ),
        pytest.param(
            {"inactive": "1"},
            {"devices": ({}, {}, ["inactive"])},
            {"inactive": "0"},
            {"inactive": "0"},
            id="inactive device plugin resources should have their capacity set to 0",
        ),
    ],
)
def test_machine_info(existing: Resources, kwargs: dict[str, Any], capacity: Resources, allocatable: Resources) -> None:
    node = v1.Node(status=v1.NodeStatus(capacity=quantities(**existing)))
    set_machine(node, MACHINE, **kwargs)
    assert texts(node.status.capacity) == {**CAPACITY, **capacity}
    assert texts(node.status.allocatable) == {**CAPACITY, **allocatable}


def test_machine_ids() -> None:
    node = v1.Node()
    set_machine(node, cadvisor.MachineInfo(2, 1024, machine_id="MachineID", system_uuid="SystemUUID"))
    assert (node.status.node_info.machine_id, node.status.node_info.system_uuid) == ("MachineID", "SystemUUID")
    assert node.status.node_info.swap is None


def test_machine_swap() -> None:
    node = v1.Node()
    set_machine(node, cadvisor.MachineInfo(2, 1024, swap_capacity=20 * 2**30))
    assert node.status.node_info.swap == v1.NodeSwapStatus(capacity=20 * 2**30)


def test_extended_resources_that_are_gone_cannot_be_allocated() -> None:
    node = v1.Node(status=v1.NodeStatus(allocatable=quantities(**{"example.com/extended": "1"})))
    set_machine(node, MACHINE)
    assert texts(node.status.allocatable) == CAPACITY


def test_machine_info_cannot_be_had() -> None:
    node = v1.Node()
    set_machine(node, None, pods_per_core=1)
    nothing = {"cpu": "0", "memory": "0", "pods": "110"}
    assert (texts(node.status.capacity), texts(node.status.allocatable)) == (nothing, nothing)


def test_reboot_is_recorded_once() -> None:
    events = Events()
    node = v1.Node(status=v1.NodeStatus(node_info=v1.NodeSystemInfo(boot_id="foo")))
    setter = set_machine(node, cadvisor.MachineInfo(2, 1024, boot_id="bar"), events=events)
    assert node.status.node_info.boot_id == "bar"
    node.status.node_info.boot_id = "foo"
    setter(CTX, node)
    assert events.seen == [("Warning", "Rebooted", "Node test-node has been rebooted, boot id: bar")]


def test_version_info() -> None:
    node = v1.Node(status=v1.NodeStatus(node_info=v1.NodeSystemInfo(kube_proxy_version="v1.20.0")))
    info = cadvisor.VersionInfo(kernel_version="KernelVersion", container_os_version="ContainerOSVersion")
    version = FakeVersion("2.1.9+unknown")
    nodestatus.version_info(lambda: info, lambda: "containerd", lambda ctx: version)(CTX, node)
    expected = v1.NodeSystemInfo(
        kernel_version="KernelVersion",
        os_image="ContainerOSVersion",
        container_runtime_version="containerd://2.1.9+unknown",
        kubelet_version="v1.36.2",
    )
    assert node.status.node_info == expected


def test_version_of_a_runtime_that_does_not_tell() -> None:
    def fail(ctx: golang.Context) -> kubecontainer.Version:
        raise RuntimeError("away")

    node = v1.Node()
    nodestatus.version_info(cadvisor.VersionInfo, lambda: "containerd", fail)(CTX, node)
    assert node.status.node_info.container_runtime_version == "containerd://Unknown"


def test_version_info_fails() -> None:
    def fail() -> cadvisor.VersionInfo:
        raise OSError("foo")

    with pytest.raises(OSError, match="error getting version info: foo"):
        nodestatus.version_info(fail, lambda: "", lambda ctx: FakeVersion(""))(CTX, v1.Node())


@pytest.mark.parametrize(
    ("limit", "count"),
    [
        pytest.param(-1, 4, id="no limit"),
        pytest.param(3, 3, id="limit below the number of images"),
        pytest.param(10, 4, id="limit above it"),
        pytest.param(0, 0, id="no image at all"),
    ],
)
def test_images(limit: int, count: int) -> None:
    found = [
        kubecontainer.Image(
            id=f"image-{size}", size=size, repo_tags=[f"t{n}" for n in range(4)], repo_digests=["d0", "d1"]
        )
        for size in (400, 300, 200, 100)
    ]
    node = v1.Node(status=v1.NodeStatus(images=[v1.ContainerImage(names=["old"])]))
    nodestatus.images(limit, lambda: found)(CTX, node)
    assert [image.size_bytes for image in node.status.images] == [400, 300, 200, 100][:count]
    assert all(image.names == ["d0", "d1", "t0", "t1", "t2"] for image in node.status.images)


def test_runtime_features() -> None:
    node = v1.Node()
    handler = kubecontainer.RuntimeHandler("runc", supports_recursive_read_only_mounts=True)
    nodestatus.node_features(lambda: None)(CTX, node)
    assert node.status.features is None
    nodestatus.node_features(lambda: kubecontainer.RuntimeFeatures(supplemental_groups_policy=True))(CTX, node)
    nodestatus.runtime_handlers(lambda: [handler])(CTX, node)
    assert codec.to_builtins(node.status.features) == {"supplementalGroupsPolicy": True}
    features = {"recursiveReadOnlyMounts": True, "userNamespaces": False}
    assert codec.to_builtins(node.status.runtime_handlers) == [{"name": "runc", "features": features}]


def test_daemon_endpoints() -> None:
    node = v1.Node()
    endpoints = v1.NodeDaemonEndpoints(kubelet_endpoint=v1.DaemonEndpoint(port=10250))
    nodestatus.daemon_endpoints(endpoints)(CTX, node)
    assert node.status.daemon_endpoints == endpoints


@pytest.mark.parametrize(
    ("synced", "expected"),
    [pytest.param(True, ["new"], id="synced"), pytest.param(False, ["old"], id="not synced")],
)
def test_volumes_in_use(synced: bool, expected: list[str]) -> None:
    node = v1.Node(status=v1.NodeStatus(volumes_in_use=["old"]))
    nodestatus.volumes_in_use(lambda: synced, lambda: ["new"])(CTX, node)
    assert node.status.volumes_in_use == expected


# ---- Conditions ----


def condition(type: str, status: str, reason: str, message: str, transition: datetime.datetime) -> v1.NodeCondition:
    return v1.NodeCondition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=transition,
        last_heartbeat_time=NOW_SENT,
    )


def ready(status: str, message: str, transition: datetime.datetime = NOW_SENT) -> v1.NodeCondition:
    reason = "KubeletReady" if status == "True" else "KubeletNotReady"
    return condition(v1.NODE_READY, status, reason, message, transition)


ALL_CAPACITY = {"cpu": "1", "memory": "1", "pods": "1", "ephemeral-storage": "1"}
POSTING = "kubelet is posting ready status"


def set_ready(node: v1.Node, errors: dict[str, str], events: Events, soft: Exception | None = None) -> None:
    def err(name: str) -> Callable[[], Exception | None]:
        return lambda: RuntimeError(errors[name]) if name in errors else None

    nodestatus.ready_condition(
        lambda: NOW,
        err("runtime"),
        err("network"),
        err("storage"),
        lambda: cm.Status(soft_requirements=soft),
        err("shutdown"),
        events.record,
        True,
    )(CTX, node)


def ready_node(capacity: Resources, *conditions: v1.NodeCondition) -> v1.Node:
    return v1.Node(status=v1.NodeStatus(capacity=quantities(**capacity), conditions=list(conditions)))


@pytest.mark.parametrize(
    ("errors", "capacity", "status", "message"),
    [
        pytest.param({}, ALL_CAPACITY, "True", POSTING, id="new, ready"),
        pytest.param({"runtime": "foo"}, ALL_CAPACITY, "False", "foo", id="new, not ready: runtime errors"),
        pytest.param({"network": "foo"}, ALL_CAPACITY, "False", "foo", id="new, not ready: network errors"),
        pytest.param({"storage": "foo"}, ALL_CAPACITY, "False", "foo", id="new, not ready: storage errors"),
        pytest.param({"shutdown": "foo"}, ALL_CAPACITY, "False", "foo", id="new, not ready: shutdown active"),
        pytest.param(
            {"runtime": "runtime", "network": "network"},
            ALL_CAPACITY,
            "False",
            "[runtime, network]",
            id="new, not ready: runtime and network errors",
        ),
        pytest.param(
            {},
            {},
            "False",
            "missing node capacity for resources: cpu, memory, pods, ephemeral-storage",
            id="new, not ready: missing capacities",
        ),
    ],
)
def test_ready_condition(errors: dict[str, str], capacity: Resources, status: str, message: str) -> None:
    node, events = ready_node(capacity), Events()
    set_ready(node, errors, events)
    assert node.status.conditions == [ready(status, message)]
    assert events.seen == [], "a node that is new has not become anything"


@pytest.mark.parametrize(
    ("before", "errors", "expected", "events"),
    [
        pytest.param("True", {}, ready("True", POSTING, BEFORE), [], id="ready to ready"),
        pytest.param("False", {}, ready("True", POSTING), [("Normal", "NodeReady")], id="not ready to ready"),
        pytest.param(
            "True", {"runtime": "foo"}, ready("False", "foo"), [("Normal", "NodeNotReady")], id="ready to not ready"
        ),
        pytest.param("False", {"runtime": "foo"}, ready("False", "foo", BEFORE), [], id="not ready to not ready"),
    ],
)
def test_ready_condition_transition(
    before: str, errors: dict[str, str], expected: v1.NodeCondition, events: list[tuple[str, ...]]
) -> None:
    old = ready(before, "before", BEFORE)
    other = v1.NodeCondition(type="Other", status="True")
    node, recorded = ready_node(ALL_CAPACITY, old, other), Events()
    set_ready(node, errors, recorded)
    assert node.status.conditions == [expected, other]
    assert recorded.seen == events


def test_ready_condition_with_soft_requirement_failure() -> None:
    node = ready_node(ALL_CAPACITY)
    set_ready(node, {}, Events(), soft=RuntimeError("foo"))
    assert node.status.conditions == [ready("True", POSTING + ". WARNING: foo")]


PRESSURES = {
    v1.NODE_MEMORY_PRESSURE: (
        nodestatus.memory_pressure_condition,
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
    ),
    v1.NODE_PID_PRESSURE: (
        nodestatus.pid_pressure_condition,
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
    ),
    v1.NODE_DISK_PRESSURE: (
        nodestatus.disk_pressure_condition,
        ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
    ),
}


@pytest.mark.parametrize("type", PRESSURES)
@pytest.mark.parametrize(
    ("before", "pressure", "changes"),
    [
        pytest.param("", False, True, id="new, no pressure"),
        pytest.param("", True, True, id="new, pressure"),
        pytest.param("True", True, False, id="transition to itself, pressure"),
        pytest.param("True", False, True, id="pressure to no pressure"),
        pytest.param("False", True, True, id="no pressure to pressure"),
        pytest.param("False", False, False, id="transition to itself, no pressure"),
    ],
)
def test_pressure_conditions(type: str, before: str, pressure: bool, changes: bool) -> None:
    new_setter, under, free = PRESSURES[type]
    reason, message, event = under if pressure else free
    old = condition(type, before, reason, message, BEFORE)
    old.last_heartbeat_time = BEFORE
    node, events = v1.Node(status=v1.NodeStatus(conditions=[old] if before else [])), Events()
    new_setter(lambda: NOW, lambda: pressure, events.record)(CTX, node)
    status = "True" if pressure else "False"
    assert node.status.conditions == [condition(type, status, reason, message, NOW_SENT if changes else BEFORE)]
    assert events.seen == ([("Normal", event)] if changes else [])
