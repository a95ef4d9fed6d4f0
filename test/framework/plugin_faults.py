"""Make every call to a plugin fail in every way while the kubelet needs it.

Plugins are CSI drivers, DRA drivers and device plugins. The calls of their registration fail, too.

A case is a method and a kind of fault. The methods come from the descriptions of the APIs, so that no new method can be
forgotten. Each method needs an entry in TRIGGERS or STREAMS, which say what makes the kubelet call it, or in UNUSED.

All cases of one kind share a node. Calls that are about one pod fail at the same time, each for its own pod. Of the
calls that are about a whole plugin, one fails at a time, but those of different plugins fail at the same time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import pytest

from framework import csi, dra
from framework.apiserver.cluster import Cluster
from framework.cluster_node import HastyKubelet, RealKubelet, running
from framework.faults import Kind, add_fault, each, nonsense, noting, side_by_side
from framework.faulty_plugins import CSI, DRA, SERVICES, Device, FaultyPlugin, Stream
from framework.hasty_kubelet import PAUSE
from framework.pod_history import PodHistory, Version
from framework.pods import pod, sleeper
from framework.waiting import wait_for
from kubelet.apis.deviceplugin import v1beta1 as deviceplugin
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.apis.dra_health.v1alpha1 import api_pb2 as drahealth
from kubelet.cri import errors
from pkg import golang

BYSTANDER = "bystander"
NODE = "plugins-node"
CONFIG: Mapping[str, object] = {
    # The kubelet does its periodic work often.
    "syncFrequency": "2s",
    "nodeStatusUpdateFrequency": "1s",
    "volumeStatsAggPeriod": "1s",
}
# The number is small, so that a later case finds no device if a deleted pod still holds one, but large enough for the
# plugin to prefer a device.
_DEVICES = 2
# _MANY_DEVICES nearly fill a gRPC message. _TOO_LARGE is a number of bytes that no message may have.
_MANY_DEVICES = 50_000
_TOO_LARGE = 5 << 20
_PATIENCE = 60.0


class Who(StrEnum):
    """Name the plugins whose calls fail."""

    CSI = "csi"
    DRA = "dra"
    OLD_DRA = "old-dra"  # The driver serves only the older version.
    DEVICE = "device"


class StreamKind(StrEnum):
    """Define how a stream fails."""

    ERROR = "error"
    HANG = "hang"  # The stream sends no message.
    LATE = "late"
    EMPTY = "empty"
    NONSENSE = "nonsense"
    END = "end"  # The stream ends at once, without an error.
    MANY = "many"  # The stream sends small messages without end, each with other devices.
    HUGE = "huge"  # The stream sends messages of the largest permitted size without end.
    TOO_LARGE = "too-large"


_CSI, _DRA, _OLD_DRA, _HEALTH, _DEVICE, _REGISTRATION = (each.full_name for each in SERVICES[1:])


# Neither this kubelet nor the Go kubelet calls these methods. The sidecars of CSI drivers do.
UNUSED = frozenset({f"csi.v1.Identity/{name}" for name in ("GetPluginInfo", "GetPluginCapabilities", "Probe")})


class FaultyNode:
    """Run a kubelet and two plugins of each kind: one whose calls fail, and one whose calls succeed."""

    def __init__(self, node: RealKubelet, folder: Path, stack: ExitStack) -> None:
        self.node = node
        root = node.root_dir
        both = ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
        self.csi = stack.enter_context(CSI(folder, "faulty.csi", root, NODE))
        self.dra = stack.enter_context(DRA(folder, "faulty.dra", root, NODE, both))
        self.old_dra = stack.enter_context(DRA(folder, "old.dra", root, NODE, ["v1beta1.DRAPlugin"]))
        self.device = stack.enter_context(Device("example.com/faulty", root, _DEVICES))
        self.other_csi = stack.enter_context(CSI(folder, "other.csi", root, NODE))
        self.other_dra = stack.enter_context(DRA(folder, "other.dra", root, NODE, both))
        self.other_device = stack.enter_context(Device("example.com/other", root, _DEVICES))

    def plugin(self, who: Who) -> FaultyPlugin:
        """Return the plugin whose calls fail."""
        plugins = {Who.CSI: self.csi, Who.DRA: self.dra, Who.OLD_DRA: self.old_dra, Who.DEVICE: self.device}
        return plugins[who]

    @property
    def others(self) -> list[FaultyPlugin]:
        """Return the plugins whose calls succeed."""
        return [self.other_csi, self.other_dra, self.other_device]

    def create(self, name: str, *plugins: FaultyPlugin) -> None:
        """Create a pod that needs these plugins."""
        manifest = pod(name, sleeper(), grace=1, schedulerName="nobody", nodeName=None)
        for plugin in plugins:
            plugin.equip(self.node, manifest)
        self.node.create(manifest)
        for plugin in plugins:
            plugin.allocate(self.node, name)
        dra.bind(self.node, name)

    def see_pod_live(self, name: str, *plugins: FaultyPlugin) -> None:
        """Check that a pod that needs these plugins starts and ends, and that nothing is left of it."""
        self.create(name, *plugins)
        self.node.wait_for_api_running(name, timeout=_PATIENCE)
        self.node.delete(name)
        self.node.wait_until_gone(name, timeout=_PATIENCE)
        self.wait_until_nothing_is_left(name, *plugins)

    def wait_until_nothing_is_left(self, name: str, *plugins: FaultyPlugin) -> None:
        def left() -> list[str]:
            return [each for plugin in plugins for each in plugin.holds(name)]

        self.node.wait_for_condition(f"nothing is left of {name}", lambda: not left(), _PATIENCE)

    def of_bystander(self) -> object:
        """Return what must not change: the bystander's containers, and what the plugins hold for it."""
        held = [sorted(plugin.holds(BYSTANDER)) for plugin in self.others]
        return self.node.container_ids(BYSTANDER), held


@dataclass(frozen=True)
class _Injected:
    """Describe a fault: how many calls it has hit, and how to remove it."""

    hits: Callable[[], int]
    remove: Callable[[], None]


@dataclass
class Case:
    """Describe a method whose calls fail on a node where a bystander runs."""

    on: FaultyNode
    method: str
    who: Who
    kind: Kind | StreamKind
    fault: _Injected | None = None
    # `failure` says why the case has failed. It is empty if the case has not failed.
    failure: str = ""

    def __post_init__(self) -> None:
        # `name` is the name of the case's pod.
        self.name = f"{self.method.rpartition('/')[2]}-{self.who}-{self.kind}".lower()

    @property
    def node(self) -> RealKubelet:
        return self.on.node

    @property
    def plugin(self) -> FaultyPlugin:
        return self.on.plugin(self.who)

    @property
    def trigger(self) -> Trigger:
        return _triggers(self.kind)[self.method]

    def prepare(self) -> None:
        if self.trigger.pod_runs:
            self.create()
            self.node.wait_for_api_running(self.name, timeout=_PATIENCE)

    def begin(self) -> None:
        """Make the calls fail from now on."""
        self.plugin.interceptor.given_up.pop(self.method, None)
        self.fault = self._add(self.trigger.own)

    def act(self) -> None:
        self.trigger.act(self)

    def wait_until_hit(self) -> None:
        assert self.fault is not None
        wait_for(f"a call of {self.method} fails", self.fault.hits, _PATIENCE, self.node.end_of_log)
        if isinstance(self.kind, Kind) and self.kind in (Kind.HANG, Kind.LATE):
            given_up = self.plugin.interceptor.given_up
            wait_for("the kubelet gives up", lambda: given_up[self.method], _PATIENCE, self.node.end_of_log)

    def end(self) -> None:
        """End the fault."""
        assert self.fault is not None
        self.fault.remove()
        self.trigger.afterwards(self)

    def _add(self, own: bool) -> _Injected:
        interceptor = self.plugin.interceptor
        if isinstance(self.kind, StreamKind):
            stream = interceptor.change_stream(self.method, _STREAMS[self.kind])
            return _Injected(lambda: stream.hits, stream.remove)
        fault = add_fault(interceptor.faults, self.method, self.kind, match=self._is_mine if own else None)
        return _Injected(lambda: fault.hits, lambda: interceptor.faults.remove(fault))

    def _is_mine(self, request: Any) -> bool:
        """Report whether a call is about the case's pod."""
        names = [each.name for each in getattr(request, "claims", ())]
        return self.name in (getattr(request, "volume_id", "").removesuffix("-disk"), *names)

    def recover(self) -> None:
        """Check that the pod runs and ends like any other after the end of the fault."""
        trigger = self.trigger
        latest = self.node.history.latest(self.name)
        if latest is not None and trigger.lies_stay and self.kind in (Kind.EMPTY, Kind.NONSENSE):
            self._replace_pod()
        if latest is not None and not latest.deleted:
            self._wait_until_it_runs()
            trigger.works(self)
            self.node.delete(self.name)
        self.node.wait_until_gone(self.name, timeout=_PATIENCE)
        self.on.wait_until_nothing_is_left(self.name, self.plugin)

    def _wait_until_it_runs(self) -> None:
        """Wait until the pod runs. Create a rejected pod again, as its controller would.

        The kubelet may reject the pod several times as long as it does not know the plugin that registers at the same
        time.
        """
        deadline = time.monotonic() + _PATIENCE
        while self._wait_until_it_runs_or_failed().phase == "Failed":
            assert time.monotonic() < deadline, f"{self.name} is still rejected"
            self._replace_pod()

    def _wait_until_it_runs_or_failed(self) -> Version:
        def ended_or_runs() -> Version | None:
            latest = self.node.history.latest(self.name)
            return latest if latest and (latest.phase == "Failed" or (latest.running and latest.ready)) else None

        found = self.node.wait_for_condition(f"{self.name} runs", ended_or_runs, _PATIENCE)
        assert found is not None
        return found

    def _replace_pod(self) -> None:
        self.node.delete(self.name)
        self.node.wait_until_gone(self.name, timeout=_PATIENCE)
        self.on.wait_until_nothing_is_left(self.name, self.plugin)
        self.name += "-again"
        self.create()

    def create(self) -> None:
        self.on.create(self.name, self.plugin)

    def delete(self) -> None:
        self.node.delete(self.name)

    def register_again(self) -> None:
        self.plugin.register_again()

    def register_and_create(self) -> None:
        """Register the plugin again, and create a pod that needs it."""
        self.register_again()
        self.create()

    def grow(self) -> None:
        for name in (self.name, f"{self.name}-disk"):
            csi.grow(self.node.cluster, name)

    def has_grown(self) -> None:
        cluster = self.node.cluster
        names = (self.name, f"{self.name}-disk")
        self.node.wait_for_condition(
            "the claims have grown", lambda: all(csi.has_grown(cluster, each) for each in names), _PATIENCE
        )

    def health_is_known(self) -> None:
        assert isinstance(self.plugin, DRA)
        self.plugin.tell_health(self.name)

        def healthy(seen: Version) -> bool:
            shown = seen.container().get("allocatedResourcesStatus") or []
            return [each["health"] for status in shown for each in status["resources"]] == ["Healthy"]

        self.node.wait_for_api_pod(self.name, "has a healthy device", healthy, _PATIENCE)


def _nothing(case: Case) -> None:
    """Do nothing: the kubelet makes the call all the time, or the case has nothing to do."""


@dataclass(frozen=True)
class Trigger:
    """Describe what makes the kubelet call a method, and of which plugins."""

    who: Sequence[Who]
    act: Callable[[Case], None]
    # With `own`, only the calls about the case's pod fail. Otherwise all calls fail.
    own: bool = False
    # `pod_runs` says that the pod runs before the calls fail.
    pod_runs: bool = False
    # `afterwards` is what the plugin does after the end of the fault.
    afterwards: Callable[[Case], None] = _nothing
    # With `lies_stay`, the pod keeps a false response of the plugin, as in Go. Its controller has to create another
    # pod.
    lies_stay: bool = False
    # `works` waits until the call has had its effect.
    works: Callable[[Case], None] = _nothing


def _at_start(who: Who, own: bool = True) -> Trigger:
    return Trigger([who], Case.create, own)


def _at_end(who: Who) -> Trigger:
    return Trigger([who], Case.delete, own=True, pod_runs=True)


def _at_registration(*who: Who) -> Trigger:
    return Trigger(who, Case.register_and_create)


TRIGGERS: Mapping[str, Trigger] = {
    f"{_CSI}/NodeStageVolume": _at_start(Who.CSI),
    f"{_CSI}/NodePublishVolume": _at_start(Who.CSI),
    f"{_CSI}/NodeGetCapabilities": Trigger([Who.CSI], Case.create, lies_stay=True),
    f"{_CSI}/NodeUnpublishVolume": _at_end(Who.CSI),
    f"{_CSI}/NodeUnstageVolume": _at_end(Who.CSI),
    f"{_CSI}/NodeGetVolumeStats": Trigger([Who.CSI], _nothing, own=True, pod_runs=True),
    f"{_CSI}/NodeExpandVolume": Trigger([Who.CSI], Case.grow, own=True, pod_runs=True, works=Case.has_grown),
    f"{_CSI}/NodeGetInfo": _at_registration(Who.CSI),
    f"{_DRA}/NodePrepareResources": _at_start(Who.DRA),
    f"{_DRA}/NodeUnprepareResources": _at_end(Who.DRA),
    f"{_OLD_DRA}/NodePrepareResources": _at_start(Who.OLD_DRA),
    f"{_OLD_DRA}/NodeUnprepareResources": _at_end(Who.OLD_DRA),
    # The kubelet asks for the options once for each registration.
    f"{_DEVICE}/GetDevicePluginOptions": Trigger(
        [Who.DEVICE], Case.register_and_create, afterwards=Case.register_again
    ),
    f"{_DEVICE}/GetPreferredAllocation": _at_start(Who.DEVICE, own=False),
    f"{_DEVICE}/Allocate": _at_start(Who.DEVICE, own=False),
    f"{_DEVICE}/PreStartContainer": _at_start(Who.DEVICE, own=False),
    f"{_REGISTRATION}/GetInfo": _at_registration(Who.CSI, Who.DRA, Who.DEVICE),
    f"{_REGISTRATION}/NotifyRegistrationStatus": _at_registration(Who.CSI, Who.DRA, Who.DEVICE),
}
STREAMS: Mapping[str, Trigger] = {
    # A plugin whose stream ends registers again.
    f"{_DEVICE}/ListAndWatch": Trigger([Who.DEVICE], Case.register_and_create, afterwards=Case.register_again),
    f"{_HEALTH}/NodeWatchResources": Trigger([Who.DRA], Case.register_again, pod_runs=True, works=Case.health_is_known),
}


def _fail(stream: Iterator[Any], ctx: golang.Context) -> Iterator[Any]:
    raise errors.RemoteError(grpc.StatusCode.INTERNAL, "a fault of the test")


def _hang(stream: Iterator[Any], ctx: golang.Context) -> Iterator[Any]:
    ctx.done().recv()
    yield from ()


def _late(stream: Iterator[Any], ctx: golang.Context) -> Iterator[Any]:
    ctx.wait(PAUSE)
    yield next(stream)
    ctx.done().recv()


def _empty(stream: Iterator[Any], ctx: golang.Context) -> Iterator[Any]:
    yield type(next(stream))()
    ctx.done().recv()


def _nonsense(stream: Iterator[Any], ctx: golang.Context) -> Iterator[Any]:
    yield nonsense(next(stream))
    ctx.done().recv()


def _end(stream: Iterator[Any], ctx: golang.Context) -> Iterator[Any]:
    yield from ()


def _many(stream: Iterator[Any], ctx: golang.Context) -> Iterator[Any]:
    kind = type(next(stream))
    for number in itertools.count():
        if ctx.err() is not None:
            return
        yield _of_devices(kind, [f"many-{number}"])


def _huge(stream: Iterator[Any], ctx: golang.Context) -> Iterator[Any]:
    kind = type(next(stream))
    for number in itertools.count():
        if ctx.err() is not None:
            return
        yield _of_devices(kind, [f"huge-{number}-{each}" for each in range(_MANY_DEVICES)])


def _too_large(stream: Iterator[Any], ctx: golang.Context) -> Iterator[Any]:
    yield _of_devices(type(next(stream)), ["x" * _TOO_LARGE])
    ctx.done().recv()


def _of_devices(kind: type[Any], names: Sequence[str]) -> Any:
    """Return a message of the stream that reports these devices as healthy."""
    if kind is pluginapi.ListAndWatchResponse:
        return kind(devices=[pluginapi.Device(ID=name, health=deviceplugin.HEALTHY) for name in names])
    devices = [drahealth.DeviceIdentifier(pool_name=NODE, device_name=name) for name in names]
    return kind(devices=[drahealth.DeviceHealth(device=each, health=drahealth.HEALTHY) for each in devices])


_STREAMS: Mapping[StreamKind, Stream] = {
    StreamKind.ERROR: _fail,
    StreamKind.HANG: _hang,
    StreamKind.LATE: _late,
    StreamKind.EMPTY: _empty,
    StreamKind.NONSENSE: _nonsense,
    StreamKind.END: _end,
    StreamKind.MANY: _many,
    StreamKind.HUGE: _huge,
    StreamKind.TOO_LARGE: _too_large,
}


Key: TypeAlias = tuple[str, Who, Kind | StreamKind]


def _triggers(kind: Kind | StreamKind) -> Mapping[str, Trigger]:
    return STREAMS if isinstance(kind, StreamKind) else TRIGGERS


def _keys(kinds: Sequence[Kind | StreamKind]) -> list[Key]:
    return [(method, who, kind) for kind in kinds for method, trigger in _triggers(kind).items() for who in trigger.who]


def cases(kinds: Sequence[Kind | StreamKind]) -> pytest.MarkDecorator:
    """Parametrize a test with all cases of these kinds."""
    found = [
        pytest.param(method, who, kind, id=f"{method.replace('/', '.')}-{who}-{kind}")
        for method, who, kind in _keys(kinds)
    ]
    return pytest.mark.parametrize(("method", "who", "kind"), found)


class Round:
    """Run a node on which all calls to plugins fail in the given ways, one group of cases after the other."""

    def __init__(self, on: FaultyNode, kinds: Sequence[Kind | StreamKind]) -> None:
        self._on = on
        self._cases = {key: Case(on, *key) for key in _keys(kinds)}

    def run(self) -> None:
        own = [case for case in self._cases.values() if case.trigger.own]
        if own:
            self._run(own, self._see_pods_of_same_plugins_live)
        of_plugins = [
            [case for case in self._cases.values() if case.who is who and not case.trigger.own] for who in Who
        ]
        for several in itertools.zip_longest(*of_plugins):
            self._run([case for case in several if case is not None], self._see_pod_of_others_live)

    def check(self, *key: Any) -> None:
        """Raise AssertionError with the reason if the case has failed."""
        assert not self._cases[key].failure, self._cases[key].failure

    def _run(self, several: Sequence[Case], meanwhile: Callable[[Sequence[Case]], object]) -> None:
        """Make the calls fail, and check that the kubelet, the bystander, other pods and the cases' pods recover."""
        before = self._on.of_bystander()
        side_by_side(several, Case.prepare)
        each(several, Case.begin)
        each(several, Case.act)
        with noting(*several):
            meanwhile(several)
        each(several, Case.wait_until_hit)
        each(several, Case.end)
        with noting(*several):
            assert self._on.node.alive, "the kubelet has ended"
            self._on.node.wait_until_ready()
        side_by_side(several, Case.recover)
        with noting(*several):
            assert self._on.of_bystander() == before, "the fault affected the bystander"

    def _see_pods_of_same_plugins_live(self, several: Sequence[Case]) -> None:
        for who in sorted({case.who for case in several}):
            self._on.see_pod_live(f"other-{who}", self._on.plugin(who))

    def _see_pod_of_others_live(self, several: Sequence[Case]) -> None:
        self._on.see_pod_live(f"besides-{several[0].name}", *self._on.others)


@contextmanager
def round_of(kinds: Sequence[Kind | StreamKind], folder: Path) -> Iterator[Round]:
    """Run a cluster and a node, and yield the node's round when it is over."""
    with Cluster(folder / "cluster") as cluster:
        history = PodHistory(cluster.store)
        try:
            with _node_with_bystander(folder, cluster, history) as on:
                life = Round(on, kinds)
                life.run()
                yield life
        finally:
            history.stop()


@contextmanager
def _node_with_bystander(folder: Path, cluster: Cluster, history: PodHistory) -> Iterator[FaultyNode]:
    """Run a kubelet with plugins whose calls can fail, and a bystander pod that uses only the other plugins."""
    kubelet = HastyKubelet(folder / "k", NODE, cluster, history, CONFIG)
    with running(kubelet) as node, ExitStack() as stack:
        on = FaultyNode(node, folder, stack)
        csi.put_growing_class(cluster, on.csi.name)
        for driver in (on.csi, on.other_csi):
            spec = {"attachRequired": False, "fsGroupPolicy": "None"}
            cluster.store.create("csidrivers", {"metadata": {"name": driver.name}, "spec": spec})
        node.runtime.write_logs = True
        node.join()
        on.create(BYSTANDER, *on.others)
        node.wait_for_api_running(BYSTANDER)
        yield on
