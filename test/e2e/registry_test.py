"""Test pull secrets with a registry that requires passwords, and which pods may use an image that is present."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator

import pytest
from framework.cluster_client import TIMEOUT, Namespace
from framework.pods import pod, sleeper
from framework.registry import PASSWORD, USER, Gate, Registry
from framework.volumes import encoded
from framework.waiting import wait_for
from kubernetes.client import V1ContainerStateWaiting, V1Pod

pytestmark = pytest.mark.local

# Without a configured value a kubelet runs this many pulls at the same time.
CAP = 1


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    made = Registry(tmp_path_factory.mktemp("registry"), password=True)
    made.start()
    yield made
    made.stop()


def make_secret(namespace: Namespace, name: str, type_: str, key: str, data: bytes) -> None:
    secret = {"metadata": {"name": name}, "type": type_, "data": encoded({key: data})}
    namespace.core.create_namespaced_secret(namespace.name, secret)


def docker_config(registry: Registry, password: str = PASSWORD) -> dict[str, object]:
    return {registry.host: {"auth": base64.b64encode(f"{USER}:{password}".encode()).decode()}}


def docker_config_json(namespace: Namespace, name: str, registry: Registry, password: str = PASSWORD) -> None:
    data = json.dumps({"auths": docker_config(registry, password)}).encode()
    make_secret(namespace, name, "kubernetes.io/dockerconfigjson", ".dockerconfigjson", data)


def start(namespace: Namespace, name: str, image: str, *secrets: str) -> None:
    references = [{"name": secret} for secret in secrets]
    namespace.create(pod(name, sleeper(image=image, imagePullPolicy="IfNotPresent"), imagePullSecrets=references))


def wait_for_reason(namespace: Namespace, name: str, reason: str) -> V1ContainerStateWaiting:
    def waiting(found: V1Pod) -> V1ContainerStateWaiting | None:
        states = [status.state.waiting for status in found.status.container_statuses or []]
        return next((state for state in states if state is not None and state.reason == reason), None)

    found = waiting(namespace.wait_for_seen(name, reason, waiting))
    assert found is not None
    return found


def messages(namespace: Namespace, name: str, reason: str) -> list[str]:
    return [event.message for event in namespace.events_of(name) if event.reason == reason]


@pytest.fixture(scope="module", autouse=True)
def image_of_wrong(namespace: Namespace, registry: Registry) -> str:
    """Start the pod with the wrong password, and return its image.

    This pod starts first, because its back-off takes a while.
    """
    docker_config_json(namespace, "wrong", registry, "open barley")
    image = registry.push("wrong/busybox", "1.0", test="wrong")
    start(namespace, "wrong", image, "wrong")
    return image


def test_user_and_password_in_a_pull_secret(namespace: Namespace, registry: Registry) -> None:
    docker_config_json(namespace, "right", registry)
    start(namespace, "json", registry.push("json/busybox", "1.0", test="json"), "right")

    namespace.wait_for_running("json")


def test_pull_secret_in_the_old_format(namespace: Namespace, registry: Registry) -> None:
    data = json.dumps(docker_config(registry)).encode()
    make_secret(namespace, "old", "kubernetes.io/dockercfg", ".dockercfg", data)
    start(namespace, "dockercfg", registry.push("dockercfg/busybox", "1.0", test="dockercfg"), "old")

    namespace.wait_for_running("dockercfg")


def test_second_secret_does_where_the_first_does_not(namespace: Namespace, registry: Registry) -> None:
    docker_config_json(namespace, "first", registry, "open barley")
    docker_config_json(namespace, "second", registry)
    start(namespace, "rotated", registry.push("rotated/busybox", "1.0", test="rotated"), "first", "second")

    namespace.wait_for_running("rotated")


def test_secret_that_holds_no_credentials(namespace: Namespace, registry: Registry) -> None:
    """A pull secret without credentials fails the pull with an error that does not reveal the secret.

    The API server already rejects a secret that is not JSON.
    """
    data = b'{"auths": "open sesame, please"}'
    make_secret(namespace, "prose", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", data)
    start(namespace, "prose", registry.push("prose/busybox", "1.0", test="prose"), "prose")

    waiting = wait_for_reason(namespace, "prose", "ErrImagePull")
    assert waiting.message.startswith(f'image pull secret "{namespace.name}/prose", key ".dockerconfigjson": ')
    assert "sesame" not in waiting.message
    namespace.wait_for_event("prose", "Failed", ".*image pull secret.*")


def test_absent_secret_is_told(namespace: Namespace, registry: Registry) -> None:
    start(namespace, "absent", registry.push("absent/busybox", "1.0", test="absent"), "nowhere")

    wait_for_reason(namespace, "absent", "ErrImagePull")
    namespace.wait_for_event("absent", "FailedToRetrieveImagePullSecret", ".*nowhere.*")
    assert len(messages(namespace, "absent", "FailedToRetrieveImagePullSecret")) == 1


def test_image_that_is_there_is_closed_to_a_pod_without_the_secret(namespace: Namespace, registry: Registry) -> None:
    docker_config_json(namespace, "owner", registry)
    image = registry.push("private/busybox", "1.0", test="private")
    start(namespace, "owner", image, "owner")
    namespace.wait_for_running("owner")

    start(namespace, "stranger", image)
    start(namespace, "friend", image, "owner")

    wait_for_reason(namespace, "stranger", "ErrImagePull")
    namespace.wait_for_running("friend")
    # This event is the last one of a start, so all others have arrived.
    namespace.wait_for_event("friend", "Started", "Container started")
    (message,) = messages(namespace, "friend", "Pulled")
    assert message == f'Container image "{image}" already present on machine and can be accessed by the pod'


def test_critical_pod_is_pulled_for_before_those_that_wait(
    namespace: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    open_registry = Registry(tmp_path_factory.mktemp("open"))
    open_registry.start()
    try:
        _pull_for_many(namespace, open_registry)
    finally:
        open_registry.stop()


def _pull_for_many(namespace: Namespace, registry: Registry) -> None:
    names = [f"many-{number}" for number in range(CAP + 2)]
    for name in (*names, "critical"):
        registry.push(name, "1.0", test=name)
    with Gate(registry) as gate:
        for name in names:
            start(namespace, name, f"{gate.host}/{name}:1.0")
        wait_for("as many pulls as the cap allows", lambda: len(gate.held()) == CAP, TIMEOUT, gate.held)
        first = gate.held()
        wait_for("all pull requests", lambda: all(messages(namespace, name, "Pulling") for name in names), TIMEOUT)

        critical = sleeper(image=f"{gate.host}/critical:1.0")
        namespace.create(pod("critical", critical, priorityClassName="system-cluster-critical"))
        wait_for("the event of the pull", lambda: messages(namespace, "critical", "Pulling"), TIMEOUT)
        gate.let_through(first[0])
        wait_for("the next pull", lambda: {*gate.held()} - {*first}, TIMEOUT, gate.held)

        assert {*gate.held()} - {*first} == {"critical"}
        for name in (*names, "critical"):
            gate.let_through(name)
        namespace.wait_for_running("critical", *names)


def test_wrong_password(namespace: Namespace, image_of_wrong: str) -> None:
    waiting = wait_for_reason(namespace, "wrong", "ErrImagePull")
    assert "401" in waiting.message or "authorization failed" in waiting.message
    assert wait_for_reason(namespace, "wrong", "ImagePullBackOff").message.startswith(
        f'Back-off pulling image "{image_of_wrong}": ErrImagePull: '
    )
    namespace.wait_for_event("wrong", "Failed", f'Failed to pull image "{re.escape(image_of_wrong)}".*')
