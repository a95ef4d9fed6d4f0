"""Every call of a plugin goes wrong in every way, while the kubelet needs it.

Plugins are CSI drivers, DRA drivers and device plugins; how each registers is among their calls.

A case is a method and a kind of fault. The methods come from the descriptions of the APIs, so that a new one cannot be
forgotten: each needs an entry in TRIGGERS or STREAMS, which say what makes the kubelet call it, or in UNUSED.

All cases of one kind share a node. Calls that are about one pod go wrong side by side, each for a pod of its own. Of
calls that are about all that a plugin does, one goes wrong at a time; those of different plugins do so side by side.
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
    # What the kubelet does from time to time it does often.
    "syncFrequency": "2s",
    "nodeStatusUpdateFrequency": "1s",
    "volumeStatsAggPeriod": "1s",
}
# Few, so that the next cases find no device when one is left to a pod that is gone; but the plugin can prefer one.
_DEVICES = 2
# What nearly fills a message of gRPC, and more bytes than one may have.
_MANY_DEVICES = 50_000
_TOO_LARGE = 5 << 20
_PATIENCE = 60.0


class Who(StrEnum):
    """Whose calls go wrong."""

    CSI = "csi"
    DRA = "dra"
    OLD_DRA = "old-dra"  # one that speaks but the older version
    DEVICE = "device"


class StreamKind(StrEnum):
    """How a stream goes wrong."""

    ERROR = "error"
    HANG = "hang"  # never a message
    LATE = "late"
    EMPTY = "empty"
    NONSENSE = "nonsense"
    END = "end"  # at once, as if all were well
    MANY = "many"  # small ones, without an end, each with other devices
    HUGE = "huge"  # as large as they may be, without an end
    TOO_LARGE = "too-large"


_CSI, _DRA, _OLD_DRA, _HEALTH, _DEVICE, _REGISTRATION = (each.full_name for each in SERVICES[1:])


# Methods that the kubelet does not call, as Go's does not: sidecars of CSI drivers do.
UNUSED = frozenset({f"csi.v1.Identity/{name}" for name in ("GetPluginInfo", "GetPluginCapabilities", "Probe")})


class FaultyNode:
    """A kubelet, and two plugins of each kind: one whose calls go wrong, and one that has nothing to do with that."""

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
        """The one whose calls go wrong."""
        plugins = {Who.CSI: self.csi, Who.DRA: self.dra, Who.OLD_DRA: self.old_dra, Who.DEVICE: self.device}
        return plugins[who]

    @property
    def others(self) -> list[FaultyPlugin]:
        """Those with which nothing goes wrong."""
        return [self.other_csi, self.other_dra, self.other_device]

    def create(self, name: str, *plugins: FaultyPlugin) -> None:
        """A pod that needs these plugins."""
        manifest = pod(name, sleeper(), grace=1, schedulerName="nobody", nodeName=None)
        for plugin in plugins:
            plugin.equip(self.node, manifest)
        self.node.create(manifest)
        for plugin in plugins:
            plugin.allocate(self.node, name)
        dra.bind(self.node, name)

    def see_pod_live(self, name: str, *plugins: FaultyPlugin) -> None:
        """A pod that needs these plugins starts and ends, and nothing is left of it."""
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
        """What stays as it is whatever happens to others."""
        held = [sorted(plugin.holds(BYSTANDER)) for plugin in self.others]
        return self.node.container_ids(BYSTANDER), held


@dataclass(frozen=True)
class _Injected:
    """A fault: how many calls it has befallen, and how to take it back."""

    hits: Callable[[], int]
    remove: Callable[[], None]


@dataclass
class Case:
    """A method whose calls go wrong on a node where a bystander runs."""

    on: FaultyNode
    method: str
    who: Who
    kind: Kind | StreamKind
    fault: _Injected | None = None
    # Why the case has failed, if it has.
    failure: str = ""

    def __post_init__(self) -> None:
        # That of the case's pod.
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
        """Let the calls go wrong from now on."""
        self.plugin.interceptor.given_up.pop(self.method, None)
        self.fault = self._add(self.trigger.own)

    def act(self) -> None:
        self.trigger.act(self)

    def wait_until_hit(self) -> None:
        assert self.fault is not None
        wait_for(f"a call of {self.method} goes wrong", self.fault.hits, _PATIENCE, self.node.end_of_log)
        if isinstance(self.kind, Kind) and self.kind in (Kind.HANG, Kind.LATE):
            given_up = self.plugin.interceptor.given_up
            wait_for("the kubelet gives up", lambda: given_up[self.method], _PATIENCE, self.node.end_of_log)

    def end(self) -> None:
        """Let nothing go wrong any more."""
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
        """Whether a call is about the case's pod."""
        names = [each.name for each in getattr(request, "claims", ())]
        return self.name in (getattr(request, "volume_id", "").removesuffix("-disk"), *names)

    def recover(self) -> None:
        """Now that nothing goes wrong, the pod runs and ends as any other."""
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
        """A pod that was refused does not come back: then it is made again, as its controller would, as often as a
        plugin that registers meanwhile is not known yet.
        """
        deadline = time.monotonic() + _PATIENCE
        while self._wait_until_it_runs_or_failed().phase == "Failed":
            assert time.monotonic() < deadline, f"{self.name} is still refused"
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

    # What makes the kubelet call.

    def create(self) -> None:
        self.on.create(self.name, self.plugin)

    def delete(self) -> None:
        self.node.delete(self.name)

    def register_again(self) -> None:
        self.plugin.register_again()

    def register_and_create(self) -> None:
        """The plugin comes anew, and the pod needs it."""
        self.register_again()
        self.create()

    def grow(self) -> None:
        for name in (self.name, f"{self.name}-disk"):
            csi.grow(self.node.cluster, name)

    # What works afterwards.

    def has_grown(self) -> None:
        cluster = self.node.cluster
        names = (self.name, f"{self.name}-disk")
        self.node.wait_for_condition(
            "it has grown", lambda: all(csi.has_grown(cluster, each) for each in names), _PATIENCE
        )

    def health_is_known(self) -> None:
        assert isinstance(self.plugin, DRA)
        self.plugin.tell_health(self.name)

        def healthy(seen: Version) -> bool:
            shown = seen.container().get("allocatedResourcesStatus") or []
            return [each["health"] for status in shown for each in status["resources"]] == ["Healthy"]

        self.node.wait_for_api_pod(self.name, "has a healthy device", healthy, _PATIENCE)


def _nothing(case: Case) -> None:
    """For calls that the kubelet makes all the time, and where nothing is to be done."""


@dataclass(frozen=True)
class Trigger:
    """What makes the kubelet call a method of a plugin, of each of these kinds."""

    who: Sequence[Who]
    act: Callable[[Case], None]
    # The calls that go wrong are those about the case's pod alone; else all.
    own: bool = False
    # The pod runs before the calls go wrong.
    pod_runs: bool = False
    # What the plugin does once nothing goes wrong any more.
    afterwards: Callable[[Case], None] = _nothing
    # What the plugin lied about stays with the pod, as in Go: its controller has to make another one.
    lies_stay: bool = False
    # Waits until the call has done its work.
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
    # What it can do a plugin says but once.
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
    # A plugin that sees its stream end registers again.
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
    """A message of the stream, which says that these devices are healthy."""
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
    """The life of a node in whose course all calls of plugins go wrong in these ways."""

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
        """Raises AssertionError that says why the case has failed."""
        assert not self._cases[key].failure, self._cases[key].failure

    def _run(self, several: Sequence[Case], meanwhile: Callable[[Sequence[Case]], object]) -> None:
        """Let the calls go wrong, and see that the kubelet, the bystander, other pods and the cases' get over it."""
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
            assert self._on.of_bystander() == before, "the bystander was touched"

    def _see_pods_of_same_plugins_live(self, several: Sequence[Case]) -> None:
        for who in sorted({case.who for case in several}):
            self._on.see_pod_live(f"other-{who}", self._on.plugin(who))

    def _see_pod_of_others_live(self, several: Sequence[Case]) -> None:
        self._on.see_pod_live(f"besides-{several[0].name}", *self._on.others)


@contextmanager
def round_of(kinds: Sequence[Kind | StreamKind], folder: Path) -> Iterator[Round]:
    """A cluster and a node that has lived its life."""
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
    """A kubelet with plugins whose calls can go wrong, and a pod that has nothing to do with that."""
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
