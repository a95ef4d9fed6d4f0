"""Pods as a user of a cluster makes, watches and deletes them: all that is asserted was told by the API server."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from framework.containerd import BUSYBOX, PAUSE
from framework.pods import Manifest
from framework.recorder import Recorder, Seen
from framework.waiting import wait_for
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types, watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.client_go import kubernetes
from pkg.client_go.tools import clientcmd

T = TypeVar("T")

# Seconds: for a pod to start or to change, where its test says nothing else; and for a namespace to go. Far
# more than it takes, but on a machine that has much else to do.
TIMEOUT = 240.0
NAMESPACE_TIMEOUT = 240.0


@dataclass(frozen=True)
class Images:
    """What the pods of the tests run: the images that the tests' manifests name, or others in their place."""

    busybox: str = BUSYBOX
    pause: str = PAUSE

    @classmethod
    def from_environment(cls) -> Images:
        return cls(os.environ.get("E2E_BUSYBOX_IMAGE") or BUSYBOX, os.environ.get("E2E_PAUSE_IMAGE") or PAUSE)

    def actual(self, image: str) -> str:
        return {BUSYBOX: self.busybox, PAUSE: self.pause}.get(image, image)


@dataclass(frozen=True)
class Condition:
    """What is looked at in the condition of a pod or a node."""

    status: str
    reason: str = ""
    message: str = ""


def new_client(kubeconfig: Path) -> kubernetes.Clientset:
    """A client without limits of its own, for tests count what the kubelet asks and not what they ask."""
    config = clientcmd.build_config_from_flags("", str(kubeconfig))
    config.qps = -1.0
    config.user_agent = "e2e-tests"
    return kubernetes.new_for_config(config)


# What a status says.


def conditions(obj: v1.Pod | v1.Node) -> dict[str, Condition]:
    return {each.type: Condition(each.status, each.reason, each.message) for each in obj.status.conditions}


def is_true(obj: v1.Pod | v1.Node, type_: str) -> bool:
    found = conditions(obj).get(type_)
    return found is not None and found.status == "True"


def container(pod: v1.Pod, name: str = "main") -> v1.ContainerStatus | None:
    """The status of a container of any kind; None while there is none."""
    statuses = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    return next((each for each in statuses if each.name == name), None)


def restarts(pod: v1.Pod, name: str = "main") -> int:
    status = container(pod, name)
    return 0 if status is None else status.restart_count


def waiting_reason(pod: v1.Pod, name: str = "main") -> str:
    """Why a container does not run; nothing if it does, or has ended."""
    status = container(pod, name)
    return status.state.waiting.reason if status is not None and status.state.waiting is not None else ""


def terminated(pod: v1.Pod, name: str = "main") -> v1.ContainerStateTerminated | None:
    """How a container ended; None if it has not."""
    status = container(pod, name)
    return None if status is None else status.state.terminated


def last_terminated(pod: v1.Pod, name: str = "main") -> v1.ContainerStateTerminated | None:
    """How a container ended the time before."""
    status = container(pod, name)
    return None if status is None else status.last_state.terminated


def is_running(pod: v1.Pod) -> bool:
    """Whether all containers run and the pod is ready."""
    return pod.status.phase == v1.POD_RUNNING and is_true(pod, v1.POD_READY)


def summary(pod: v1.Pod) -> str:
    states = [
        f"{each.name}={codec.to_builtins(each.state)} ready={each.ready} restarts={each.restart_count}"
        for each in [*pod.status.init_container_statuses, *pod.status.container_statuses]
    ]
    shown = [f"{name}={each.status} {each.reason}".strip() for name, each in conditions(pod).items()]
    going = " deleted" if pod.metadata.deletion_timestamp is not None else ""
    return f"{pod.metadata.name}: {pod.status.phase}{going} {pod.status.reason} {' '.join(states)} [{', '.join(shown)}]"


class Namespace:
    """A namespace of its own for tests, with everything recorded that happens in it.

    `node`: where its pods run. `pods`, `events`: what happened. Close it to delete it; `wait_gone` then waits.
    """

    def __init__(self, client: kubernetes.Clientset, node: str, images: Images, name: str) -> None:
        self.client = client
        self.node = node
        self.images = images
        self.ctx = golang.background()
        self.name = f"e2e-{name}-{secrets.token_hex(3)}"
        namespace = v1.Namespace(metadata=metav1.ObjectMeta(name=self.name))
        client.core_v1.namespaces().create(self.ctx, namespace)
        self._wait_for_service_account()
        self.pods = Recorder(f"pods-{self.name}", client.core_v1.pods(self.name))
        self.events = Recorder(f"events-{self.name}", client.core_v1.events(self.name))

    def _wait_for_service_account(self) -> None:
        """Without it, pods are refused. A controller makes it, soon after the namespace."""
        accounts = or_none(lambda: self.client.core_v1.service_accounts(self.name).get(self.ctx, "default"))
        wait_for("the default service account", accounts, TIMEOUT)

    def close(self) -> None:
        """Stop recording, and delete the namespace with all that is in it; does not wait."""
        self.pods.stop()
        self.events.stop()
        self.client.core_v1.namespaces().delete(self.ctx, self.name)

    def wait_gone(self) -> None:
        namespace = or_none(lambda: self.client.core_v1.namespaces().get(self.ctx, self.name))
        wait_for(f"namespace {self.name} gone", lambda: namespace() is None, NAMESPACE_TIMEOUT, self.describe_now)

    # Writing.

    def create(self, manifest: Manifest, node: str | None = None) -> v1.Pod:
        """Make a pod, on the tested node or another; it has no token of its service account unless it asks for one."""
        pod = codec.convert(manifest, v1.Pod)
        pod.spec.node_name = self.node if node is None else node
        if pod.spec.automount_service_account_token is None:
            pod.spec.automount_service_account_token = False
        for each in [*pod.spec.init_containers, *pod.spec.containers]:
            each.image = self.images.actual(each.image)
        return self.client.core_v1.pods(self.name).create(self.ctx, pod)

    def patch(self, name: str, patch: object, *subresources: str) -> v1.Pod:
        """Change a pod by a strategic merge patch."""
        data = codec.encode_json(patch)
        pods = self.client.core_v1.pods(self.name)
        return pods.patch(self.ctx, name, types.PatchType.STRATEGIC_MERGE, data, None, *subresources)

    def delete(self, name: str, grace: int | None = None) -> None:
        """Delete a pod within its own grace or another, in seconds; does not wait."""
        options = metav1.DeleteOptions(grace_period_seconds=grace)
        self.client.core_v1.pods(self.name).delete(self.ctx, name, options)

    # Looking and waiting.

    def history(self, name: str) -> list[Seen[v1.Pod]]:
        return self.pods.history(name)

    def events_of(self, name: str) -> list[v1.Event]:
        """The events about a pod, in the order of their first occurrence."""
        found = [each for each in self.events.all() if each.involved_object.name == name]
        return sorted(found, key=lambda each: (str(each.first_timestamp or each.event_time), each.metadata.name))

    def wait_for(self, name: str, what: str, condition: Callable[[v1.Pod], object], timeout: float = TIMEOUT) -> v1.Pod:
        """Wait until a pod is there and condition is true of it. Versions that have passed already do not count."""

        def look() -> v1.Pod | None:
            found = self.pods.latest(name)
            return found if found is not None and condition(found) else None

        found = self.pods.wait_for(f"pod {name}: {what}", look, timeout, lambda: self.describe(name))
        assert found is not None
        return found

    def wait_for_seen(
        self, name: str, what: str, condition: Callable[[v1.Pod], object], timeout: float = TIMEOUT
    ) -> v1.Pod:
        """Wait until condition was true of any version of a pod, and return the first."""

        def look() -> v1.Pod | None:
            return next((each.object for each in self.history(name) if condition(each.object)), None)

        found = self.pods.wait_for(f"pod {name}: {what}", look, timeout, lambda: self.describe(name))
        assert found is not None
        return found

    def wait_for_running(self, *names: str, timeout: float = TIMEOUT) -> list[v1.Pod]:
        """Wait until all these pods run and are ready, all at one time."""

        def look() -> list[v1.Pod]:
            found = [pod for name in names if (pod := self.pods.latest(name)) is not None and is_running(pod)]
            return found if len(found) == len(names) else []

        return self.pods.wait_for(f"{', '.join(names)} running", look, timeout, lambda: self.describe(*names))

    def wait_for_event(
        self, name: str, reason: str, message: str, field_path: str | None = None, timeout: float = TIMEOUT
    ) -> v1.Event:
        """Wait for an event about a pod whose whole message matches the regular expression."""

        def look() -> v1.Event | None:
            return next(
                (
                    each
                    for each in self.events_of(name)
                    if each.reason == reason
                    and re.fullmatch(message, each.message, re.DOTALL)
                    and field_path in (None, each.involved_object.field_path)
                ),
                None,
            )

        what = f"event {reason} {message!r} of pod {name}"
        found = self.events.wait_for(what, look, timeout, lambda: self.describe(name))
        assert found is not None
        return found

    def wait_deleted(self, name: str, timeout: float = TIMEOUT) -> Seen[v1.Pod]:
        """Wait until a pod is gone, and return how it was last."""

        def look() -> Seen[v1.Pod] | None:
            seen = self.history(name)
            return seen[-1] if seen and seen[-1].type == watch.DELETED else None

        found = self.pods.wait_for(f"pod {name} gone", look, timeout, lambda: self.describe(name))
        assert found is not None
        return found

    def describe(self, *names: str) -> str:
        """Pods, all if none is named, with their events."""
        wanted = names or [pod.metadata.name for pod in self.pods.all()]
        lines = []
        for name in wanted:
            pod = self.pods.latest(name)
            lines.append(summary(pod) if pod is not None else f"{name}: gone")
            lines += [f"    {each.type} {each.reason} x{each.count}: {each.message}" for each in self.events_of(name)]
        return "\n".join(lines)

    def describe_now(self) -> str:
        """The pods as the server has them; for when they are not recorded any more."""
        return "\n".join(map(summary, self.client.core_v1.pods(self.name).list(self.ctx).items))


def or_none(get: Callable[[], T]) -> Callable[[], T | None]:
    """A getter that returns None instead of raising when there is no such object."""

    def look() -> T | None:
        try:
            return get()
        except apierrors.StatusError as err:
            if not apierrors.is_not_found(err):
                raise
            return None

    return look
