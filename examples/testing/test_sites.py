from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kopf.testing
import pytest
import sites
from kubelet_testing import HollowNode, WaitFor
from kubernetes import client, config


@pytest.fixture
def core(kubeconfig: Path) -> client.CoreV1Api:
    config.load_kube_config(str(kubeconfig))
    return client.CoreV1Api()


@pytest.fixture(autouse=True)
def operator(kubeconfig: Path) -> Iterator[None]:
    """Run the operator during a test."""
    arguments = ["run", "--standalone", "--namespace=default", sites.__file__]
    with kopf.testing.KopfRunner(arguments, timeout=30) as runner:
        yield
    assert runner.exception is None, runner.output


def site(**data: str) -> dict[str, Any]:
    return {"metadata": {"name": "docs", "labels": {"site": "yes"}}, "data": data}


def health(core: client.CoreV1Api) -> str | None:
    metadata = core.read_namespaced_config_map("docs", "default").metadata
    annotations: dict[str, str] = metadata.annotations or {}
    return annotations.get(sites.HEALTH)


def pods(core: client.CoreV1Api) -> list[str]:
    return [pod.metadata.name for pod in core.list_namespaced_pod("default").items]


def test_a_site_is_served_while_it_is_there(core: client.CoreV1Api, node: HollowNode, wait_for: WaitFor) -> None:
    core.create_namespaced_config_map("default", site(**{"index.html": "hello"}))
    wait_for("a ready pod that serves the config map", lambda: health(core) == "ready")
    core.delete_namespaced_config_map("docs", "default")
    wait_for("no pod", lambda: not pods(core))


def test_how_the_pod_is(core: client.CoreV1Api, node: HollowNode, wait_for: WaitFor) -> None:
    core.create_namespaced_config_map("default", site(**{"index.html": "hello"}))
    wait_for("a ready pod that serves the config map", lambda: health(core) == "ready")
    node.pod("docs").set_ready(False)
    wait_for("the annotation of a pod that is not ready", lambda: health(core) == "not ready")
    node.pod("docs").set_ready(True)
    wait_for("the annotation of a pod that is ready again", lambda: health(core) == "ready")


def test_an_image_that_is_not_there(core: client.CoreV1Api, node: HollowNode, wait_for: WaitFor) -> None:
    with node.images.fail("nginx:none"):
        core.create_namespaced_config_map("default", site(image="nginx:none", **{"index.html": "hello"}))
        wait_for("the reason why the container waits", lambda: health(core) in ("ErrImagePull", "ImagePullBackOff"))
    wait_for("a ready pod after the repair of the registry", lambda: health(core) == "ready")


def test_no_site(core: client.CoreV1Api, node: HollowNode, wait_for: WaitFor) -> None:
    core.create_namespaced_config_map("default", site(readme="hello"))
    wait_for("an event", lambda: [e for e in core.list_namespaced_event("default").items if e.reason == "NoIndex"])
    assert not pods(core)
