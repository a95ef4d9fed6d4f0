"""Store the fake runtime's sandboxes and containers, and the times at which containers exit."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cri.remote.fake.behaviour import Behaviour
from pkg import golang

# The kubelet finds a pod's sandboxes and containers by this label.
POD_UID_LABEL = "io.kubernetes.pod.uid"

RUNNING = runtimeapi.CONTAINER_RUNNING
CREATED = runtimeapi.CONTAINER_CREATED
EXITED = runtimeapi.CONTAINER_EXITED


@dataclass(slots=True, eq=False)
class Container:
    """Represent a container; `listed` and `status` are the runtime's two views, which must agree."""

    listed: runtimeapi.Container
    status: runtimeapi.ContainerStatus
    sandbox: Sandbox
    argv: list[str]
    behaviour: Behaviour
    config: runtimeapi.ContainerConfig
    reserved_name: str
    exited: golang.Channel[None] = field(default_factory=golang.Channel)
    ends_at: float | None = None  # The container exits at this time of the clock's monotonic().

    @property
    def id(self) -> str:
        return self.listed.id

    @property
    def state(self) -> int:
        return self.listed.state

    def set_state(self, state: runtimeapi.ContainerState.ValueType) -> None:
        self.listed.state = state
        self.status.state = state


@dataclass(slots=True, eq=False)
class Sandbox:
    listed: runtimeapi.PodSandbox
    config: runtimeapi.PodSandboxConfig
    ip: str
    reserved_name: str
    containers: dict[str, Container] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.listed.id

    @property
    def ready(self) -> bool:
        return self.listed.state == runtimeapi.SANDBOX_READY

    def status(self) -> runtimeapi.PodSandboxStatus:
        """Return the detailed view."""
        listed = self.listed
        options = self.config.linux.security_context.namespace_options
        return runtimeapi.PodSandboxStatus(
            id=listed.id,
            metadata=listed.metadata,
            state=listed.state,
            created_at=listed.created_at,
            network=runtimeapi.PodSandboxNetworkStatus(ip=self.ip if self.ready else ""),
            linux=runtimeapi.LinuxPodSandboxStatus(namespaces=runtimeapi.Namespace(options=options)),
            labels=listed.labels,
            annotations=listed.annotations,
            runtime_handler=listed.runtime_handler,
        )


@dataclass(frozen=True, slots=True)
class NewContainer:
    """Hold the properties of a new container besides its configuration."""

    id: str
    created_at: int
    image_id: str
    image_name: str  # This is the image's own name, which may differ from the requested one.
    behaviour: Behaviour
    reserved_name: str


def make_container(sandbox: Sandbox, config: runtimeapi.ContainerConfig, new: NewContainer) -> Container:
    """Create a container with both views, but do not add it to the store."""
    listed = runtimeapi.Container(
        id=new.id,
        pod_sandbox_id=sandbox.id,
        metadata=config.metadata,
        image=config.image,
        image_ref=new.image_id,
        image_id=new.image_id,
        state=CREATED,
        created_at=new.created_at,
        labels=config.labels,
        annotations=config.annotations,
    )
    specified = config.image.user_specified_image
    status = runtimeapi.ContainerStatus(
        id=new.id,
        metadata=config.metadata,
        state=CREATED,
        created_at=new.created_at,
        image=runtimeapi.ImageSpec(
            image=new.image_name or specified or config.image.image, user_specified_image=specified
        ),
        image_ref=new.image_id,
        image_id=new.image_id,
        labels=config.labels,
        annotations=config.annotations,
        mounts=config.mounts,
        log_path=_log_path(sandbox, config),
        resources=runtimeapi.ContainerResources(linux=config.linux.resources),
        user=runtimeapi.ContainerUser(linux=_user(config.linux.security_context)),
    )
    argv = [*config.command, *config.args]
    return Container(listed, status, sandbox, argv, new.behaviour, config, new.reserved_name)


def _user(context: runtimeapi.LinuxContainerSecurityContext) -> runtimeapi.LinuxContainerUser:
    """Return the user of the first process. The image's groups are unknown here."""
    uid, gid = context.run_as_user.value, context.run_as_group.value
    groups = sorted({gid, *context.supplemental_groups})
    return runtimeapi.LinuxContainerUser(uid=uid, gid=gid, supplemental_groups=groups)


def _log_path(sandbox: Sandbox, config: runtimeapi.ContainerConfig) -> str:
    if not sandbox.config.log_directory or not config.log_path:
        return ""
    return f"{sandbox.config.log_directory}/{config.log_path}"


class Store:
    """Store sandboxes and containers. Each change increases `generation`.

    The class is not thread-safe; the runtime's lock guards it.
    """

    def __init__(self) -> None:
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, Container] = {}
        self.names: dict[str, str] = {}  # The keys are reserved names, the values ids.
        self.generation = 0
        self._by_pod_uid: dict[str, dict[str, Sandbox]] = {}
        # This is a heap. An entry counts only if it equals the container's ends_at.
        self._ends: list[tuple[float, str]] = []

    def add_sandbox(self, sandbox: Sandbox) -> None:
        self.generation += 1
        self.sandboxes[sandbox.id] = sandbox
        self.names[sandbox.reserved_name] = sandbox.id
        self._by_pod_uid.setdefault(sandbox.config.metadata.uid, {})[sandbox.id] = sandbox

    def remove_sandbox(self, sandbox: Sandbox) -> None:
        self.generation += 1
        del self.sandboxes[sandbox.id]
        self.names.pop(sandbox.reserved_name, None)
        of_pod = self._by_pod_uid[sandbox.config.metadata.uid]
        del of_pod[sandbox.id]
        if not of_pod:
            del self._by_pod_uid[sandbox.config.metadata.uid]

    def add_container(self, container: Container) -> None:
        self.generation += 1
        self.containers[container.id] = container
        self.names[container.reserved_name] = container.id
        container.sandbox.containers[container.id] = container

    def remove_container(self, container: Container) -> None:
        self.generation += 1
        del self.containers[container.id]
        self.names.pop(container.reserved_name, None)
        container.sandbox.containers.pop(container.id, None)

    def end_container_at(self, container: Container, when: float) -> None:
        """Make the container exit at this time, unless its exit time is earlier."""
        if container.ends_at is None or when < container.ends_at:
            container.ends_at = when
            heapq.heappush(self._ends, (when, container.id))

    def due(self, now: float) -> Iterator[Container]:
        """Yield the running containers whose exit time has come, in order."""
        while self._ends and self._ends[0][0] <= now:
            when, container_id = heapq.heappop(self._ends)
            container = self.containers.get(container_id)
            if container is not None and container.ends_at == when and container.state == RUNNING:
                yield container

    def next_end(self) -> float | None:
        return self._ends[0][0] if self._ends else None

    def find_sandboxes(self, filter: runtimeapi.PodSandboxFilter) -> list[Sandbox]:
        selector = dict(filter.label_selector)
        return [
            sandbox
            for sandbox in self._candidates(filter.id, selector)
            if (not filter.HasField("state") or sandbox.listed.state == filter.state.state)
            and _selected(selector, sandbox.listed.labels)
        ]

    def find_containers(self, filter: runtimeapi.ContainerFilter) -> list[Container]:
        selector = dict(filter.label_selector)
        if filter.id:
            candidates: Iterable[Container] = self._starting_with(filter.id)
        elif filter.pod_sandbox_id or POD_UID_LABEL in selector:
            candidates = [
                container
                for sandbox in self._candidates(filter.pod_sandbox_id, selector)
                for container in sandbox.containers.values()
            ]
        else:
            candidates = self.containers.values()
        return [
            container
            for container in candidates
            if (not filter.HasField("state") or container.state == filter.state.state)
            and (not filter.pod_sandbox_id or container.sandbox.id == filter.pod_sandbox_id)
            and _selected(selector, container.listed.labels)
        ]

    def _starting_with(self, container_id: str) -> list[Container]:
        if container_id in self.containers:
            return [self.containers[container_id]]
        return [c for key, c in self.containers.items() if key.startswith(container_id)]

    def _candidates(self, sandbox_id: str, selector: dict[str, str]) -> Iterable[Sandbox]:
        if sandbox_id:
            sandbox = self.sandboxes.get(sandbox_id)
            return [] if sandbox is None else [sandbox]
        if POD_UID_LABEL in selector:
            return list(self._by_pod_uid.get(selector[POD_UID_LABEL], {}).values())
        return self.sandboxes.values()


def _selected(selector: dict[str, str], labels: object) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())  # type: ignore[attr-defined]
