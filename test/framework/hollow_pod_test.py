"""Test that a test can drive the pods of a hollow node, and that wrong names cause clear errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from framework.apiserver import APIServer
from framework.hollow_images import UnusedFaultError
from framework.hollow_node import HollowNode
from framework.watching import wait_for_object

_TIMEOUT = 30.0
Object = dict[str, Any]


@pytest.fixture
def api() -> Iterator[APIServer]:
    with APIServer() as api:
        yield api


@pytest.fixture
def node(api: APIServer) -> Iterator[HollowNode]:
    with HollowNode(api, quick=True) as node:
        yield node


def _create(api: APIServer, name: str = "web", annotations: dict[str, str] | None = None, **spec: object) -> None:
    metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
    containers = [{"name": "c", "image": "web"}]
    api.store.create("pods", {"metadata": metadata, "spec": {"nodeName": "node-1", "containers": containers, **spec}})


def _wait(api: APIServer, what: str, look: Any, name: str = "web") -> Object:
    """Return the pod once `look`, called with its status, returns a true value."""
    return wait_for_object(
        api.store,
        "pods",
        name,
        lambda pod: pod if look(pod["status"]) else None,
        namespace="default",
        timeout=_TIMEOUT,
        what=what,
    )


def _container(status: Object) -> Object:
    found: list[Object] = status.get("containerStatuses") or [{"state": {}, "lastState": {}, "restartCount": 0}]
    return found[0]


def _is_ready(status: Object) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or [])


def test_containers_end_as_they_are_told(api: APIServer, node: HollowNode) -> None:
    """A test can end a container repeatedly, and the container restarts without the pauses of a real node."""
    _create(api)
    pod = node.pod("web")
    for restarts, (code, reason) in enumerate([(3, "Error"), (0, "Completed"), (137, "OOMKilled")], 1):
        if reason == "OOMKilled":
            pod.oom()
        else:
            pod.exit(code)
        _wait(api, f"{restarts} restarts", lambda status, wanted=restarts: _container(status)["restartCount"] == wanted)
        ended = _container(_wait(api, "ended", lambda status: _container(status)["lastState"])["status"])["lastState"]
        assert (ended["terminated"]["exitCode"], ended["terminated"]["reason"]) == (code, reason)
    # On a node that is not quick, the second and the third restart would come after 10 and 20 seconds.
    assert node.kubelet is not None
    assert node.kubelet.crash_loop_back_off.max_duration == 1.0


def test_a_pod_ends(api: APIServer, node: HollowNode) -> None:
    _create(api, restartPolicy="Never")
    node.pod("web").exit()
    _wait(api, "Succeeded", lambda status: status["phase"] == "Succeeded")


@pytest.mark.parametrize("with_probe", [False, True])
def test_readiness(api: APIServer, node: HollowNode, with_probe: bool) -> None:
    probe = {"exec": {"command": ["check"]}, "periodSeconds": 1}
    container = {"name": "c", "image": "web", **({"readinessProbe": probe} if with_probe else {})}
    _create(api, containers=[container])
    pod = node.pod("web")
    _wait(api, "ready", _is_ready)
    pod.set_ready(False)
    _wait(api, "not ready", lambda status: not _is_ready(status))
    pod.exit(1)
    _wait(api, "restarted", lambda status: "running" in _container(status)["state"])
    assert not _is_ready(_wait(api, "restarted", lambda status: _container(status)["restartCount"] == 1)["status"])
    pod.set_ready(True)
    _wait(api, "ready", _is_ready)
    pod.set_ready(False)
    _wait(api, "not ready", lambda status: not _is_ready(status))
    pod.set_ready(None)
    _wait(api, "ready", _is_ready)


def test_a_pod_that_is_never_ready(api: APIServer, node: HollowNode) -> None:
    """The readiness that a test sets before the container runs takes effect, and overrides a failing probe."""
    failing = {"httpGet": {"port": 1}, "periodSeconds": 1}
    _create(api, containers=[{"name": "c", "image": "web"}, {"name": "d", "image": "web", "readinessProbe": failing}])
    pod = node.pod("web")
    pod.set_ready(True, container="d")
    _wait(api, "ready", _is_ready)
    with pytest.raises(ValueError, match="pod default/web has several containers; name one of c, d"):
        pod.set_ready(False)


def test_images_that_cannot_be_pulled(api: APIServer, node: HollowNode) -> None:
    waiting = ("ErrImagePull", "ImagePullBackOff")
    with node.images.fail("web", "no such image: web") as fault:
        _create(api)
        pod = _wait(api, "not pulled", lambda status: _waiting(status).get("reason") in waiting)
        assert "no such image: web" in _waiting(pod["status"])["message"]
    _wait(api, "ready", _is_ready)
    assert fault.hits


def _waiting(status: Object) -> Object:
    found: Object = _container(status)["state"].get("waiting") or {}
    return found


def test_an_image_that_nobody_pulls(api: APIServer) -> None:
    with pytest.raises(UnusedFaultError, match="image wep:latest was not pulled; pulled images: web:latest"):  # noqa: SIM117
        with HollowNode(api) as node:
            node.images.fail("wep")
            _create(api)
            node.pod("web").log("it runs")
    with HollowNode(api, "node-2") as node, pytest.raises(UnusedFaultError, match="image wep:latest was not pulled"):
        with node.images.fail("wep"):
            pass
        pytest.fail("the fault had an effect")


def test_an_error_of_the_test_comes_before_a_fault_that_is_not_used(api: APIServer) -> None:
    with pytest.raises(KeyError), HollowNode(api) as node, node.images.fail("wep"):
        raise KeyError


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        ("c", '{"exitcode": 1}', "unknown field exitcode; the known fields are run_for, exit_code, "),
        ("c", '{"exit_code": "1"}', "Expected `int`, got `str`"),
        ("c", "exit_code: 1", "malformed"),
        ("d", '{"exit_code": 1}', "no container has this name; the pod has c"),
    ],
)
def test_annotations_that_say_nothing(
    api: APIServer, node: HollowNode, annotation: str, text: str, message: str
) -> None:
    _create(api, annotations={f"fake.cri/{annotation}": text})
    status = _wait(api, "Failed", lambda status: status["phase"] == "Failed")["status"]
    assert status["reason"] == "BadAnnotation"
    assert f"annotation fake.cri/{annotation}: " in status["message"]
    assert message in status["message"]


def test_wrong_values(api: APIServer, node: HollowNode, tmp_path: Path) -> None:
    _create(api)
    pod = node.pod("web")
    with pytest.raises(ValueError, match="exit code 256 is not between 0 and 255"):
        pod.exit(256)
    with pytest.raises(ValueError, match="has no container 'd': it has c"):
        pod.exit(1, container="d")
    with pytest.raises(ValueError, match=r"unknown method 'RunSandbox': expected \* or one of .*RunPodSandbox"):
        node.runtime.faults.fail("RunSandbox", "no")
    with pytest.raises(ValueError, match="a function writes to stderr"):
        pod.on_exec(lambda process: 0, exit_code=1)
