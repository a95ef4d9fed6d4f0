"""Test images from a registry: credentials, the errors of failed pulls, and the limit of parallel pulls."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework.kubelet_process import KubeletProcess
from framework.pods import Pod, pod, sleeper
from framework.registry import PASSWORD, USER, Gate, Registry
from framework.waiting import wait_for

# A kubelet retries a pull after 10 s, then after 20 s, each time plus the time until the pod's next sync.
RETRIED = 180
# The configuration of the kubelet sets this limit of parallel pulls.
CAP = 3
MANY = 10
# On a busy machine anything that happens soon takes at most this many seconds.
TIMEOUT = 120


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Yield a registry without a password."""
    made = Registry(tmp_path_factory.mktemp("registry"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Yield a registry that requires USER and PASSWORD."""
    made = Registry(tmp_path_factory.mktemp("closed"), password=True)
    made.start()
    yield made
    made.stop()


def write_plugin(folder: Path, closed: Registry) -> dict[str, object]:
    """Write a credential provider that knows two parts of a registry, and return the kubelet's flags for it.

    For one part it returns a wrong password.
    """
    folder.mkdir()
    answers = {
        f"{closed.host}/plugin": {"username": USER, "password": PASSWORD},
        f"{closed.host}/wrong": {"username": USER, "password": "open barley"},
    }
    version = "credentialprovider.kubelet.k8s.io/v1"
    answer = {
        "apiVersion": version,
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
        "cacheDuration": "1h",
        "auth": answers,
    }
    program = folder / "doorman"
    program.write_text(f"#!/bin/sh\ncat >>{folder}/requests\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    program.chmod(0o755)
    provider = {
        "name": program.name,
        "matchImages": list(answers),
        "defaultCacheDuration": "0s",
        "apiVersion": version,
    }
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [provider],
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    return {"image-credential-provider-config": folder, "image-credential-provider-bin-dir": folder}


@pytest.fixture(scope="module")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plugins") / "bin"


@pytest.fixture(scope="module")
def moody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Yield a registry that is down at first."""
    made = Registry(tmp_path_factory.mktemp("moody"))
    made.start()
    made.push("moody/busybox", "1.0", test="moody")
    made.stop()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def gate(registry: Registry) -> Iterator[Gate]:
    with Gate(registry) as made:
        yield made


@pytest.fixture(scope="module")
def kubelet(
    new_kubelet: Callable[..., KubeletProcess],
    registry: Registry,
    closed: Registry,
    moody: Registry,
    gate: Gate,
    plugin_folder: Path,
) -> KubeletProcess:
    """Return a kubelet with the pods of all tests except those that would block others.

    The pods start together, because most of them take a while.
    """
    process = new_kubelet("registry", {"maxParallelImagePulls": CAP}, flags=write_plugin(plugin_folder, closed))
    process.root_dir.mkdir(parents=True)
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (process.root_dir / "config.json").write_text(json.dumps({"auths": {f"{closed.host}/node": {"auth": auth}}}))
    image = registry.push("open/busybox", "1.0")
    process.write(pod("anonymous", sleeper(image=image)))
    digested = registry.digest_of(registry.push("open/digest", "1.0", test="digest"))
    process.write(pod("digest", sleeper(image=digested)))
    process.write(pod("missing-tag", sleeper(image=f"{registry.host}/open/busybox:2.0")))
    process.write(pod("never", sleeper(image=f"{registry.host}/open/never:1.0", imagePullPolicy="Never")))
    process.write(pod("nonsense", sleeper(image="Not/An//Image")))
    process.write(pod("moody", sleeper(image=f"{moody.host}/moody/busybox:1.0")))
    registry.push("long/busybox", "1.0", test="long")
    process.write(pod("long", sleeper(image=f"{gate.host}/long/busybox:1.0")))
    for part in ("node", "plugin", "wrong", "nobody"):
        process.write(pod(part, sleeper(image=closed.push(f"{part}/busybox", "1.0", part=part))))
    process.start()
    return process


def events(kubelet: KubeletProcess, name: str) -> list[str]:
    """List the events of a pod, as reason and message, from the kubelet's log."""
    pod = f'object="default/{kubelet.full_name(name)}"'
    lines = [line for line in kubelet.log.read_text().splitlines() if "Event occurred" in line and pod in line]
    return [f"{_value(line, 'reason')} {_value(line, 'message')}" for line in lines]


def wait_for_event(kubelet: KubeletProcess, name: str, *parts: str) -> str:
    """Return the pod's first event with all these parts. The log may show it later than the pod's status."""

    def look() -> str:
        return next((event for event in events(kubelet, name) if all(part in event for part in parts)), "")

    return wait_for(f"event {parts} of {name}", look, TIMEOUT, lambda: events(kubelet, name))


def _value(line: str, key: str) -> str:
    return str(json.JSONDecoder().raw_decode(line.partition(f" {key}=")[2])[0])


def wait_for_reason(kubelet: KubeletProcess, name: str, reason: str, timeout: float = TIMEOUT) -> Pod:
    return kubelet.wait_for_pod(name, lambda found: found.state().get("reason") == reason, timeout)


def test_registry_down_and_up_again(kubelet: KubeletProcess, moody: Registry) -> None:
    kubelet.wait_for_pod("moody", lambda found: "connection refused" in found.state().get("message", ""), TIMEOUT)

    moody.start()
    kubelet.wait_for_running("moody", timeout=RETRIED)


def test_anonymous(kubelet: KubeletProcess) -> None:
    (found,) = kubelet.wait_for_running("anonymous")

    image = found.container()["image"]
    wait_for_event(kubelet, "anonymous", f'Pulling Pulling image "{image}"')
    pulled = wait_for_event(kubelet, "anonymous", "Pulled ")
    assert len([event for event in events(kubelet, "anonymous") if event.startswith("Pulled ")]) == 1
    assert pulled.startswith(f'Pulled Successfully pulled image "{image}" in ')
    assert pulled.endswith(" bytes.")


def test_by_digest(kubelet: KubeletProcess) -> None:
    (found,) = kubelet.wait_for_running("digest")

    assert "@sha256:" in found.json["spec"]["containers"][0]["image"]


@pytest.mark.parametrize("name", ["node", "plugin"])
def test_credentials_of_the_node(kubelet: KubeletProcess, name: str) -> None:
    kubelet.wait_for_running(name)


def test_plugin_is_asked_as_the_protocol_says(kubelet: KubeletProcess, closed: Registry, plugin_folder: Path) -> None:
    kubelet.wait_for_running("plugin")

    request, *_ = (plugin_folder / "requests").read_text().splitlines()
    asked = json.loads(request)
    assert (asked["apiVersion"], asked["kind"]) == (
        "credentialprovider.kubelet.k8s.io/v1",
        "CredentialProviderRequest",
    )
    assert asked["image"].startswith(closed.host)
    assert 'kubelet_credential_provider_plugin_duration_count{plugin_name="doorman"}' in kubelet.get("/metrics")


@pytest.mark.parametrize("name", ["wrong", "nobody"])
def test_without_the_right_password(kubelet: KubeletProcess, name: str) -> None:
    found = wait_for_reason(kubelet, name, "ImagePullBackOff")

    message = found.state()["message"]
    image = found.json["spec"]["containers"][0]["image"]
    assert message.startswith(f'Back-off pulling image "{image}": ErrImagePull: ')
    assert "401" in message or "authorization failed" in message or "no basic auth credentials" in message
    assert PASSWORD not in kubelet.log.read_text()
    wait_for_event(kubelet, name, "Failed Error: ErrImagePull")


def test_missing_tag(kubelet: KubeletProcess) -> None:
    found = wait_for_reason(kubelet, "missing-tag", "ImagePullBackOff")

    assert "not found" in found.state()["message"]
    wait_for_event(kubelet, "missing-tag", 'Failed Failed to pull image "', "not found")
    image = found.json["spec"]["containers"][0]["image"]
    wait_for_event(kubelet, "missing-tag", f'BackOff Back-off pulling image "{image}"')


def test_absent_image_that_is_never_pulled(kubelet: KubeletProcess) -> None:
    found = wait_for_reason(kubelet, "never", "ErrImageNeverPull")

    assert found.state()["message"].endswith("is not present with pull policy of Never")


def test_nonsense_for_a_name(kubelet: KubeletProcess) -> None:
    found = wait_for_reason(kubelet, "nonsense", "InvalidImageName")

    assert found.state()["message"].startswith('Failed to apply default image tag "Not/An//Image": ')


def test_long_pull_is_told_of(kubelet: KubeletProcess, gate: Gate) -> None:
    def told() -> list[str]:
        return [line for line in kubelet.log.read_text().splitlines() if "Image pull takes long" in line]

    line = wait_for("a log line about the pull", told, TIMEOUT)[0]
    assert f'image="{gate.host}/long/busybox:1.0" pod="default/{kubelet.full_name("long")}"' in line

    gate.let_through("long/busybox")
    kubelet.wait_for_running("long")


def _gone(gate: Gate, repository: str) -> bool:
    return repository not in gate.held()


def test_pulls_at_once_are_capped(kubelet: KubeletProcess, registry: Registry, gate: Gate) -> None:
    repositories = [f"many/image-{number}" for number in range(MANY)]
    for number, repository in enumerate(repositories):
        registry.push(repository, "1.0", name=repository)
        kubelet.write(pod(f"many-{number}", sleeper(image=f"{gate.host}/{repository}:1.0")))

    def waiting() -> list[str]:
        lines = kubelet.log.read_text().splitlines()
        return [line for line in lines if "/many/" in line and f"maxParallelImagePulls={CAP}" in line]

    wait_for("as many pulls as the cap allows", lambda: len(gate.held()) == CAP, TIMEOUT, gate.held)
    wait_for("the other pulls wait", lambda: len(waiting()) == MANY - CAP, TIMEOUT)
    assert len(gate.held()) == CAP

    done: set[str] = set()
    while len(done) < MANY:
        repository = wait_for("the next pull", gate.held, TIMEOUT)[0]
        gate.let_through(repository)
        done.add(repository)
        wait_for("the gate lets the pull through", functools.partial(_gone, gate, repository), TIMEOUT)
    kubelet.wait_for_running(*(f"many-{number}" for number in range(MANY)))
    assert gate.most_held == CAP
