"""Create, watch and delete pods as a user of a cluster does; every assertion is about what the API server reports.

The client is the official one, the package `kubernetes`, and objects are its models: a field that an object does not
have is None, also if its type is a string or a list.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kubernetes import config
from kubernetes.client import (
    ApiClient,
    CoreV1Api,
    CoreV1Event,
    V1ContainerStateTerminated,
    V1ContainerStatus,
    V1Node,
    V1Pod,
)
from kubernetes.client.exceptions import NotFoundException

from framework.containerd import BUSYBOX, PAUSE
from framework.pods import Manifest
from framework.recorder import DELETED, Recorder, Seen
from framework.waiting import wait_for

T = TypeVar("T")

# TIMEOUT is the time, in seconds, that a pod may take to start or to change unless its test says otherwise.
# NAMESPACE_TIMEOUT is the time that a namespace may take to disappear. Both are far more than needed, because the
# machine may be busy.
TIMEOUT = 240.0
NAMESPACE_TIMEOUT = 240.0


@dataclass(frozen=True)
class Images:
    """Describe the images that the tests' pods run: those that the manifests name, or replacements for them."""

    busybox: str = BUSYBOX
    pause: str = PAUSE

    @classmethod
    def from_environment(cls) -> Images:
        return cls(os.environ.get("E2E_BUSYBOX_IMAGE") or BUSYBOX, os.environ.get("E2E_PAUSE_IMAGE") or PAUSE)

    def actual(self, image: str) -> str:
        return {BUSYBOX: self.busybox, PAUSE: self.pause}.get(image, image)


@dataclass(frozen=True)
class Condition:
    """Hold the parts of a condition that tests inspect."""

    status: str
    reason: str = ""
    message: str = ""


def new_client(kubeconfig: Path) -> ApiClient:
    """Return a client for the official client's classes, as in `CoreV1Api(new_client(path))`."""
    return config.new_client_from_config(str(kubeconfig))


def conditions(obj: V1Pod | V1Node) -> dict[str, Condition]:
    found = obj.status.conditions or []
    return {each.type: Condition(each.status, each.reason or "", each.message or "") for each in found}


def is_true(obj: V1Pod | V1Node, type_: str) -> bool:
    found = conditions(obj).get(type_)
    return found is not None and found.status == "True"


def container_statuses(pod: V1Pod) -> list[V1ContainerStatus]:
    """Return the statuses of the init containers and then those of the other containers."""
    return [*(pod.status.init_container_statuses or []), *(pod.status.container_statuses or [])]


def container(pod: V1Pod, name: str = "main") -> V1ContainerStatus | None:
    """Return the status of a container or an init container, or None while there is none."""
    return next((each for each in container_statuses(pod) if each.name == name), None)


def restarts(pod: V1Pod, name: str = "main") -> int:
    status = container(pod, name)
    return 0 if status is None else int(status.restart_count)


def waiting_reason(pod: V1Pod, name: str = "main") -> str:
    """Return the reason why a container is waiting, or "" if it runs or has terminated."""
    status = container(pod, name)
    return status.state.waiting.reason or "" if status is not None and status.state.waiting is not None else ""


def terminated(pod: V1Pod, name: str = "main") -> V1ContainerStateTerminated | None:
    """Return how a container terminated, or None if it has not."""
    status = container(pod, name)
    return None if status is None else status.state.terminated


def last_terminated(pod: V1Pod, name: str = "main") -> V1ContainerStateTerminated | None:
    """Return how the container terminated before its last restart, or None if it has not restarted."""
    status = container(pod, name)
    return None if status is None else status.last_state.terminated


def is_running(pod: V1Pod) -> bool:
    """Report whether all containers run and the pod is ready."""
    return pod.status.phase == "Running" and is_true(pod, "Ready")


def summary(pod: V1Pod) -> str:
    states = [
        f"{each.name}={_state(each)} ready={each.ready} restarts={each.restart_count}"
        for each in container_statuses(pod)
    ]
    shown = [f"{name}={each.status} {each.reason}".strip() for name, each in conditions(pod).items()]
    going = " deleted" if pod.metadata.deletion_timestamp is not None else ""
    reason = pod.status.reason or ""
    return f"{pod.metadata.name}: {pod.status.phase}{going} {reason} {' '.join(states)} [{', '.join(shown)}]"


def _state(status: V1ContainerStatus) -> dict[str, object]:
    """Return the part of a container's state that is set."""
    return {kind: part for kind, part in status.state.to_dict().items() if part is not None}


class Namespace:
    """Create a namespace for tests and record everything that happens in it.

    `node` is the node of its pods; `pods` and `events` record what happened. `close` deletes the namespace, and
    `wait_gone` waits until it has disappeared.
    """

    def __init__(self, api: ApiClient, node: str, images: Images, name: str) -> None:
        self.api = api
        self.core = CoreV1Api(api)
        self.node = node
        self.images = images
        self.name = f"e2e-{name}-{secrets.token_hex(3)}"
        self.core.create_namespace({"metadata": {"name": self.name}})
        self._wait_for_service_account()
        self.pods = Recorder(self.core.list_namespaced_pod, self.name)
        self.events = Recorder(self.core.list_namespaced_event, self.name)

    def _wait_for_service_account(self) -> None:
        """Wait for the default service account, which a controller creates soon after the namespace.

        The API server refuses pods as long as it is missing.
        """
        account = or_none(lambda: self.core.read_namespaced_service_account("default", self.name))
        wait_for("the default service account", account, TIMEOUT)

    def close(self) -> None:
        """Stop recording and delete the namespace with everything in it. The method does not wait."""
        self.pods.stop()
        self.events.stop()
        self.core.delete_namespace(self.name)

    def wait_gone(self) -> None:
        namespace = or_none(lambda: self.core.read_namespace(self.name))
        wait_for(f"namespace {self.name} is gone", lambda: namespace() is None, NAMESPACE_TIMEOUT, self.describe_now)

    def create(self, manifest: Manifest, node: str | None = None) -> V1Pod:
        """Create a pod on the tested node or on another one.

        The pod has no token of its service account unless its manifest asks for one.
        """
        pod = deepcopy(manifest)
        spec = pod["spec"]
        spec["nodeName"] = self.node if node is None else node
        spec.setdefault("automountServiceAccountToken", False)
        for each in [*spec.get("initContainers", []), *spec["containers"]]:
            each["image"] = self.images.actual(each["image"])
        return self.core.create_namespaced_pod(self.name, pod)

    def history(self, name: str) -> list[Seen]:
        return self.pods.history(name)

    def events_of(self, name: str) -> list[CoreV1Event]:
        """Return the events about a pod in the order of their first occurrence."""
        found = [each for each in self.events.all() if each.involved_object.name == name]
        return sorted(found, key=lambda each: (str(each.first_timestamp or each.event_time), each.metadata.name))

    def wait_for(self, name: str, what: str, condition: Callable[[V1Pod], object], timeout: float = TIMEOUT) -> V1Pod:
        """Wait until the pod exists and its latest version meets the condition. Earlier versions do not count."""

        def look() -> V1Pod | None:
            found = self.pods.latest(name)
            return found if found is not None and condition(found) else None

        found = self.pods.wait_for(f"pod {name}: {what}", look, timeout, lambda: self.describe(name))
        assert found is not None
        return found

    def wait_for_seen(
        self, name: str, what: str, condition: Callable[[V1Pod], object], timeout: float = TIMEOUT
    ) -> V1Pod:
        """Wait until any version of a pod has met the condition, and return the first such version."""

        def look() -> V1Pod | None:
            return next((each.object for each in self.history(name) if condition(each.object)), None)

        found = self.pods.wait_for(f"pod {name}: {what}", look, timeout, lambda: self.describe(name))
        assert found is not None
        return found

    def wait_for_running(self, *names: str, timeout: float = TIMEOUT) -> list[V1Pod]:
        """Wait until all these pods run and are ready at the same time."""

        def look() -> list[V1Pod]:
            found = [pod for name in names if (pod := self.pods.latest(name)) is not None and is_running(pod)]
            return found if len(found) == len(names) else []

        return self.pods.wait_for(f"{', '.join(names)} running", look, timeout, lambda: self.describe(*names))

    def wait_for_event(
        self, name: str, reason: str, message: str, field_path: str | None = None, timeout: float = TIMEOUT
    ) -> CoreV1Event:
        """Wait for an event about a pod whose whole message matches the regular expression."""

        def look() -> CoreV1Event | None:
            return next(
                (
                    each
                    for each in self.events_of(name)
                    if each.reason == reason
                    and re.fullmatch(message, each.message or "", re.DOTALL)
                    and field_path in (None, each.involved_object.field_path)
                ),
                None,
            )

        what = f"event {reason} {message!r} of pod {name}"
        found = self.events.wait_for(what, look, timeout, lambda: self.describe(name))
        assert found is not None
        return found

    def wait_deleted(self, name: str, timeout: float = TIMEOUT) -> Seen:
        """Wait until a pod has disappeared, and return its last version."""

        def look() -> Seen | None:
            seen = self.history(name)
            return seen[-1] if seen and seen[-1].type == DELETED else None

        found = self.pods.wait_for(f"pod {name} is gone", look, timeout, lambda: self.describe(name))
        assert found is not None
        return found

    def describe(self, *names: str) -> str:
        """Describe these pods with their events, or all pods if no name is given."""
        wanted = names or [pod.metadata.name for pod in self.pods.all()]
        lines = []
        for name in wanted:
            pod = self.pods.latest(name)
            lines.append(summary(pod) if pod is not None else f"{name}: gone")
            lines += [f"    {each.type} {each.reason} x{each.count}: {each.message}" for each in self.events_of(name)]
        return "\n".join(lines)

    def describe_now(self) -> str:
        """Describe the pods that the API server has now. This works after recording has stopped."""
        return "\n".join(map(summary, self.core.list_namespaced_pod(self.name).items))


def or_none(get: Callable[[], T]) -> Callable[[], T | None]:
    """Wrap a getter so that it returns None, and does not raise, when the object does not exist."""

    def look() -> T | None:
        try:
            return get()
        except NotFoundException:
            return None

    return look
