"""Build kubelets on fakes, and provide fakes of the pod workers and of what they and the sync loop call.

Go: pkg/kubelet/kubelet_test.go (newTestKubelet), pkg/kubelet/pod_workers_test.go (fakePodWorkers)
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

from kubelet import cadvisor, cm, config, kubelet_build, kubelet_dependencies, lifecycle, status
from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.apis import config as kubeletconfig
from kubelet.apis.config import scheme, v1beta1
from kubelet.config.testing import FakePodStartupSLIObserver
from kubelet.container import testing as containertesting
from kubelet.cri import testing as critesting
from kubelet.kubelet_pods import PodsOnNode
from kubelet.observer import Observers
from kubelet.pod_workers import (
    PodStatusFunc,
    PodWorkers,
    PodWorkerSnapshot,
    PodWorkerSync,
    PostSyncFunc,
    SyncPodResult,
    UpdatePodOptions,
)
from kubelet.volumemanager import VolumeManager
from kubelet.volumemanager.testing import FakeVolumeManager
from pkg import golang, volume
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.mount_utils.testing import FakeMounter
from pkg.volume.util.hostutil.testing import FakeHostUtil
from pkg.volume.util.subpath.testing import FakeSubpather


class FakePodWorkers:
    """Record updates; answer queries about pods from sets of UIDs."""

    def __init__(self) -> None:
        self.updates: list[UpdatePodOptions] = []
        self.snapshots: dict[str, PodWorkerSnapshot] = {}
        self.known: dict[types.UID, PodWorkerSync] = {}
        self.synced = False
        self.unknown: set[str] = set()
        self.terminating: set[str] = set()
        self.terminated: set[str] = set()
        self.running: set[str] = set()
        self.finished: set[str] = set()
        self.content_removable: set[str] = set()
        self.terminating_static: set[str] = set()

    def update_pod(self, ctx: golang.Context, options: UpdatePodOptions) -> None:
        self.updates.append(options)

    def update_types(self) -> list[tuple[str, str]]:
        """Return the type and the pod's name of each update; the UID for a pod that only the runtime knows."""
        found = []
        for update in self.updates:
            assert update.pod is not None or update.running_pod is not None
            name = update.pod.metadata.name if update.pod is not None else cast(Any, update.running_pod).id
            found.append((update.update_type.name, name))
        return found

    def sync_known_pods(self, desired_pods: Iterable[v1.Pod]) -> dict[types.UID, PodWorkerSync]:
        return dict(self.known)

    def mark_pods_synced(self) -> None:
        self.synced = True

    def begun_pods(self) -> set[str]:
        return set(self.known)

    def snapshot(self) -> dict[str, PodWorkerSnapshot]:
        return dict(self.snapshots)

    def is_pod_known(self, uid: types.UID) -> bool:
        return uid not in self.unknown

    def has_worker(self, uid: types.UID) -> bool:
        return uid not in self.unknown

    def is_pod_known_terminated(self, uid: types.UID) -> bool:
        return uid in self.terminated

    def could_have_running_containers(self, uid: types.UID) -> bool:
        return uid in self.running

    def should_pod_be_finished(self, uid: types.UID) -> bool:
        return uid in self.finished

    def is_pod_termination_requested(self, uid: types.UID) -> bool:
        return uid in self.terminating

    def should_pod_containers_be_terminating(self, uid: types.UID) -> bool:
        return uid in self.terminating

    def should_pod_runtime_be_removed(self, uid: types.UID) -> bool:
        return uid in self.terminated

    def should_pod_content_be_removed(self, uid: types.UID) -> bool:
        return uid in self.content_removable

    def is_pod_for_mirror_pod_terminating_by_full_name(self, pod_full_name: str) -> bool:
        return pod_full_name in self.terminating_static


class FakePLEG:
    """Send only the test's events; record the requested relists and inspections."""

    def __init__(self) -> None:
        self.channel: golang.Channel[Any] = golang.Channel(100)
        self.relists: list[str] = []
        self.reinspections: list[str] = []

    def start(self, ctx: golang.Context) -> None: ...

    def watch(self) -> golang.Channel[Any]:
        return self.channel

    def healthy(self) -> None: ...

    def request_relist(self, pod_uid: types.UID) -> None:
        self.relists.append(pod_uid)

    def request_reinspect(self, pod_uid: types.UID) -> None:
        self.reinspections.append(pod_uid)


@dataclass(frozen=True)
class SyncRecord:
    """Describe a call of the pod syncer."""

    step: str
    name: str
    update_type: kubetypes.SyncPodType | None = None
    grace_period: int | None = None


class FakePodSyncer:
    """Record the calls by UID; in each step, call the step's hook."""

    def __init__(self) -> None:
        self.processed: dict[str, list[SyncRecord]] = defaultdict(list)
        self.on_sync: Callable[[golang.Context, v1.Pod], bool] = lambda ctx, pod: False
        self.on_terminating: Callable[[golang.Context, v1.Pod, PodStatusFunc | None], None] = lambda ctx, pod, fn: None
        self.on_terminating_runtime: Callable[[kubecontainer.Pod], None] = lambda pod: None
        self.on_terminated: Callable[[golang.Context, v1.Pod], None] = lambda ctx, pod: None
        self.post_sync: PostSyncFunc | None = None

    def sync_pod(
        self,
        ctx: golang.Context,
        update_type: kubetypes.SyncPodType,
        pod: v1.Pod,
        mirror_pod: v1.Pod | None,
        pod_status: kubecontainer.PodStatus,
    ) -> SyncPodResult:
        self.processed[pod.metadata.uid].append(SyncRecord("sync", pod.metadata.name, update_type))
        return SyncPodResult(self.on_sync(ctx, pod), self.post_sync)

    def sync_terminating_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        grace_period: int | None,
        pod_status_fn: PodStatusFunc | None,
    ) -> None:
        self.processed[pod.metadata.uid].append(SyncRecord("terminating", pod.metadata.name, grace_period=grace_period))
        self.on_terminating(ctx, pod, pod_status_fn)

    def sync_terminating_runtime_pod(self, ctx: golang.Context, running_pod: kubecontainer.Pod) -> None:
        self.processed[running_pod.id].append(SyncRecord("terminating runtime", running_pod.name))
        self.on_terminating_runtime(running_pod)

    def sync_terminated_pod(self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> None:
        self.processed[pod.metadata.uid].append(SyncRecord("terminated", pod.metadata.name))
        self.on_terminated(ctx, pod)


class FakeSyncHandler:
    """Record the calls of the sync loop; `err` is the error that housekeeping raises."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.err: Exception | None = None

    def handle_pod_additions(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        self._note("additions", pods)

    def handle_pod_updates(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        self._note("updates", pods)

    def handle_pod_removes(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        self._note("removes", pods)

    def handle_pod_reconcile(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        self._note("reconcile", pods)

    def handle_pod_syncs(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        self._note("syncs", pods)

    def handle_pod_cleanups(self, ctx: golang.Context, found: PodsOnNode) -> None:
        self._note("cleanups", [])
        if self.err is not None:
            raise self.err

    def _note(self, what: str, pods: list[v1.Pod]) -> None:
        self.calls.append((what, [pod.metadata.name for pod in pods]))


class TestKubelet:
    """Run the real kubelet below `root`, on a fake runtime, clock and pod workers; `close` it after use."""

    __test__ = False

    def __init__(
        self, root: Path, plugins: list[volume.VolumePlugin] | None = None, observers: Observers | None = None
    ) -> None:
        self.ctx, self._cancel = golang.with_cancel(golang.background())
        self.clock = FakeClock()
        self.recorder = FakeRecorder(1000)
        self.runtime = containertesting.FakeRuntime()
        self.workers = FakePodWorkers()
        self.pleg = FakePLEG()
        self.volumes = FakeVolumeManager()
        self.mounter = FakeMounter()
        root.joinpath("pods").mkdir(parents=True, exist_ok=True)
        document: scheme.Document = {}
        v1beta1.set_defaults_kubelet_configuration(document)
        kube_cfg = scheme.to_internal(document)
        kube_cfg.pod_logs_dir = str(root / "logs")
        kube_cfg.sync_frequency = 60.0
        kube_cfg.cluster_domain = "cluster.test"
        dependencies = kubelet_dependencies.Dependencies(
            recorder=self.recorder,
            remote_runtime_service=critesting.FakeRuntimeService(),
            remote_image_service=critesting.FakeImageService(),
            container_manager=cm.ContainerManagerStub(),
            cadvisor_interface=cadvisor.Cadvisor(),
            os_interface=containertesting.FakeOS(),
            mounter=self.mounter,
            hostutil=FakeHostUtil(),
            subpather=FakeSubpather(),
            volume_plugins=plugins or [],
            pod_config=config.PodConfig(
                config.POD_CONFIG_NOTIFICATION_INCREMENTAL, self.recorder, FakePodStartupSLIObserver()
            ),
            clock=self.clock,
            observers=observers or Observers(),
        )
        options = kubelet_build.KubeletOptions(
            hostname="127.0.0.1", node_name="node", node_ips=[ip_address("127.0.0.1")], root_directory=str(root)
        )
        self.builder = _FakesBuilder(self, kube_cfg, dependencies, options)
        self.kubelet = self.builder.build()
        self.kubelet.runtime_state.set_network_state(None)
        # The fake PLEG inspects no pod, so mark the cache as filled.
        self.kubelet.pod_cache.update_time(datetime.datetime(1, 1, 2, tzinfo=datetime.UTC), ())
        # The tests' node has an address of the loopback interface.
        self.kubelet.node_ip_validator = lambda ip: None

    @property
    def admit_handlers(self) -> list[lifecycle.PodAdmitHandler]:
        """Return the kubelet's admit handlers; the test kubelet itself admits every pod."""
        return self.builder.admit_handlers

    def close(self) -> None:
        self.kubelet.probe_manager.stop_all()
        self._cancel()

    def housekeep(self) -> None:
        """Run one housekeeping, as the sync loop does."""
        self.kubelet.handle_pod_cleanups(self.ctx, self.kubelet.find_pods_on_node(self.ctx))

    @property
    def status_manager(self) -> status.Manager:
        return self.kubelet.status_manager

    def events(self) -> list[str]:
        return self.recorder.drain()

    def status_of(self, uid: types.UID) -> v1.PodStatus:
        """Return the status of a pod, which must exist."""
        status = self.status_manager.get_pod_status(uid)
        assert status is not None
        return status


class _FakesBuilder(kubelet_build.PartsBuilder):
    """Build a kubelet with the fakes of a TestKubelet."""

    def __init__(
        self,
        test: TestKubelet,
        kube_cfg: kubeletconfig.KubeletConfiguration,
        kube_deps: kubelet_dependencies.Dependencies,
        options: kubelet_build.KubeletOptions,
    ) -> None:
        super().__init__(test.ctx, kube_cfg, kube_deps, options)
        self._test = test
        self.admit_handlers: list[lifecycle.PodAdmitHandler] = []

    def new_workers(self, pods: kubelet_build.PodState) -> kubelet_build.Workers:
        return replace(super().new_workers(pods), pod_workers=cast(PodWorkers, self._test.workers))

    def new_runtime(self, *args: Any) -> kubelet_build.RuntimeParts:
        runtime_cache = containertesting.FakeRuntimeCache(self._test.runtime)
        return replace(super().new_runtime(*args), container_runtime=self._test.runtime, runtime_cache=runtime_cache)

    def new_pleg(self, *args: Any) -> kubelet_build.EventGenerators:
        return kubelet_build.EventGenerators(pleg=self._test.pleg)

    def new_volume_manager(self, *args: Any) -> VolumeManager:
        return cast(VolumeManager, self._test.volumes)

    def new_admit_handlers(self, *args: Any) -> list[lifecycle.PodAdmitHandler]:
        self.admit_handlers = super().new_admit_handlers(*args)
        return []


def new_pod(name: str, uid: str = "", **spec: Any) -> v1.Pod:
    """Return an API pod with one container, unless `spec` has others."""
    spec.setdefault("containers", [v1.Container(name="c", image="i")])
    spec.setdefault("enable_service_links", True)
    metadata = metav1.ObjectMeta(name=name, namespace="ns", uid=types.UID(uid or f"uid-{name}"))
    return v1.Pod(metadata=metadata, spec=v1.PodSpec(**spec))


def runtime_pod(pod: v1.Pod, *containers: kubecontainer.Container) -> containertesting.FakePod:
    """Return the same pod as the fake runtime lists it."""
    meta = pod.metadata
    found = kubecontainer.Pod(id=meta.uid, name=meta.name, namespace=meta.namespace, containers=list(containers))
    return containertesting.FakePod(found)
