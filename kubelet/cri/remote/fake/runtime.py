"""Simulate a container runtime, whose sandboxes, containers and images exist only in memory.

It behaves like containerd where the kubelet depends on it. Tests can make it slow, make calls fail or hang, and decide
how the containers' processes exit.
"""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import grpc
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cri import errors
from kubelet.cri.remote.fake import files, images, outputs, processes, recorder, usage
from kubelet.cri.remote.fake.behaviour import Behaviour, Behaviours
from kubelet.cri.remote.fake.faults import Faults
from kubelet.cri.remote.fake.sandboxes import (
    CREATED,
    EXITED,
    POD_UID_LABEL,
    RUNNING,
    Container,
    NewContainer,
    Sandbox,
    Store,
    make_container,
)
from pkg import golang
from pkg.apimachinery import clock as clocks

T = TypeVar("T")

_KILLED = 137
Query = list[tuple[str, str]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALL_FEATURES = runtimeapi.RuntimeHandlerFeatures(recursive_read_only_mounts=True, user_namespaces=True)
# This number of events can wait for a slow subscriber. While that many wait, new events are lost.
_EVENTS_CAPACITY = 10_000


class FakeRuntime:
    """Serve the calls of both CRI services. All methods are thread-safe.

    The class is a `client.Client`, so it also serves without a socket. Public attributes are its controls, and may be
    changed at any time.
    """

    def __init__(self, clock: clocks.Clock | None = None, images_present: Iterable[str] = ()) -> None:
        self.clock = clock or clocks.RealClock()
        self.faults = Faults()
        self.behaviours = Behaviours()
        self.plays = processes.Plays()
        self.ports = processes.Ports()
        self.outputs = outputs.Outputs(self.clock.now)
        self.recorder = recorder.Recorder()
        self.images = images.FakeImages(self._now, self._sleep, images_present)
        self.name, self.version = "fake-cri", "0.1.0"
        self.handlers = [runtimeapi.RuntimeHandler(features=_ALL_FEATURES)]
        self.features = runtimeapi.RuntimeFeatures()
        self.events_enabled = True
        self.write_logs = False  # If set, containers have log files.
        self.write_notices = True  # If set, a log file begins with a line saying that no container runs.
        self.runtime_ready = True
        self.network_ready = True
        self.cgroup_driver: runtimeapi.CgroupDriver.ValueType = runtimeapi.CGROUPFS
        # A StreamingServer serves exec, attach and port forwarding at this URL. While it is empty, such calls fail.
        self.streaming_url = ""
        self._lock = threading.Lock()  # The lock guards _store, _subscribers, _lists and the counters below.
        self._store = Store()
        self._subscribers: dict[golang.Channel[runtimeapi.ContainerEventResponse], None] = {}
        self._lists: dict[str, tuple[int, Any]] = {}
        self._ids = itertools.count(1)
        self._ips = itertools.count(2)
        self._sleeping = 0
        self._began = self.clock.monotonic()
        self._wake: golang.Channel[None] = golang.Channel(1)
        self._stop: golang.Channel[None] = golang.Channel()
        self._ender: golang.Thread | None = None
        self._handlers = self._make_handlers()

    # Tests and benchmarks use the following methods to inspect the runtime.

    @property
    def sandboxes(self) -> list[Sandbox]:
        """Return all sandboxes; callers must not change them."""
        with self._lock:
            self._settle_locked()
            return list(self._store.sandboxes.values())

    @property
    def containers(self) -> list[Container]:
        """Return all containers; callers must not change them."""
        with self._lock:
            self._settle_locked()
            return list(self._store.containers.values())

    @property
    def subscribers(self) -> int:
        """Count the open event streams."""
        with self._lock:
            return len(self._subscribers)

    @property
    def sleeping(self) -> int:
        """Count the calls that wait for the clock, so that a test knows when to step it."""
        with self._lock:
            return self._sleeping

    def container(self, pod: str, name: str) -> Container:
        """Return the newest container with this name in the pod with this name. Raise LookupError."""
        found = [c for c in self.containers if c.sandbox.config.metadata.name == pod and c.config.metadata.name == name]
        if not found:
            raise LookupError(f"no container {name} in pod {pod}")
        return found[-1]

    def container_of(self, container_id: str) -> Container:
        """Return the container with this id. Raise LookupError."""
        return self._looked_up(self._store.containers, container_id)

    def sandbox_of(self, sandbox_id: str) -> Sandbox:
        """Return the sandbox with this id. Raise LookupError."""
        return self._looked_up(self._store.sandboxes, sandbox_id)

    def _looked_up(self, found: Mapping[str, T], id: str) -> T:
        with self._lock:
            if id not in found:
                raise LookupError(f"{id}: not found")
            return found[id]

    def end_container(self, container_id: str, exit_code: int, *, oom_killed: bool = False) -> None:
        """End the process of a running container now."""
        with self._lock:
            container = self._container_locked(container_id)
            if container.state == RUNNING:
                self._end_locked(container, exit_code, oom_killed=oom_killed)

    def end_sandbox(self, sandbox_id: str) -> None:
        """Make a sandbox not ready and kill its containers, as a reboot does."""
        with self._lock:
            self._stop_sandbox_locked(self._store.sandboxes[sandbox_id])

    def close(self) -> None:
        """End the runtime's threads; hanging calls continue."""
        self.faults.clear()
        with self._lock:
            ender, self._ender = self._ender, None
        if ender is not None:
            self._stop.close()
            ender.join(5)

    # Calls and streams enter the runtime through the following methods.

    def invoke(self, ctx: golang.Context, method: str, request: Any, timeout: float | None = None) -> Any:
        """Serve one call. Raise errors.RemoteError."""
        if timeout is not None:
            ctx, cancel = golang.with_timeout(ctx, timeout)
        start = self.clock.monotonic()
        response, error = None, ""
        self.recorder.count(method)
        try:
            self.faults.apply(ctx, method, request, lambda: self._sandbox_names(request), self._sleep)
            _raise_if_done(ctx)
            response = self._handlers[method](ctx, request)
            response = self.faults.apply(
                ctx, method, request, lambda: self._sandbox_names(request), self._sleep, response
            )
        except errors.RemoteError as err:
            error = str(err)
            raise
        finally:
            if timeout is not None:
                cancel()
            if self.recorder.on:
                spent = self.clock.monotonic() - start
                copy = type(request).FromString(request.SerializeToString())
                self.recorder.add(recorder.Call(start - self._began, spent, method, copy, response, error))
        return response

    @contextmanager
    def stream(
        self, ctx: golang.Context, method: str, request: Any
    ) -> Iterator[Iterator[runtimeapi.ContainerEventResponse]]:
        """Provide the new events until ctx is done or the block ends."""
        self.recorder.count(method)
        if not self.events_enabled:
            raise errors.RemoteError(grpc.StatusCode.UNIMPLEMENTED, f"method {method} not implemented")
        self.faults.apply(ctx, method, request, lambda: (), self._sleep)
        events: golang.Channel[runtimeapi.ContainerEventResponse] = golang.Channel(_EVENTS_CAPACITY)
        self._subscribe(events)
        try:
            yield self._events(ctx, method, request, events)
        finally:
            with self._lock:
                self._subscribers.pop(events, None)

    def end_events(self) -> None:
        """Break all event streams, as a restart of a runtime does."""
        with self._lock:
            for events in self._subscribers:
                events.close()
            self._subscribers.clear()

    def _events(
        self,
        ctx: golang.Context,
        method: str,
        request: Any,
        events: golang.Channel[runtimeapi.ContainerEventResponse],
    ) -> Iterator[runtimeapi.ContainerEventResponse]:
        while True:
            event = golang.select(events, ctx.done()).took(events)
            if event is None or not event.ok:
                return
            yield self.faults.apply(ctx, method, request, lambda: (), self._sleep, event.value)

    def _subscribe(self, events: golang.Channel[runtimeapi.ContainerEventResponse]) -> None:
        with self._lock:
            self._subscribers[events] = None
            # Without subscribers, containers may exit lazily at the next call. A subscriber needs the events in time.
            if self._ender is None:
                self._stop = golang.Channel()
                self._ender = golang.go(self._end_in_time, self._stop, name="fake-cri-ender")

    def _end_in_time(self, stop: golang.Channel[None]) -> None:
        while True:
            with self._lock:
                self._settle_locked()
                next_end = self._store.next_end()
            wait = None if next_end is None else self.clock.after(next_end - self.clock.monotonic())
            if golang.select(stop, self._wake, wait).took(stop):
                return

    def _make_handlers(self) -> dict[str, Callable[[golang.Context, Any], Any]]:
        own = {
            "Version": self._version,
            "RunPodSandbox": self._run_pod_sandbox,
            "StopPodSandbox": self._stop_pod_sandbox,
            "RemovePodSandbox": self._remove_pod_sandbox,
            "PodSandboxStatus": self._pod_sandbox_status,
            "ListPodSandbox": self._list_pod_sandbox,
            "CreateContainer": self._create_container,
            "StartContainer": self._start_container,
            "StopContainer": self._stop_container,
            "RemoveContainer": self._remove_container,
            "ListContainers": self._list_containers,
            "ContainerStatus": self._container_status,
            "UpdateContainerResources": self._update_container_resources,
            "ReopenContainerLog": self._reopen_container_log,
            "ExecSync": self._exec_sync,
            "Exec": self._exec,
            "Attach": self._attach,
            "PortForward": self._port_forward,
            "ContainerStats": self._container_stats,
            "ListContainerStats": self._list_container_stats,
            "PodSandboxStats": self._pod_sandbox_stats,
            "ListPodSandboxStats": self._list_pod_sandbox_stats,
            "UpdateRuntimeConfig": lambda ctx, request: runtimeapi.UpdateRuntimeConfigResponse(),
            "Status": self._status,
            "CheckpointContainer": self._checkpoint_container,
            "ListMetricDescriptors": lambda ctx, request: runtimeapi.ListMetricDescriptorsResponse(),
            "ListPodSandboxMetrics": lambda ctx, request: runtimeapi.ListPodSandboxMetricsResponse(),
            "RuntimeConfig": self._runtime_config,
            "UpdatePodSandboxResources": self._update_pod_sandbox_resources,
        }
        return own | {
            "ListImages": self.images.list_images,
            "ImageStatus": self.images.image_status,
            "PullImage": self.images.pull_image,
            "RemoveImage": self.images.remove_image,
            "ImageFsInfo": self.images.image_fs_info,
        }

    # The following methods serve calls about the runtime itself.

    def _version(self, ctx: golang.Context, request: Any) -> runtimeapi.VersionResponse:
        return runtimeapi.VersionResponse(
            version="0.1.0",
            runtime_name=self.name,
            runtime_version=self.version,
            runtime_api_version="v1",
        )

    def _status(self, ctx: golang.Context, request: Any) -> runtimeapi.StatusResponse:
        runtime = runtimeapi.RuntimeCondition(type="RuntimeReady", status=self.runtime_ready)
        network = runtimeapi.RuntimeCondition(type="NetworkReady", status=self.network_ready)
        if not self.runtime_ready:
            runtime.reason, runtime.message = "FakeNotReady", "the test has set the fake runtime to not ready"
        if not self.network_ready:
            network.reason = "NetworkPluginNotReady"
            network.message = "Network plugin returns error: cni plugin not initialized"
        return runtimeapi.StatusResponse(
            status=runtimeapi.RuntimeStatus(conditions=[runtime, network]),
            runtime_handlers=self.handlers,
            features=self.features,
        )

    def _runtime_config(self, ctx: golang.Context, request: Any) -> runtimeapi.RuntimeConfigResponse:
        linux = runtimeapi.LinuxRuntimeConfiguration(cgroup_driver=self.cgroup_driver)
        return runtimeapi.RuntimeConfigResponse(linux=linux)

    # The following methods serve calls about sandboxes.

    def _run_pod_sandbox(self, ctx: golang.Context, request: Any) -> runtimeapi.RunPodSandboxResponse:
        config = runtimeapi.PodSandboxConfig()
        config.CopyFrom(request.config)
        meta = config.metadata
        name = f"{meta.name}_{meta.namespace}_{meta.uid}_{meta.attempt}"
        with self._lock:
            self._reserve_locked("sandbox", name)
            listed = runtimeapi.PodSandbox(
                id=self._new_id_locked(),
                metadata=meta,
                state=runtimeapi.SANDBOX_READY,
                created_at=self._now(),
                labels=config.labels,
                annotations=config.annotations,
                runtime_handler=request.runtime_handler,
            )
            sandbox = Sandbox(listed, config, self._new_ip_locked(config), name)
            self._store.add_sandbox(sandbox)
            self._tell_locked(runtimeapi.CONTAINER_CREATED_EVENT, sandbox, sandbox.id)
            self._tell_locked(runtimeapi.CONTAINER_STARTED_EVENT, sandbox, sandbox.id)
        return runtimeapi.RunPodSandboxResponse(pod_sandbox_id=sandbox.id)

    def _stop_pod_sandbox(self, ctx: golang.Context, request: Any) -> runtimeapi.StopPodSandboxResponse:
        with self._lock:
            sandbox = self._store.sandboxes.get(request.pod_sandbox_id)
            if sandbox is not None:
                self._stop_sandbox_locked(sandbox)
        return runtimeapi.StopPodSandboxResponse()

    def _stop_sandbox_locked(self, sandbox: Sandbox) -> None:
        for container in list(sandbox.containers.values()):
            if container.state == RUNNING:
                self._end_locked(container, _KILLED)
        if sandbox.ready:
            sandbox.listed.state = runtimeapi.SANDBOX_NOTREADY
            self._store.generation += 1
            self._tell_locked(runtimeapi.CONTAINER_STOPPED_EVENT, sandbox, sandbox.id)

    def _remove_pod_sandbox(self, ctx: golang.Context, request: Any) -> runtimeapi.RemovePodSandboxResponse:
        with self._lock:
            sandbox = self._store.sandboxes.get(request.pod_sandbox_id)
            if sandbox is None:
                return runtimeapi.RemovePodSandboxResponse()
            if sandbox.ready:
                # This is stricter than containerd, which kills the sandbox. It shows whether the kubelet stops a
                # sandbox first.
                raise _unknown(f'sandbox container "{sandbox.id}" is not fully stopped')
            for container in list(sandbox.containers.values()):
                self._remove_locked(container)
            self._store.remove_sandbox(sandbox)
            self._tell_locked(runtimeapi.CONTAINER_DELETED_EVENT, sandbox, sandbox.id)
        return runtimeapi.RemovePodSandboxResponse()

    def _pod_sandbox_status(self, ctx: golang.Context, request: Any) -> runtimeapi.PodSandboxStatusResponse:
        with self._lock:
            self._settle_locked()
            sandbox = self._sandbox_locked(request.pod_sandbox_id, "an error occurred when try to find sandbox")
            response = runtimeapi.PodSandboxStatusResponse(status=sandbox.status())
            if request.verbose:
                response.info["info"] = "{}"
        return response

    def _list_pod_sandbox(self, ctx: golang.Context, request: Any) -> runtimeapi.ListPodSandboxResponse:
        with self._lock:
            self._settle_locked()
            if request.filter.ByteSize():
                found = self._store.find_sandboxes(request.filter)
                return runtimeapi.ListPodSandboxResponse(items=[sandbox.listed for sandbox in found])
            return self._full_list_locked("sandboxes")  # type: ignore[no-any-return]

    def _list_containers(self, ctx: golang.Context, request: Any) -> runtimeapi.ListContainersResponse:
        with self._lock:
            self._settle_locked()
            if request.filter.ByteSize():
                found = self._store.find_containers(request.filter)
                return runtimeapi.ListContainersResponse(containers=[c.listed for c in found])
            return self._full_list_locked("containers")  # type: ignore[no-any-return]

    def _full_list_locked(self, which: str) -> Any:
        """Return the cached response to the relist, which runs every second and rarely finds a change."""
        generation, response = self._lists.get(which, (-1, None))
        if generation != self._store.generation:
            if which == "sandboxes":
                items = [sandbox.listed for sandbox in self._store.sandboxes.values()]
                response = runtimeapi.ListPodSandboxResponse(items=items)
            else:
                containers = [container.listed for container in self._store.containers.values()]
                response = runtimeapi.ListContainersResponse(containers=containers)
            self._lists[which] = (self._store.generation, response)
        return response

    def _update_pod_sandbox_resources(self, ctx: golang.Context, request: Any) -> Any:
        with self._lock:
            self._sandbox_locked(request.pod_sandbox_id, "failed to find sandbox")
        return runtimeapi.UpdatePodSandboxResourcesResponse()

    def _port_forward(self, ctx: golang.Context, request: Any) -> runtimeapi.PortForwardResponse:
        with self._lock:
            self._sandbox_locked(request.pod_sandbox_id, "failed to find sandbox")
        ports = [("port", str(port)) for port in request.port]
        return runtimeapi.PortForwardResponse(url=self._streaming("portforward", request.pod_sandbox_id, ports))

    # The following methods serve calls about containers.

    def _create_container(self, ctx: golang.Context, request: Any) -> runtimeapi.CreateContainerResponse:
        image = self.images.find(request.config.image.image)
        if image is None:
            raise _not_found(f'failed to get image from containerd "{request.config.image.image}"')
        with self._lock:
            sandbox = self._sandbox_locked(request.pod_sandbox_id, "failed to find sandbox id")
            if not sandbox.ready:
                raise _unknown("failed to get sandbox container task: no running task found")
            container = self._make_container_locked(sandbox, request.config, image.id)
            if container.behaviour.create_error:
                raise _unknown(container.behaviour.create_error)
            self._store.add_container(container)
            self._tell_locked(runtimeapi.CONTAINER_CREATED_EVENT, sandbox, container.id)
        return runtimeapi.CreateContainerResponse(container_id=container.id)

    def _make_container_locked(
        self, sandbox: Sandbox, request_config: runtimeapi.ContainerConfig, image_id: str
    ) -> Container:
        config = runtimeapi.ContainerConfig()
        config.CopyFrom(request_config)
        pod, meta = sandbox.config.metadata, config.metadata
        name = f"{meta.name}_{pod.name}_{pod.namespace}_{pod.uid}_{meta.attempt}"
        self._reserve_locked("container", name)
        container_id = self._new_id_locked()
        try:
            behaviour = self.behaviours.find(
                image=config.image.user_specified_image or config.image.image,
                argv=[*config.command, *config.args],
                name=meta.name,
                pod=pod.name,
                container_id=container_id,
                annotations=sandbox.config.annotations,
            )
        except ValueError as err:
            raise _unknown(str(err)) from err
        image_name = self.images.name_of(image_id)
        new = NewContainer(container_id, self._now(), image_id, image_name, behaviour, name)
        return make_container(sandbox, config, new)

    def _start_container(self, ctx: golang.Context, request: Any) -> runtimeapi.StartContainerResponse:
        with self._lock:
            container = self._container_locked(request.container_id)
            if container.state != CREATED:
                state = runtimeapi.ContainerState.Name(container.listed.state)
                raise _unknown(f'failed to set starting state for container "{container.id}": it is in {state}')
            if container.behaviour.start_error:
                self._fail_to_start_locked(container)
            container.set_state(RUNNING)
            container.status.started_at = self._now()
            self._store.generation += 1
            self._tell_locked(runtimeapi.CONTAINER_STARTED_EVENT, container.sandbox, container.id)
            if container.behaviour.run_for is not None:
                when = self.clock.monotonic() + container.behaviour.run_for
                self._store.end_container_at(container, when)
                self._wake.try_send(None)
        if self.write_logs:
            self.outputs.say(container, files.notice(container) if self.write_notices else "")
        return runtimeapi.StartContainerResponse()

    def _fail_to_start_locked(self, container: Container) -> None:
        message = container.behaviour.start_error
        container.set_state(EXITED)
        status = container.status
        status.started_at = 0
        status.finished_at = self._now()
        status.exit_code, status.reason, status.message = 128, "StartError", message
        container.exited.close()
        self._store.generation += 1
        self._tell_locked(runtimeapi.CONTAINER_STOPPED_EVENT, container.sandbox, container.id)
        raise _unknown(f"failed to start containerd task: {message}")

    def _stop_container(self, ctx: golang.Context, request: Any) -> runtimeapi.StopContainerResponse:
        with self._lock:
            self._settle_locked()
            container = self._store.containers.get(request.container_id)
            if container is None or container.state != RUNNING:
                return runtimeapi.StopContainerResponse()
            wait = self._time_to_stop(container.behaviour, request.timeout)
            if container.ends_at is not None:
                wait = min(wait, container.ends_at - self.clock.monotonic())
        self._sleep(ctx, wait, container.exited)
        with self._lock:
            self._settle_locked()
            if container.state == RUNNING:
                killed = container.behaviour.ignore_sigterm or wait >= request.timeout
                self._end_locked(container, _KILLED if killed else container.behaviour.sigterm_exit_code)
        return runtimeapi.StopContainerResponse()

    @staticmethod
    def _time_to_stop(behaviour: Behaviour, timeout: int) -> float:
        if timeout <= 0:
            return 0.0
        return float(timeout) if behaviour.ignore_sigterm else min(behaviour.stop_after, float(timeout))

    def _remove_container(self, ctx: golang.Context, request: Any) -> runtimeapi.RemoveContainerResponse:
        with self._lock:
            self._settle_locked()
            container = self._store.containers.get(request.container_id)
            if container is None:
                return runtimeapi.RemoveContainerResponse()
            if container.state == RUNNING:
                # This is stricter than containerd, which kills the container. It shows whether the kubelet stops a
                # container first.
                raise _unknown(f'container "{container.id}" is still running, it must be stopped first')
            self._remove_locked(container)
        return runtimeapi.RemoveContainerResponse()

    def _remove_locked(self, container: Container) -> None:
        self._store.remove_container(container)
        self._tell_locked(runtimeapi.CONTAINER_DELETED_EVENT, container.sandbox, container.id)

    def _container_status(self, ctx: golang.Context, request: Any) -> runtimeapi.ContainerStatusResponse:
        with self._lock:
            self._settle_locked()
            container = self._container_locked(request.container_id)
            response = runtimeapi.ContainerStatusResponse(status=container.status)
            if request.verbose:
                response.info["info"] = "{}"
        return response

    def _update_container_resources(self, ctx: golang.Context, request: Any) -> Any:
        with self._lock:
            container = self._container_locked(request.container_id)
            container.status.resources.linux.MergeFrom(request.linux)
        return runtimeapi.UpdateContainerResourcesResponse()

    def _reopen_container_log(self, ctx: golang.Context, request: Any) -> Any:
        with self._lock:
            container = self._container_locked(request.container_id)
            if container.state != RUNNING:
                raise _unknown("container is not running")
        if self.write_logs:
            Path(container.status.log_path).touch()
        return runtimeapi.ReopenContainerLogResponse()

    def _exec_sync(self, ctx: golang.Context, request: Any) -> runtimeapi.ExecSyncResponse:
        with self._lock:
            self._settle_locked()
            container = self._container_locked(request.container_id)
            if container.state != RUNNING:
                raise _unknown("failed to exec in container: container is in CONTAINER_EXITED state")
            behaviour = container.behaviour
        if play := self.plays.find(container, request.cmd):
            return _play(play, container, request.cmd)
        if request.timeout and behaviour.exec_for > request.timeout:
            self._sleep(ctx, float(request.timeout))
            message = f"failed to exec in container: timeout {request.timeout}s exceeded: context deadline exceeded"
            raise errors.RemoteError(grpc.StatusCode.DEADLINE_EXCEEDED, message)
        self._sleep(ctx, behaviour.exec_for)
        return runtimeapi.ExecSyncResponse(
            stdout=behaviour.exec_stdout.encode(),
            stderr=behaviour.exec_stderr.encode(),
            exit_code=behaviour.exec_exit_code,
        )

    def _exec(self, ctx: golang.Context, request: Any) -> runtimeapi.ExecResponse:
        with self._lock:
            self._container_locked(request.container_id)
        words = [("command", word) for word in request.cmd]
        return runtimeapi.ExecResponse(url=self._streaming("exec", request.container_id, words + _flags(request)))

    def _attach(self, ctx: golang.Context, request: Any) -> runtimeapi.AttachResponse:
        with self._lock:
            self._container_locked(request.container_id)
        return runtimeapi.AttachResponse(url=self._streaming("attach", request.container_id, _flags(request)))

    def _streaming(self, what: str, subject: str, query: Query) -> str:
        """Return the URL of a stream. Raise errors.RemoteError if there is no streaming server."""
        if not self.streaming_url:
            message = "this is a fake runtime: no container runs here"
            raise errors.RemoteError(grpc.StatusCode.UNIMPLEMENTED, message)
        return f"{self.streaming_url}/{what}/{subject}?{urlencode(query)}"

    def _checkpoint_container(self, ctx: golang.Context, request: Any) -> Any:
        with self._lock:
            self._container_locked(request.container_id)
        return runtimeapi.CheckpointContainerResponse()

    # The following methods serve calls about statistics.

    def _container_stats(self, ctx: golang.Context, request: Any) -> runtimeapi.ContainerStatsResponse:
        with self._lock:
            stats = usage.of_container(self._container_locked(request.container_id), self._now())
        return runtimeapi.ContainerStatsResponse(stats=stats)

    def _list_container_stats(self, ctx: golang.Context, request: Any) -> runtimeapi.ListContainerStatsResponse:
        filter = runtimeapi.ContainerFilter(
            id=request.filter.id,
            pod_sandbox_id=request.filter.pod_sandbox_id,
            label_selector=request.filter.label_selector,
            state=runtimeapi.ContainerStateValue(state=RUNNING),
        )
        now = self._now()
        with self._lock:
            self._settle_locked()
            stats = [usage.of_container(container, now) for container in self._store.find_containers(filter)]
        return runtimeapi.ListContainerStatsResponse(stats=stats)

    def _pod_sandbox_stats(self, ctx: golang.Context, request: Any) -> runtimeapi.PodSandboxStatsResponse:
        with self._lock:
            sandbox = self._sandbox_locked(request.pod_sandbox_id, "failed to find sandbox")
            return runtimeapi.PodSandboxStatsResponse(stats=usage.of_sandbox(sandbox, self._now()))

    def _list_pod_sandbox_stats(self, ctx: golang.Context, request: Any) -> Any:
        filter = runtimeapi.PodSandboxFilter(id=request.filter.id, label_selector=request.filter.label_selector)
        now = self._now()
        with self._lock:
            self._settle_locked()
            stats = [usage.of_sandbox(s, now) for s in self._store.find_sandboxes(filter) if s.ready]
        return runtimeapi.ListPodSandboxStatsResponse(stats=stats)

    # The methods above share the following ones.

    def _settle_locked(self) -> None:
        """End the containers whose run time is over."""
        for container in self._store.due(self.clock.monotonic()):
            behaviour = container.behaviour
            self._end_locked(container, behaviour.exit_code, oom_killed=behaviour.oom_killed)

    def _end_locked(self, container: Container, exit_code: int, *, oom_killed: bool = False) -> None:
        container.set_state(EXITED)
        status = container.status
        status.finished_at = max(self._now(), status.started_at)
        status.exit_code = _KILLED if oom_killed else exit_code
        status.reason = "OOMKilled" if oom_killed else "Completed" if exit_code == 0 else "Error"
        if container.behaviour.termination_message:
            files.write_termination_message(container)
        self._store.generation += 1
        container.exited.close()
        self._tell_locked(runtimeapi.CONTAINER_STOPPED_EVENT, container.sandbox, container.id)

    def _tell_locked(self, kind: runtimeapi.ContainerEventType.ValueType, sandbox: Sandbox, container_id: str) -> None:
        if not self._subscribers:
            return
        event = runtimeapi.ContainerEventResponse(
            container_id=container_id,
            container_event_type=kind,
            created_at=self._now(),
            pod_sandbox_status=sandbox.status(),
            containers_statuses=[container.status for container in sandbox.containers.values()],
        )
        for events in self._subscribers:
            events.try_send(event)

    def _sleep(self, ctx: golang.Context, seconds: float, until: golang.Channel[None] | None = None) -> None:
        if seconds > 0:
            timer = self.clock.after(seconds)
            with self._lock:
                self._sleeping += 1
            golang.select(ctx.done(), timer, until)
            with self._lock:
                self._sleeping -= 1
        _raise_if_done(ctx)

    def _sandbox_names(self, request: Any) -> tuple[str, ...]:
        """Return the id and the pod's name of the sandbox in a request."""
        if hasattr(request, "config") and isinstance(request.config, runtimeapi.PodSandboxConfig):
            return (request.config.metadata.name,)
        holder = getattr(request, "filter", request)
        sandbox_id = getattr(holder, "pod_sandbox_id", "")
        container_id = getattr(holder, "container_id", "")
        uid = getattr(holder, "label_selector", {}).get(POD_UID_LABEL, "")
        with self._lock:
            container = self._store.containers.get(container_id)
            sandbox = container.sandbox if container else self._store.sandboxes.get(sandbox_id)
            if sandbox is None and uid:
                selector = runtimeapi.PodSandboxFilter(label_selector={POD_UID_LABEL: uid})
                sandbox = next(iter(self._store.find_sandboxes(selector)), None)
        return () if sandbox is None else (sandbox.id, sandbox.config.metadata.name)

    def _reserve_locked(self, kind: str, name: str) -> None:
        holder = self._store.names.get(name)
        if holder is not None:
            raise _unknown(f'failed to reserve {kind} name "{name}": name "{name}" is reserved for "{holder}"')

    def _new_id_locked(self) -> str:
        return f"{next(self._ids):064x}"

    def _new_ip_locked(self, config: runtimeapi.PodSandboxConfig) -> str:
        network = config.linux.security_context.namespace_options.network
        if network == runtimeapi.NODE:
            return ""
        number = next(self._ips)
        # These are loopback addresses, because probes of hollow pods must not leave the machine.
        return f"127.{88 + (number >> 16) % 100}.{number >> 8 & 255}.{number & 255}"

    def _container_locked(self, container_id: str) -> Container:
        container = self._store.containers.get(container_id)
        if container is None:
            raise _not_found(f'an error occurred when try to find container "{container_id}"')
        return container

    def _sandbox_locked(self, sandbox_id: str, what: str) -> Sandbox:
        sandbox = self._store.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise _not_found(f'{what} "{sandbox_id}"')
        return sandbox

    def _now(self) -> int:
        """Return the time in nanoseconds since 1970, as in the CRI."""
        since = self.clock.now() - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000


def _flags(request: Any) -> Query:
    """Return the streams that a request for exec or attach asks for."""
    return [(name, "1") for name in ("stdin", "stdout", "stderr", "tty") if getattr(request, name)]


def _play(play: processes.Play, container: Container, command: Iterable[str]) -> runtimeapi.ExecSyncResponse:
    """Run a command's function to its end. Raise errors.RemoteError."""
    stdout, stderr = io.BytesIO(), io.BytesIO()
    try:
        code = play(processes.new_process(container, list(command), stdout=stdout, stderr=stderr)) or 0
    except Exception as err:  # A test's function may raise any exception.
        raise _unknown(f"failed to exec in container: {err!r}") from err
    return runtimeapi.ExecSyncResponse(stdout=stdout.getvalue(), stderr=stderr.getvalue(), exit_code=code)


def _raise_if_done(ctx: golang.Context) -> None:
    err = ctx.err()
    if isinstance(err, golang.Canceled):
        raise errors.RemoteCanceledError
    if err is not None:
        raise errors.RemoteError(grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")


def _unknown(message: str) -> errors.RemoteError:
    return errors.RemoteError(grpc.StatusCode.UNKNOWN, message)


def _not_found(what: str) -> errors.RemoteError:
    return errors.RemoteError(grpc.StatusCode.NOT_FOUND, f"{what}: not found")
