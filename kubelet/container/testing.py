"""Define fakes of the container package.

Go: pkg/kubelet/container/testing
"""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.apis.stats import v1alpha1 as statsapi
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types

if TYPE_CHECKING:
    from pkg import credentialprovider
    from pkg.client_go.util import flowcontrol

FAKE_HOST = "localhost:12345"


@dataclass(slots=True)
class FakePod:
    """Hold a pod of the fake runtime."""

    pod: kubecontainer.Pod
    netns_path: str = ""


@dataclass(slots=True)
class FakeVersion:
    version: str

    def __str__(self) -> str:
        return self.version

    def compare(self, other: str) -> int:
        return (self.version > other) - (self.version < other)


@dataclass
class FakeRuntime:
    """Record the names of the called functions, return the values of the fields, and raise `err` if it is set."""

    called_functions: list[str] = field(default_factory=list)
    pod_list: list[FakePod] = field(default_factory=list)
    all_pod_list: list[FakePod] = field(default_factory=list)
    image_list: list[kubecontainer.Image] = field(default_factory=list)
    image_fs_stats: list[runtimeapi.FilesystemUsage] = field(default_factory=list)
    container_fs_stats: list[runtimeapi.FilesystemUsage] = field(default_factory=list)
    pod_status: kubecontainer.PodStatus = field(default_factory=kubecontainer.PodStatus)
    started_pods: list[str] = field(default_factory=list)
    killed_pods: list[str] = field(default_factory=list)
    started_containers: list[str] = field(default_factory=list)
    killed_containers: list[str] = field(default_factory=list)
    runtime_status: kubecontainer.RuntimeStatus = field(default_factory=kubecontainer.RuntimeStatus)
    version_info: str = ""
    api_version_info: str = ""
    runtime_type: str = ""
    pod_resize_in_progress: bool = False
    sync_results: kubecontainer.PodSyncResult | None = None
    err: Exception | None = None
    inspect_err: Exception | None = None
    status_err: Exception | None = None
    # While `block_image_pulls` is True, pull_image waits for unblock_image_pulls or send_image_pull_error.
    block_image_pulls: bool = False
    swap_behavior: dict[str, kubetypes.SwapBehavior] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _image_pull_tokens: golang.Channel[Exception | None] = field(default_factory=lambda: golang.Channel(1))

    def _call(self, name: str, err: Exception | None = None) -> None:
        with self._lock:
            self.called_functions.append(name)
        if err is not None or self.err is not None:
            raise err or self.err or AssertionError

    def assert_calls(self, calls: Sequence[str]) -> None:
        with self._lock:
            assert self.called_functions == list(calls), f"calls: {self.called_functions}"

    def assert_call_counts(self, func_name: str, expected_count: int) -> None:
        with self._lock:
            count = self.called_functions.count(func_name)
        assert count == expected_count, f"{func_name} was called {count} times, expected {expected_count}"

    def assert_started_pods(self, pods: Sequence[str]) -> None:
        assert self.started_pods == list(pods)

    def assert_killed_pods(self, pods: Sequence[str]) -> None:
        assert self.killed_pods == list(pods)

    def assert_started_containers(self, containers: Sequence[str]) -> None:
        assert self.started_containers == list(containers)

    def assert_killed_containers(self, containers: Sequence[str]) -> None:
        assert self.killed_containers == list(containers)

    def type(self) -> str:
        return self.runtime_type

    def version(self, ctx: golang.Context) -> FakeVersion:
        self._call("version")
        return FakeVersion(self.version_info)

    def api_version(self) -> FakeVersion:
        self._call("api_version")
        return FakeVersion(self.api_version_info)

    def status(self, ctx: golang.Context) -> kubecontainer.RuntimeStatus:
        with self._lock:
            self.called_functions.append("status")
        if self.status_err is not None:
            raise self.status_err
        return self.runtime_status

    def get_pods(self, ctx: golang.Context, all: bool) -> list[kubecontainer.Pod]:
        self._call("get_pods")
        with self._lock:
            return [fake.pod for fake in (self.all_pod_list if all else self.pod_list)]

    def get_pod(self, ctx: golang.Context, pod_uid: types.UID) -> kubecontainer.Pod:
        if self.err is not None:
            raise self.err
        with self._lock:
            for fake in [*self.pod_list, *self.all_pod_list]:
                if fake.pod.id == pod_uid:
                    return fake.pod
        raise kubecontainer.ErrPodNotFound

    def garbage_collect(
        self,
        ctx: golang.Context,
        gc_policy: kubecontainer.GCPolicy,
        all_sources_ready: bool,
        evict_non_deleted_pods: bool,
    ) -> None:
        self._call("garbage_collect")

    def sync_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: kubecontainer.PodStatus,
        pull_secrets: Sequence[v1.Secret],
        back_off: flowcontrol.Backoff,
        restart_all_containers: bool,
    ) -> kubecontainer.PodSyncResult:
        with self._lock:
            self.called_functions.append("sync_pod")
            self.started_pods.append(pod.metadata.uid)
            self.started_containers.extend(c.name for c in pod.spec.containers)
        result = self.sync_results or kubecontainer.PodSyncResult()
        if self.sync_results is None and self.err is not None:
            result.fail(self.err)
        return result

    def kill_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod | None,
        running_pod: kubecontainer.Pod,
        grace_period_override: int | None,
    ) -> None:
        with self._lock:
            self.killed_pods.append(running_pod.id)
            self.killed_containers.extend(c.name for c in running_pod.containers)
        self._call("kill_pod")

    def get_pod_status(self, ctx: golang.Context, pod: kubecontainer.Pod) -> kubecontainer.PodStatus:
        self._call("get_pod_status")
        return self.pod_status

    def get_container_logs(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container_id: kubecontainer.ContainerID,
        log_options: Any,
        stdout: kubecontainer.BinaryWriter | None,
        stderr: kubecontainer.BinaryWriter | None,
    ) -> None:
        self._call("get_container_logs")

    def delete_container(self, ctx: golang.Context, container_id: kubecontainer.ContainerID) -> None:
        self._call("delete_container")

    def pull_image(
        self,
        ctx: golang.Context,
        image: kubecontainer.ImageSpec,
        credentials: Sequence[credentialprovider.TrackedAuthConfig],
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
    ) -> tuple[str, credentialprovider.TrackedAuthConfig | None]:
        with self._lock:
            self.called_functions.append("pull_image")
        if self.block_image_pulls:
            selected = golang.select(ctx.done(), self._image_pull_tokens)
            if selected.value is not None:
                raise selected.value
        if self.err is not None:
            raise self.err
        with self._lock:
            self.image_list.append(kubecontainer.Image(id=image.image, spec=image))
        return image.image, credentials[0] if credentials else None

    def unblock_image_pulls(self, count: int) -> None:
        """Let up to `count` blocked pulls continue."""
        for _ in range(count):
            self._image_pull_tokens.try_send(None)

    def send_image_pull_error(self, err: Exception) -> None:
        """Make one blocked pull fail."""
        self._image_pull_tokens.try_send(err)

    def get_image_ref(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> str:
        with self._lock:
            self.called_functions.append("get_image_ref")
            found = [i.id for i in self.image_list if i.id == image.image]
        if not found and self.inspect_err is not None:
            raise self.inspect_err
        return found[0] if found else ""

    def get_image_size(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> int:
        self._call("get_image_size")
        return 0

    def list_images(self, ctx: golang.Context) -> list[kubecontainer.Image]:
        self._call("list_images")
        with self._lock:
            return list(self.image_list)

    def remove_image(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> None:
        with self._lock:
            self.image_list = [i for i in self.image_list if i.id != image.image]
        self._call("remove_image")

    def image_stats(self, ctx: golang.Context) -> kubecontainer.ImageStats:
        self._call("image_stats")
        return kubecontainer.ImageStats()

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        self._call("image_fs_info")
        return runtimeapi.ImageFsInfoResponse(
            image_filesystems=self.image_fs_stats, container_filesystems=self.container_fs_stats
        )

    def update_pod_cidr(self, ctx: golang.Context, pod_cidr: str) -> None:
        pass

    def checkpoint_container(self, ctx: golang.Context, options: runtimeapi.CheckpointContainerRequest) -> None:
        self._call("checkpoint_container")

    def generate_pod_status(self, event: runtimeapi.ContainerEventResponse) -> kubecontainer.PodStatus:
        with self._lock:
            self.called_functions.append("generate_pod_status")
        return self.pod_status

    def list_metric_descriptors(self, ctx: golang.Context) -> list[runtimeapi.MetricDescriptor]:
        self._call("list_metric_descriptors")
        return []

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> list[runtimeapi.PodSandboxMetrics]:
        self._call("list_pod_sandbox_metrics")
        return []

    def get_container_status(
        self, ctx: golang.Context, pod_uid: types.UID, id: kubecontainer.ContainerID
    ) -> kubecontainer.Status:
        self._call("get_container_status")
        return kubecontainer.Status()

    def get_container_swap_behavior(self, pod: v1.Pod, container: v1.Container) -> kubetypes.SwapBehavior:
        return self.swap_behavior.get(container.name, kubetypes.NO_SWAP)

    def is_pod_resize_in_progress(self, allocated_pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> bool:
        return self.pod_resize_in_progress

    def update_actuated_pod_level_resources(self, actuated_pod: v1.Pod) -> None:
        pass


class FakeStreamingRuntime(FakeRuntime):
    """Fake a runtime that serves streams at a made-up address."""

    def get_exec(
        self,
        ctx: golang.Context,
        id: kubecontainer.ContainerID,
        cmd: Sequence[str],
        stdin: bool,
        stdout: bool,
        stderr: bool,
        tty: bool,
    ) -> str:
        self._call("get_exec")
        return f"//{FAKE_HOST}"

    def get_attach(
        self,
        ctx: golang.Context,
        id: kubecontainer.ContainerID,
        stdin: bool,
        stdout: bool,
        stderr: bool,
        tty: bool,
    ) -> str:
        self._call("get_attach")
        return f"//{FAKE_HOST}"

    def get_port_forward(
        self, ctx: golang.Context, pod_name: str, pod_namespace: str, pod_uid: types.UID, ports: Sequence[int]
    ) -> str:
        self._call("get_port_forward")
        return f"//{FAKE_HOST}"


@dataclass
class FakeContainerCommandRunner:
    """Respond to each command with the same output or error, and keep the last command."""

    stdout: bytes = b""
    err: Exception | None = None
    container_id: kubecontainer.ContainerID = kubecontainer.ContainerID()  # noqa: RUF009
    cmd: list[str] = field(default_factory=list)

    def run_in_container(
        self, ctx: golang.Context, id: kubecontainer.ContainerID, cmd: Sequence[str], timeout: float
    ) -> bytes:
        self.container_id, self.cmd = id, list(cmd)
        if self.err is not None:
            raise self.err
        return self.stdout


class FakeRuntimeCache:
    """Fake a runtime cache that calls the runtime each time."""

    def __init__(self, getter: kubecontainer.PodsGetter) -> None:
        self._getter = getter

    def get_pods(self, ctx: golang.Context) -> list[kubecontainer.Pod]:
        return self._getter.get_pods(ctx, False)

    def force_update_if_older(
        self, ctx: golang.Context, min_expected_cache_time: datetime.datetime
    ) -> list[kubecontainer.Pod]:
        return self.get_pods(ctx)


class FakeCache:
    """Fake a pod cache that calls the runtime each time."""

    def __init__(self, runtime: kubecontainer.Runtime) -> None:
        self._runtime = runtime

    def get(self, id: types.UID) -> kubecontainer.PodStatus:
        ctx = golang.background()
        try:
            pod = self._runtime.get_pod(ctx, id)
        except Exception:  # The status call below reports the same error.
            pod = kubecontainer.Pod(id=id)
        return self._runtime.get_pod_status(ctx, pod)

    def get_newer_than(
        self, id: types.UID, min_time: datetime.datetime | None, ctx: golang.Context | None = None
    ) -> kubecontainer.PodStatus:
        return self.get(id)

    def set(
        self,
        id: str,
        status: kubecontainer.PodStatus | None,
        err: Exception | None,
        timestamp: datetime.datetime,
    ) -> bool:
        return True

    def set_observed_time(self, id: str, timestamp: datetime.datetime) -> None:
        pass

    def delete(self, id: str) -> None:
        pass

    def is_filled(self) -> bool:
        return True

    def update_time(self, timestamp: datetime.datetime, held: Collection[str] | None = None) -> None:
        pass


@dataclass
class FakeRuntimeHelper:
    """Fake the kubelet for a runtime manager: return the values of the fields, and raise `err` if it is set."""

    dns_servers: list[str] = field(default_factory=list)
    dns_searches: list[str] = field(default_factory=list)
    dns_options: list[str] = field(default_factory=list)
    host_name: str = ""
    host_domain: str = ""
    pod_container_dir: str = ""
    runtime_handlers: dict[str, kubecontainer.RuntimeHandler] = field(default_factory=dict)
    err: Exception | None = None
    # The keys are UIDs of pods.
    pod_stats: dict[str, statsapi.PodStats] = field(default_factory=dict)
    relisted: list[str] = field(default_factory=list)
    reinspected: list[str] = field(default_factory=list)

    def _raise(self) -> None:
        if self.err is not None:
            raise self.err

    def generate_run_container_options(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container: v1.Container,
        pod_ip: str,
        pod_ips: Sequence[str],
        image_volumes: kubecontainer.ImageVolumes,
    ) -> tuple[kubecontainer.RunContainerOptions, Callable[[], None] | None]:
        directory = self.pod_container_dir if container.termination_message_path else ""
        return kubecontainer.RunContainerOptions(pod_container_dir=directory), None

    def get_pod_dns(self, ctx: golang.Context, pod: v1.Pod) -> runtimeapi.DNSConfig:
        self._raise()
        return runtimeapi.DNSConfig(servers=self.dns_servers, searches=self.dns_searches, options=self.dns_options)

    def get_pod_cgroup_parent(self, pod: v1.Pod) -> str:
        return ""

    def get_pod_dir(self, pod_uid: types.UID) -> str:
        return f"/poddir/{pod_uid}"

    def generate_pod_host_name_and_domain(self, pod: v1.Pod) -> tuple[str, str]:
        self._raise()
        return self.host_name, self.host_domain

    def get_extra_supplemental_groups_for_pod(self, pod: v1.Pod) -> list[int]:
        return []

    def get_or_create_user_namespace_mappings(
        self, pod: v1.Pod, runtime_handler: str
    ) -> runtimeapi.UserNamespace | None:
        if pod.spec.host_users in (None, True):
            return None
        handler = self.runtime_handlers.get(runtime_handler)
        if handler is None:
            raise ValueError(f'RuntimeClass handler "{runtime_handler}" not found')
        if not handler.supports_user_namespaces:
            raise ValueError(f'RuntimeClass handler "{runtime_handler}" does not support user namespaces')
        ids = [runtimeapi.IDMapping(host_id=65536, container_id=0, length=65536)]
        return runtimeapi.UserNamespace(mode=runtimeapi.POD, uids=ids, gids=ids)

    def prepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        pass

    def unprepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None:
        pass

    def request_pod_reinspect(self, pod_uid: types.UID) -> None:
        self.reinspected.append(pod_uid)

    def request_pod_relist(self, pod_uid: types.UID) -> None:
        self.relisted.append(pod_uid)

    def pod_cpu_and_memory_stats(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> statsapi.PodStats:
        if pod.metadata.uid not in self.pod_stats:
            raise LookupError(f'stats for pod "{pod.metadata.uid}" not found')
        return self.pod_stats[pod.metadata.uid]

    def on_pod_sandbox_ready(self, ctx: golang.Context, pod: v1.Pod) -> None:
        pass


@dataclass
class FakeOS:
    """Fake an operating system that records calls; a call has an effect only if its function is set."""

    stat_fn: Callable[[str], os.stat_result] | None = None
    read_dir_fn: Callable[[str], list[os.DirEntry[str]]] | None = None
    mkdir_all_fn: Callable[[str, int], None] | None = None
    symlink_fn: Callable[[str, str], None] | None = None
    glob_fn: Callable[[str, str], bool] | None = None
    host_name: str = ""
    removes: list[str] = field(default_factory=list)
    files: dict[str, list[Any]] = field(default_factory=dict)
    symlinks: list[tuple[str, str]] = field(default_factory=list)
    renames: list[tuple[str, str]] = field(default_factory=list)

    def mkdir_all(self, path: str, perm: int) -> None:
        if self.mkdir_all_fn is not None:
            self.mkdir_all_fn(path, perm)

    def symlink(self, oldname: str, newname: str) -> None:
        self.symlinks.append((oldname, newname))
        if self.symlink_fn is not None:
            self.symlink_fn(oldname, newname)

    def stat(self, path: str) -> os.stat_result:
        if self.stat_fn is None:
            raise OSError("unimplemented testing mock")
        return self.stat_fn(path)

    def remove(self, path: str) -> None:
        self.removes.append(path)

    def remove_all(self, path: str) -> None:
        self.removes.append(path)

    def create(self, path: str) -> IO[bytes]:
        self.files[path] = []
        return Path(os.devnull).open("r+b")

    def chmod(self, path: str, perm: int) -> None:
        pass

    def hostname(self) -> str:
        return self.host_name

    def chtimes(self, path: str, atime: float, mtime: float) -> None:
        pass

    def pipe(self) -> tuple[IO[bytes], IO[bytes]]:
        return Path(os.devnull).open("rb"), Path(os.devnull).open("wb")

    def read_dir(self, dirname: str) -> list[os.DirEntry[str]]:
        return self.read_dir_fn(dirname) if self.read_dir_fn is not None else []

    def glob(self, pattern: str) -> list[str]:
        """Return the created files for which glob_fn(pattern, path) is true."""
        matches = self.glob_fn
        return [path for path in self.files if matches(pattern, path)] if matches is not None else []

    def open(self, name: str) -> IO[bytes]:
        return Path(os.devnull).open("rb")

    def open_file(self, name: str, flag: int, perm: int) -> IO[bytes]:
        return Path(os.devnull).open("r+b")

    def rename(self, oldpath: str, newpath: str) -> None:
        self.renames.append((oldpath, newpath))


@dataclass
class FakeOneStatusCache:
    """Return the same status for every pod."""

    status: kubecontainer.PodStatus = field(default_factory=kubecontainer.PodStatus)
    err: Exception | None = None
    min_times: list[datetime.datetime | None] = field(default_factory=list)
    blocks: bool = False

    def get(self, id: str) -> kubecontainer.PodStatus:
        if self.err is not None:
            raise self.err
        return self.status

    def get_newer_than(
        self, id: types.UID, min_time: datetime.datetime | None, ctx: golang.Context | None = None
    ) -> kubecontainer.PodStatus:
        self.min_times.append(min_time)
        if self.blocks:
            assert ctx is not None
            ctx.wait(None)
            raise ctx.err() or AssertionError
        return self.get(id)


if TYPE_CHECKING:
    _runtime: kubecontainer.Runtime = FakeRuntime()
    _streaming: kubecontainer.StreamingRuntime = FakeStreamingRuntime()
    _cache: kubecontainer.Cache = FakeCache(_runtime)
    _runtime_cache: kubecontainer.RuntimeCache = FakeRuntimeCache(_runtime)
    _helper: kubecontainer.RuntimeHelper = FakeRuntimeHelper()
    _os: kubecontainer.OSInterface = FakeOS()
    _runner: kubecontainer.CommandRunner = FakeContainerCommandRunner()
