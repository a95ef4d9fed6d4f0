"""Test volumes that cannot be mounted: an event names the pod, the volume and the cause, and other pods do not suffer.

- what the API server refuses: test_refused
- the kubelet's events: test_event_tells_why, test_hung_up_pod_tells_of_all_volumes_that_are_missing
- retries: test_retries_come_at_growing_intervals, test_pod_starts_when_its_volume_can_be_had
- the rest: test_pod_that_waits_for_a_volume_can_go, test_others_run

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from framework.cluster_client import TIMEOUT, Namespace, container, is_true, waiting_reason
from framework.local_cluster import LocalCluster
from framework.pods import Manifest, pod, sleeper
from framework.volumes import looker, mounted, once, put_config_map, put_secret, told
from kubernetes.client import ApiException, CoreV1Api, CoreV1Event

# The kubelet reports the volumes that a pod still waits for only after a little more than two minutes.
AGAIN = 2 * TIMEOUT
LIMIT = 1 << 20
NOT_ENOUGH = "64Ki"

Source = dict[str, Any]


def config_map(name: str, *items: Source, **fields: object) -> Source:
    return {"configMap": {"name": name, **({"items": list(items)} if items else {}), **fields}}


def secret(name: str, *items: Source) -> Source:
    return {"secret": {"secretName": name, **({"items": list(items)} if items else {})}}


def host_path(path: str, type_: str) -> Source:
    return {"hostPath": {"path": path, "type": type_}}


def item(key: str, path: str) -> Source:
    return {"key": key, "path": path}


def projected(*sources: Source) -> Source:
    return {"projected": {"sources": list(sources)}}


SET_UP = 'MountVolume.SetUp failed for volume "v" : '
# Each name maps to the volume, and a regular expression for the message after SET_UP.
CASES: dict[str, tuple[Source, str]] = {
    "no-map": (config_map("none"), 'configmap "none" not found'),
    "no-secret": (secret("none"), 'secret "none" not found'),
    "no-key-in-map": (config_map("settings", item("none", "x")), "configmap references non-existent config key: none"),
    "no-key-in-secret": (secret("settings", item("none", "x")), "references non-existent secret key: none"),
    "no-map-in-projection": (projected({"configMap": {"name": "none"}}), 'configmap "none" not found'),
    "nothing-in-projection": (
        projected({"configMap": {"name": "none"}}, {"secret": {"name": "none"}}),
        re.escape('[configmap "none" not found, secret "none" not found]'),
    ),
    "no-directory": (
        host_path("/not/there/at/all", "Directory"),
        "hostPath type check failed: /not/there/at/all is not a directory",
    ),
    "device-for-directory": (
        host_path("/dev/null", "Directory"),
        "hostPath type check failed: /dev/null is not a directory",
    ),
    "directory-for-file": (host_path("/etc", "File"), "hostPath type check failed: /etc is not a file"),
    "directory-for-socket": (host_path("/etc", "Socket"), "hostPath type check failed: /etc is not a socket file"),
    "directory-for-device": (
        host_path("/etc", "CharDevice"),
        "hostPath type check failed: /etc is not a character device",
    ),
    "character-for-block": (
        host_path("/dev/null", "BlockDevice"),
        "hostPath type check failed: /dev/null is not a block device",
    ),
    "file-for-either": (
        host_path("/etc/passwd", "DirectoryOrCreate"),
        "hostPath type check failed: /etc/passwd is not a directory",
    ),
}
REFUSED: dict[str, tuple[Source, str]] = {
    "upwards": (config_map("settings", item("key", "../../shadow")), "must not contain '..'"),
    "upwards-in-the-middle": (secret("settings", item("key", "a/../b")), "must not contain '..'"),
    "absolute": (config_map("settings", item("key", "/etc/shadow")), "must be a relative path"),
    "reserved": (secret("settings", item("key", "..data")), "must not start with '..'"),
    "host-upwards": (host_path("/var/../etc", ""), "must not contain '..'"),
    "mode": (config_map("settings", defaultMode=0o1000), "must be a number between 0 and 0777"),
    "two": ({**config_map("settings"), **secret("settings")}, "may not specify more than 1 volume type"),
}


def waits(name: str, source: Source, **fields: Any) -> Manifest:
    main = sleeper(volumeMounts=[mounted("v", "/v")], **fields)
    return pod(name, main, volumes=[{"name": "v", **source}])


@pytest.fixture(scope="module", autouse=True)
def made(namespace: Namespace) -> None:
    put_config_map(namespace, "settings", {"key": "value"})
    put_secret(namespace, "settings", {"key": b"value"})
    put_secret(namespace, "large", {"key": b"x" * (LIMIT // 2)})
    for name, (source, _) in CASES.items():
        namespace.create(waits(name, source))
    limits = {"limits": {"memory": NOT_ENOUGH}}
    namespace.create(waits("no-room", secret("large"), resources=limits))
    several = pod(
        "several",
        sleeper(volumeMounts=[mounted("one", "/one"), mounted("two", "/two"), mounted("there", "/there")]),
        volumes=[
            {"name": "one", **config_map("none")},
            {"name": "two", **secret("none")},
            {"name": "there", "emptyDir": {}},
        ],
    )
    namespace.create(several)
    script = looker("cat /v/key", volumeMounts=[mounted("v", "/v")])
    namespace.create(once("comes-later", script, volumes=[{"name": "v", **config_map("comes-later")}]))
    namespace.create(once("others", looker("echo fine")))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(namespace: Namespace, name: str) -> None:
    source, why = REFUSED[name]
    with pytest.raises(ApiException, match=why) as raised:
        namespace.create(waits(f"refused-{name}", source))
    assert raised.value.status == 422


@pytest.mark.parametrize("kind", ["config map", "secret"])
def test_object_that_is_too_large_is_refused(namespace: Namespace, kind: str) -> None:
    with pytest.raises(ApiException, match=f"may not be more than {LIMIT} bytes") as raised:
        if kind == "secret":
            put_secret(namespace, "too-large", {"key": b"x" * (LIMIT + 1)})
        else:
            put_config_map(namespace, "too-large", {"key": "x" * (LIMIT + 1)})
    assert raised.value.status == 422


def test_others_run(namespace: Namespace) -> None:
    assert told(namespace, "others") == "fine\n"


@pytest.mark.parametrize("name", CASES)
def test_event_tells_why(namespace: Namespace, name: str) -> None:
    event = namespace.wait_for_event(name, "FailedMount", re.escape(SET_UP) + CASES[name][1])
    found = namespace.wait_for(name, "a status", lambda found: bool(found.status.container_statuses))

    assert event.type == "Warning" and not event.involved_object.field_path
    assert found.status.phase == "Pending"
    assert not is_true(found, "PodReadyToStartContainers")
    assert waiting_reason(found) == "ContainerCreating"


def test_memory_that_does_not_suffice_for_a_secret(namespace: Namespace) -> None:
    """The memory of a secret counts against the pod's limit, so a secret cannot exceed that limit."""
    event = namespace.wait_for_event("no-room", "FailedMount", "(?i).*no space left on device.*")
    assert event.message.startswith(SET_UP)


@pytest.mark.local
def test_socket_in_place_of_a_directory(namespace: Namespace, local: LocalCluster) -> None:
    path = local.containerd.endpoint.removeprefix("unix://")
    namespace.create(waits("socket", host_path(path, "Directory")))
    why = re.escape(f"{SET_UP}hostPath type check failed: {path} is not a directory")
    namespace.wait_for_event("socket", "FailedMount", why)


def test_hung_up_pod_tells_of_all_volumes_that_are_missing(namespace: Namespace) -> None:
    message = (
        r"Unable to attach or mount volumes: unmounted volumes=\[one two\], unattached volumes=\[.*\], "
        r"failed to process volumes=\[\]: (context deadline exceeded|timed out waiting for the condition)"
    )
    namespace.wait_for_event("several", "FailedMount", message, timeout=AGAIN)


def test_retries_come_at_growing_intervals(namespace: Namespace) -> None:
    """The first retry comes after half a second, and each delay doubles the previous one: seven take a minute."""

    def four() -> list[CoreV1Event]:
        return [each for each in failures(namespace, "no-map") if each.count >= 4]

    [event] = namespace.events.wait_for("four retries", four, AGAIN, lambda: namespace.describe("no-map"))
    assert event.first_timestamp is not None and event.last_timestamp is not None
    seconds = (event.last_timestamp - event.first_timestamp).total_seconds()
    # The timestamps are whole seconds.
    assert seconds > 0.5 * (2 ** (event.count - 1) - 1) - 1


def failures(namespace: Namespace, name: str) -> list[CoreV1Event]:
    """List the events of the failed mount."""
    found = [each for each in namespace.events_of(name) if each.reason == "FailedMount"]
    return [each for each in found if each.message.startswith(SET_UP)]


def test_pod_starts_when_its_volume_can_be_had(namespace: Namespace) -> None:
    namespace.wait_for_event("comes-later", "FailedMount", f'{SET_UP}configmap "comes-later" not found')

    put_config_map(namespace, "comes-later", {"key": "value"})

    assert told(namespace, "comes-later", timeout=AGAIN) == "value"


def test_pod_that_waits_for_a_volume_can_go(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.wait_for_event("no-secret", "FailedMount", f'{SET_UP}secret "none" not found')

    core.delete_namespaced_pod("no-secret", namespace.name)

    last = namespace.wait_deleted("no-secret")
    main = container(last.object)
    assert main is None or main.state.running is None
